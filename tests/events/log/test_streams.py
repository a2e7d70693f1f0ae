"""Streams are made once, found as they must be, and complained of by name when they are not."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from nats.aio.msg import Msg

from events.base import position_of
from events.log.append import JetStreamLog
from events.log.port import Broken, Unfit
from events.log.streams import StreamSettings, check, check_servers, differences, found, wanted
from runtime.children import Child, Command
from runtime.embedded.nats import EmbeddedNats, server_program
from runtime.embedded.nats_cluster import NatsCluster
from runtime.embedded.ports import RememberedPorts
from runtime.nats import Connection, Login
from tests.events.log.rigs import cancel, connected, read_to
from tests.fixtures.waiting import until

SETTINGS = StreamSettings()


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[Connection]:
    """A connection to a server with JetStream as it comes: no fsync, no batches of 20,000."""
    port = RememberedPorts(tmp_path).choose("client")
    argv = (server_program(), "-js", "-sd", str(tmp_path / "store"), "-a", "127.0.0.1", "-p", str(port))
    child = Child(Command(argv=argv, log=tmp_path / "log", env={}))
    await until((tmp_path / "log").exists)
    await until(lambda: "Server is ready" in (tmp_path / "log").read_text())
    async with AsyncExitStack() as stack:
        yield await connected(Login(urls=(f"nats://127.0.0.1:{port}",)), stack)
    await child.end((signal.SIGKILL, 5.0))


async def create(connection: Connection, config: dict[str, Any]) -> None:
    """A stream with exactly these settings."""
    answer = await connection.request(f"$JS.API.STREAM.CREATE.{config['name']}", json.dumps(config).encode())
    assert "error" not in json.loads(answer.data), answer.data


async def test_founding_is_done_once(nats_connection: Connection) -> None:
    """By several at once, and again at every start: one log, one first record."""
    first, *others = await asyncio.gather(*(found(nats_connection, SETTINGS) for _ in range(4)))
    again = await found(nats_connection, SETTINGS)

    assert {f.log_id for f in (*others, again)} == {first.log_id}
    assert again.end == position_of(1, 1)
    assert await check(nats_connection, SETTINGS, trial=True) == again


class Slow:
    """A connection by which the first answer to each kind of question does not come in time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.late: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def request(self, subject: str, *args: Any, **how: Any) -> Msg:
        """See `Client`."""
        if subject in self.late or not subject.startswith("$JS.API"):
            return await self._connection.request(subject, *args, **how)
        self.late.add(subject)
        raise nats.errors.TimeoutError


async def test_founding_asks_a_server_that_is_slow_again(nats_connection: Connection) -> None:
    """A machine that is busy at its start: whatever is not answered in time at first."""
    slow = Slow(nats_connection)
    founded = await found(slow, SETTINGS, trial=True)  # type: ignore[arg-type]  # as good as one
    assert founded == await check(nats_connection, SETTINGS)
    assert {"$JS.API.INFO", "$JS.API.STREAM.MSG.GET.EVENTS_0001"} <= slow.late


@pytest.mark.cluster
async def test_founding_is_done_once_on_three_servers(nats_cluster: NatsCluster) -> None:
    """Also while the streams have no leaders yet."""
    settings = StreamSettings(replicas=3)
    async with AsyncExitStack() as stack:
        connections = [await connected(server.login("system"), stack) for server in nats_cluster.servers]
        founded = await asyncio.gather(*(found(connection, settings) for connection in connections))

        assert len({f.log_id for f in founded}) == 1
        assert (await check(connections[0], settings, trial=True)).end == position_of(1, 1)


async def test_a_trial_leaves_nothing_behind(nats_connection: Connection) -> None:
    """It is refused: no record, and the head where it was."""
    await found(nats_connection, SETTINGS)
    log = JetStreamLog(nats_connection)
    before = await log.last("head")

    await check(nats_connection, SETTINGS, trial=True)

    assert await log.last("head") == before
    assert await log.end() == position_of(1, 1)


async def test_a_missing_stream_is_named(nats_connection: Connection) -> None:
    """A process that only works on the log does not make one."""
    with pytest.raises(Unfit, match="EVENTS_0001") as raised:
        await check(nats_connection, SETTINGS)
    assert raised.value.code == "stream_missing"
    assert raised.value.hint


