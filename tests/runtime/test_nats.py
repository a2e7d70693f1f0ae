"""Connections to NATS, on a real server: what is survived, what is said, what ends the process."""

import asyncio
import os
import signal
import threading

import nats.errors
import pytest
import structlog.testing

from runtime.embedded.nats import EmbeddedNats
from runtime.fault import Fault
from runtime.nats import Connection, Login, connect
from tests.fixtures.waiting import freeze, until


async def test_a_connection_comes_back_after_a_restart_of_the_server(
    nats_server: EmbeddedNats, nats_connection: Connection
) -> None:
    """Nobody has to do anything: subscriptions are there again."""
    heard = await nats_connection.subscribe("any")
    nats_server.kill()
    await nats_server.wait()
    await nats_server.stop()
    await nats_server.start()
    await until(lambda: nats_connection.is_connected)
    await nats_connection.publish("any", b"x")
    assert (await heard.next_msg(timeout=2)).data == b"x"
    assert await nats_connection.alive()


async def test_nothing_said_while_disconnected_is_sent_later(
    nats_server: EmbeddedNats, nats_connection: Connection
) -> None:
    """A caller told of a fault can rely on it: the message does not turn up after the reconnect."""
    nats_server.kill()
    await nats_server.wait()
    await until(lambda: not nats_connection.is_connected)
    with pytest.raises(nats.errors.OutboundBufferLimitError):
        await nats_connection.publish("any", b"x")
    assert not await nats_connection.alive(within_s=0.2)


async def test_a_server_that_does_not_answer_in_time_breaks_nothing(
    nats_server: EmbeddedNats, nats_connection: Connection
) -> None:
    """Its late answers find their place: the connection is as good as before."""
    assert nats_server.pid is not None
    freeze(nats_server.pid)
    assert not await nats_connection.alive(within_s=0.05)
    with pytest.raises(nats.errors.FlushTimeoutError):
        await nats_connection.flush(timeout=0.05)
    os.kill(nats_server.pid, signal.SIGCONT)
    assert await nats_connection.alive()
    assert (await nats_connection.jetstream().account_info()).streams == 0


async def test_a_server_that_stands_still_is_left_within_seconds(
    nats_server: EmbeddedNats, nats_connection: Connection
) -> None:
    """Though nothing is asked of it and the connection is open: whoever has others to go to goes there."""
    assert nats_server.pid is not None
    freeze(nats_server.pid)
    await until(lambda: not nats_connection.is_connected, within_s=8.0)
    os.kill(nats_server.pid, signal.SIGCONT)


async def test_a_flush_follows_what_was_published(nats_server: EmbeddedNats, nats_connection: Connection) -> None:
    """When it returns, the server has everything: others have been sent it."""
    other = await connect(nats_server.login("system"), name="other")
    heard = await other.subscribe("any")
    await other.flush()
    for _ in range(100):
        await nats_connection.publish("any", bytes(10_000))
    await nats_connection.flush()
    await other.flush()
    assert heard.pending_msgs == 100
    await other.close()


async def test_an_absent_server_is_not_waited_for_without_end() -> None:
    """Who cannot connect says so."""
    with pytest.raises(Fault) as absent:
        await connect(Login(urls=("nats://127.0.0.1:1",)), name="test", within_s=0.5)
    assert absent.value.code == "nats_unreachable"


async def test_a_refused_user_fails_at_once(nats_server: EmbeddedNats) -> None:
    """It would be refused for ever."""
    with pytest.raises(Fault) as refused:
        await connect(Login(urls=(nats_server.url,), user="control", password="wrong"), name="test")
    assert refused.value.code == "nats_user_refused"


async def test_a_refused_subject_is_a_line_in_the_log(nats_server: EmbeddedNats) -> None:
    """The caller only sees a timeout; the operator sees why."""
    connection = await connect(nats_server.login("reader"), name="test")
    with structlog.testing.capture_logs() as lines:
        await connection.publish("muster.main.ev.head", b"x")
        await until(lambda: lines)
    assert lines[0]["event"] == "nats_permission_refused"
    assert "muster.main.ev.head" in lines[0]["error"]
    await connection.close()


async def test_a_client_that_gives_up_asks_the_process_to_end(nats_server: EmbeddedNats) -> None:
    """But not when we close it ourselves."""
    lost: list[str] = []
    ours = await connect(nats_server.login("system"), name="test", lost=lost.append)
    await ours.close()
    assert lost == []
    given_up = await connect(nats_server.login("system"), name="test", lost=lost.append)
    await given_up._process_err("'Maximum Connections Exceeded'")  # after which the client stays closed
    await until(lambda: lost == ["nats_connection_lost"])


async def test_by_default_the_process_is_told_by_a_signal(nats_server: EmbeddedNats) -> None:
    """It ends as on any SIGTERM: in order."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    connection = await connect(nats_server.login("system"), name="test")
    await connection._process_err("'Maximum Connections Exceeded'")
    async with asyncio.timeout(5):
        await told.wait()
    asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    assert threading.current_thread() is threading.main_thread()


async def test_a_task_that_asks_without_end_is_cancelled_by_one_cancel(nats_connection: Connection) -> None:
    """The client swallows a cancellation that comes with the answer, two times in three in a loop such as this."""

    async def asking() -> None:
        while True:
            await nats_connection.request("$JS.API.INFO", b"")

    for pause in range(40):
        task = asyncio.create_task(asking())
        await asyncio.sleep(pause % 8 * 0.000_5)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=2)
        assert done, "one cancel is enough"
