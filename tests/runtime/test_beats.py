"""Heartbeats, on a real server: heard while somebody listens, and never kept for later."""

import asyncio

import pytest

from events.base import NodeId
from events.subjects import Subjects
from runtime.beats import beat, hearing
from runtime.embedded.nats import EmbeddedNats
from runtime.nats import Connection, connect
from tests.fixtures.waiting import until

SUBJECTS = Subjects()
N1 = SUBJECTS.heartbeat("node-1")


async def test_a_beat_is_heard_with_its_subject_by_all_who_listen(nats_connection: Connection) -> None:
    """Also by its sender: that is how it knows that beats come through."""
    one: list[tuple[str, bytes]] = []
    two: list[tuple[str, bytes]] = []
    async with (
        hearing(nats_connection, SUBJECTS.heartbeats, lambda *heard: one.append(heard)),
        hearing(nats_connection, SUBJECTS.heartbeats, lambda *heard: two.append(heard)),
    ):
        await beat(nats_connection, N1, b"1")
        await beat(nats_connection, SUBJECTS.heartbeat("control-a"), b"{}")
        await until(lambda: len(one) == len(two) == 2)

    assert one == two == [(N1, b"1"), (SUBJECTS.heartbeat("control-a"), b"{}")]


async def test_nothing_is_heard_after_the_listening_ends(nats_connection: Connection) -> None:
    """The subscription goes with its block."""
    heard: list[bytes] = []
    async with hearing(nats_connection, SUBJECTS.heartbeats, lambda _, payload: heard.append(payload)):
        await beat(nats_connection, N1, b"1")
        await until(lambda: heard)
    await beat(nats_connection, N1, b"2")
    await nats_connection.flush()

    assert heard == [b"1"]


async def test_an_agent_beats_for_itself_only(nats_server: EmbeddedNats, nats_connection: Connection) -> None:
    """The server keeps one node from speaking for another."""
    heard: list[str] = []
    agent = await connect(nats_server.login("agent-node-1"), name="agent")
    try:
        async with hearing(nats_connection, SUBJECTS.heartbeats, lambda subject, _: heard.append(subject)):
            await beat(agent, SUBJECTS.heartbeat("node-2"), b"{}")
            await beat(agent, SUBJECTS.heartbeat(NodeId("node-1")), b"{}")
            await until(lambda: heard)
        assert heard == [N1]
    finally:
        await agent.close()


async def test_a_beat_while_the_server_is_away_is_lost_and_hearing_goes_on(
    nats_server: EmbeddedNats, nats_connection: Connection
) -> None:
    """A beat that came through later would tell of a life that may be over by then."""
    heard: list[bytes] = []
    async with hearing(nats_connection, SUBJECTS.heartbeats, lambda _, payload: heard.append(payload)):
        nats_server.kill()
        await nats_server.wait()
        await until(lambda: not nats_connection.is_connected)
        for _ in range(3):
            await beat(nats_connection, N1, b"while away")
        await nats_server.stop()
        await nats_server.start()
        await until(lambda: nats_connection.is_connected)
        await beat(nats_connection, N1, b"back")
        await until(lambda: heard)
    assert heard == [b"back"]


async def test_listening_ends_well_when_the_connection_has_gone_before_it(nats_server: EmbeddedNats) -> None:
    """At the end of a process the order is not promised."""
    connection = await connect(nats_server.login("system"), name="gone")
    async with hearing(connection, SUBJECTS.heartbeats, lambda *_: None):
        await connection.close()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.sleep(1)
    await beat(connection, N1, b"nobody hears")