async def test_a_server_that_was_restarted_still_has_a_log(nats_connection: Connection) -> None:
    """It comes up without the stream in memory: no reason for a part not to start."""
    await found(nats_connection, SETTINGS)
    await nats_connection.jetstream().delete_stream("HEARTBEATS")

    assert (await check(nats_connection, SETTINGS)).end == position_of(1, 1)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"allow_atomic": False}, "allow_atomic"),
        ({"allow_direct": False}, "allow_direct"),
        ({"deny_delete": False}, "deny_delete"),
        ({"deny_purge": False}, "deny_purge"),
        ({"max_age": 60_000_000_000}, "max_age"),
        ({"max_msgs": 10}, "max_msgs"),
        ({"allow_msg_ttl": True}, "allow_msg_ttl"),
        ({"subjects": ["muster.main.ev.*"]}, "subjects"),
        ({"storage": "memory"}, "storage"),
    ],
)
async def test_a_setting_that_loses_events_is_named(
    nats_connection: Connection, change: dict[str, Any], named: str
) -> None:
    """Whoever set it, and whatever nats-py knows of it."""
    await create(nats_connection, wanted(SETTINGS)[0] | change)

    with pytest.raises(Unfit, match=named) as raised:
        await found(nats_connection, SETTINGS)
    assert raised.value.code == "stream_unfit"


def test_settings_are_compared_whatever_the_server_leaves_out() -> None:
    """Newer servers leave out what is unset; older ones say 0, -1 or false."""
    for config in wanted(SETTINGS):
        assert (
            differences(config, config | {"max_msgs": -1, "max_msg_size": 0, "sealed": False, "metadata": {"a": "b"}})
            == []
        )
    assert differences({"a": 1}, {}) == ["a is null, not 1"]


async def test_a_log_that_does_not_begin_as_one_is_refused(nats_connection: Connection) -> None:
    """A stream restored in part, or written to by another program, is not taken for a log."""
    await create(nats_connection, wanted(SETTINGS)[0])
    await JetStreamLog(nats_connection).record([cancel("j1")])

    with pytest.raises(Broken) as raised:
        await found(nats_connection, SETTINGS)
    assert raised.value.code == "log_unfounded"


async def test_a_log_of_another_cell_is_refused(nats_connection: Connection) -> None:
    """Two cells never share a log, whatever their streams are named."""
    await found(nats_connection, SETTINGS)

    with pytest.raises(Unfit, match="subjects"):
        await found(nats_connection, StreamSettings(cell="other"))


async def test_a_server_that_takes_small_batches_only_is_found_out(plain: Connection) -> None:
    """Its default is 1,000: the trial sees it, and without a trial the first large batch does."""
    await found(plain, SETTINGS)

    with pytest.raises(Unfit) as raised:
        await check(plain, SETTINGS, trial=True)
    assert raised.value.code == "batch_limit"
    with pytest.raises(Unfit) as refused:
        await JetStreamLog(plain).record([cancel(f"j{n}") for n in range(1_001)])
    assert refused.value.hint
    assert len(await read_to(JetStreamLog(plain), position_of(1, 1))) == 1


async def test_the_system_account_sees_how_servers_write(nats_server: EmbeddedNats) -> None:
    """Ours do so at once."""
    async with AsyncExitStack() as stack:
        system = await connected(nats_server.login("sys"), stack)
        await check_servers(system)


async def test_the_system_account_sees_a_server_that_writes_late(tmp_path: Path) -> None:
    """With the server's defaults, two minutes of acknowledged events can be lost."""
    port = RememberedPorts(tmp_path).choose("client")
    config = {
        "listen": f"127.0.0.1:{port}",
        "jetstream": {"store_dir": str(tmp_path / "store")},
        "accounts": {"SYS": {"users": [{"user": "sys", "password": "x"}]}},
        "system_account": "SYS",
    }
    (tmp_path / "conf").write_text(json.dumps(config))
    argv = (server_program(), "-c", str(tmp_path / "conf"))
    child = Child(Command(argv=argv, log=tmp_path / "log", env={}))
    await until((tmp_path / "log").exists)
    await until(lambda: "Server is ready" in (tmp_path / "log").read_text())
    async with AsyncExitStack() as stack:
        login = Login(urls=(f"nats://127.0.0.1:{port}",), user="sys", password="x")
        with pytest.raises(Unfit) as raised:
            await check_servers(await connected(login, stack))
    assert raised.value.code == "server_unsynced"
    await child.end((signal.SIGKILL, 5.0))
