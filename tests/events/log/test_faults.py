"""What is in the log when a server does not answer, is killed, or comes back with another log."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvloop

from events.base import Position, Recorded, Stretch, position_of
from events.log import batch
from events.log.append import JetStreamLog
from events.log.port import Broken, Reader, Unfit, Unknown
from events.log.streams import StreamSettings, found, wanted
from events.log.wire import WireReader
from runtime.embedded.nats import EmbeddedNats
from runtime.nats import Connection
from tests.events.log.rigs import cancel, connected, decided, following, read_to, started, submitted, taken, wired
from tests.events.log.test_streams import create
from tests.fixtures.waiting import freeze, until

FIRST = position_of(1, 1)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """What a test opens is closed with it."""
    async with AsyncExitStack() as opened:
        yield opened


@pytest.fixture
async def log(nats_server: EmbeddedNats, stack: AsyncExitStack) -> JetStreamLog:
    """A founded log."""
    connection = await connected(nats_server.login("system"), stack)
    await found(connection, StreamSettings())
    return JetStreamLog(connection)


@pytest.fixture(params=["nats", "wire"])
async def reader(request: pytest.FixtureRequest, nats_server: EmbeddedNats, stack: AsyncExitStack) -> Reader:
    """Either reader, with a connection of its own."""
    if request.param == "wire":
        return wired(nats_server.login("reader"), stack)
    return JetStreamLog(await connected(nats_server.login("reader"), stack))


def pause(server: EmbeddedNats) -> None:
    """The server answers nothing, and its connections stay."""
    assert server.pid
    freeze(server.pid)


def go_on(server: EmbeddedNats) -> None:
    """It goes on where it was."""
    assert server.pid
    os.kill(server.pid, signal.SIGCONT)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for the whole time that an answer may take."""
    monkeypatch.setattr(batch, "ANSWER_S", 0.2)
    monkeypatch.setattr(batch, "RESOLVE_S", 0.2)


@pytest.mark.usefixtures("impatient")
async def test_an_unknown_append_is_there_once_or_never(nats_server: EmbeddedNats, log: JetStreamLog) -> None:
    """The server took in what it had no time to answer. Who reads on sees what holds, and goes on from there."""
    for events in ([taken()], decided("j1", "j2")):
        head = await log.last("head")
        assert head is not None
        pause(nats_server)
        with pytest.raises(Unknown):
            await log.append(events, after=head.position)
        go_on(nats_server)
        end = await log.append([taken("next")], after=await _head_after(log, head))
        records = await read_to(log, end, after=head.position)
        mine = [r.event for r in records if r.event != started("mark")]
        assert mine in ([*events, taken("next")], [taken("next")])


async def _head_after(log: JetStreamLog, head: Recorded) -> Position:
    """The head, once what was under way has had its time to land."""
    await log.record([started("mark")])  # behind it on the same connection
    last = await log.last("head")
    assert last is not None
    return max(last.position, head.position)


async def test_an_answer_that_came_too_late_is_found(
    nats_server: EmbeddedNats, log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written is in the log: its writer is told where, and sends nothing again."""
    monkeypatch.setattr(batch, "ANSWER_S", 0.1)
    monkeypatch.setattr(batch, "RESOLVE_S", 10.0)
    for kind in ("decision", "fact", "submission"):
        end = await log.end()
        pause(nats_server)
        writing = asyncio.create_task(_one(log, kind))
        await asyncio.sleep(0.3)  # longer than it waits for an answer
        assert not writing.done()
        go_on(nats_server)
        assert await writing == end + 1
        assert await log.end() == end + 1


async def _one(log: JetStreamLog, kind: str) -> Position:
    """A batch of one event waits for one answer only: that of its commit."""
    if kind == "decision":
        return await log.append([taken("late")], after=FIRST)
    return await log.record([started("late") if kind == "fact" else submitted("late")])


async def test_a_late_answer_is_not_taken_for_anothers(
    nats_server: EmbeddedNats, log: JetStreamLog, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another leader's record stands where ours would be: ours can never be written, which is a conflict."""
    monkeypatch.setattr(batch, "ANSWER_S", 0.1)
    monkeypatch.setattr(batch, "RESOLVE_S", 10.0)
    other = JetStreamLog(await connected(nats_server.login("system"), stack))
    pause(nats_server)
    first = asyncio.create_task(other.append([taken("other")], after=FIRST))
    await asyncio.sleep(0.05)
    second = asyncio.create_task(log.append([taken("ours")], after=FIRST))
    await asyncio.sleep(0.3)
    go_on(nats_server)
    outcomes = await asyncio.gather(first, second, return_exceptions=True)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Conflict", "int"]
    assert len(await read_to(log, await log.end())) == 2


@dataclass
class Books:
    """What writers were told."""

    known: dict[Position, str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    stop: bool = False

    async def more(self) -> None:
        """Some more has been acknowledged."""
        target = len(self.known) + 30
        await until(lambda: len(self.known) >= target, within_s=30)


async def write(log: JetStreamLog, name: str, books: Books) -> None:
    """Record facts in small batches until told to stop."""
    n = 0
    while not books.stop:
        runs = [f"{name}-{n}-{k}" for k in range(1 + n % 3)]
        n += 1
        try:
            end = await log.record([started(run) for run in runs])
        except Unknown:
            books.unknown.update(runs)
        else:
            books.known.update({Position(end - len(runs) + 1 + k): run for k, run in enumerate(runs)})


async def read(reader: Reader, books: Books) -> tuple[list[Recorded], int]:
    """All records, and how many stretches were empty."""
    records: list[Recorded] = []
    quiet = 0
    async with aclosing(following(reader)) as stretches:
        async for stretch in stretches:
            records += stretch
            quiet += not stretch
            if books.stop and not stretch and records[-1].position >= max(books.known):
                break
    return records, quiet


async def killed_and_started(server: EmbeddedNats, books: Books) -> None:
    """The server dies twice, between acknowledgements."""
    for _ in range(2):
        await books.more()
        server.kill()
        await server.stop()
        await server.start()
    await books.more()
    books.stop = True


async def test_nothing_acknowledged_is_lost_when_a_server_is_killed(
    nats_server: EmbeddedNats, log: JetStreamLog, reader: Reader
) -> None:
    """Killed twice in the middle of appends. All is read as acknowledged, in order, and nothing twice."""
    books = Books()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        reading = group.create_task(read(reader, books))
        for name in ("a", "b", "c"):
            group.create_task(write(log, name, books))
        group.create_task(killed_and_started(nats_server, books))
    records, quiet = reading.result()

    assert quiet > 0
    assert [r.position for r in records] == [position_of(1, n) for n in range(1, len(records) + 1)]
    runs = {r.position: str(getattr(r.event, "run_id", "")) for r in records[1:]}
    assert {position: runs[position] for position in books.known} == books.known
    assert len(set(runs.values())) == len(runs)
    assert set(runs.values()) <= set(books.known.values()) | books.unknown


async def test_a_log_that_was_replaced_is_noticed(
    nats_connection: Connection, log: JetStreamLog, reader: Reader
) -> None:
    """Whether the new one is shorter than what was read, or longer by now."""
    for facts in (0, 5):
        end = await log.record([cancel("j1"), cancel("j1")])
        async with asyncio.timeout(30), aclosing(following(reader)) as stretches:
            async for stretch in stretches:
                if stretch and stretch[-1].position == end:
                    break
            await nats_connection.jetstream().delete_stream("EVENTS_0001")
            await found(nats_connection, StreamSettings())
            for _ in range(facts):
                await log.record([cancel("j2")])
            with pytest.raises(Broken) as raised:
                await _take(stretches, [])
        assert raised.value.code in {"log_cut", "log_swapped"}
        assert raised.value.hint
        reader = JetStreamLog(nats_connection)


async def test_a_server_that_comes_back_with_another_log_is_noticed_before_it_is_read(
    nats_server: EmbeddedNats, log: JetStreamLog, reader: Reader, tmp_path: Path
) -> None:
    """Its store was lost while it was away, and it holds more by now than was read: none of that is taken for ours."""
    seen: list[Recorded] = []
    end = await log.record([started("ours")])
    async with asyncio.timeout(30), aclosing(following(reader)) as stretches:
        async for stretch in stretches:
            seen += stretch
            if seen and seen[-1].position == end:
                break
        await nats_server.stop()
        shutil.rmtree(tmp_path / "nats" / "jetstream")
        assert await anext(stretches) == ()
        await nats_server.start()
        async with AsyncExitStack() as opened:
            other = await connected(nats_server.login("system"), opened)
            await found(other, StreamSettings())
            await JetStreamLog(other).record([started(f"theirs-{n}") for n in range(5)])
        with pytest.raises(Broken):
            await _take(stretches, seen)
    assert len(seen) == 2


async def _take(stretches: AsyncIterator[Stretch], seen: list[Recorded]) -> None:
    async for stretch in stretches:
        seen += stretch


async def test_a_gap_is_never_read_over(nats_connection: Connection, reader: Reader) -> None:
    """A record that is missing stops the reader where it should have been."""
    await create(nats_connection, wanted(StreamSettings())[0] | {"deny_delete": False})
    await JetStreamLog(nats_connection).record([cancel(f"j{n}") for n in range(5)])
    await nats_connection.jetstream().delete_msg("EVENTS_0001", 3)

    with pytest.raises(Broken, match="Record 3 is missing") as raised:
        await read_to(reader, position_of(1, 5))
    assert raised.value.code == "log_gap"
    assert len(await read_to(reader, position_of(1, 5), after=position_of(1, 3))) == 2


async def test_times_go_on_from_what_was_read_before(log: JetStreamLog, reader: Reader) -> None:
    """A reader that begins in the middle has the times of one that read from the start, also when a clock went back."""
    end = await log.record([started("j1-1"), started("j2-1")])
    last = (await read_to(reader, end))[-1].at
    later = last.replace(year=last.year + 1)

    async with asyncio.timeout(20), aclosing(reader.follow(FIRST, since=later)) as stretches:  # type: ignore[type-var]
        async for stretch in stretches:
            if stretch:
                assert {r.at for r in stretch} == {later}
                break


async def test_a_user_that_is_refused_is_said(nats_server: EmbeddedNats) -> None:
    """Trying on would never help."""
    reader = WireReader(nats_server.login("reader").urls, user="reader", password="wrong")
    with pytest.raises(Unfit) as raised:
        await reader.end()
    assert raised.value.code == "log_user_refused"
    reader.close()


async def test_the_bare_reader_runs_in_either_loop(nats_server: EmbeddedNats, log: JetStreamLog) -> None:
    """Processes run in uvloop, whose transports are its own."""
    login = nats_server.login("reader")
    end = await log.record([started("j1-1")])

    async def read_all() -> int:
        async with AsyncExitStack() as opened:
            return len(await read_to(wired(login, opened), end))

    assert await asyncio.to_thread(lambda: uvloop.run(read_all())) == await read_all() == 2


async def test_the_next_server_is_tried(nats_server: EmbeddedNats, log: JetStreamLog) -> None:
    """One that is not there costs one question."""
    login = nats_server.login("reader")
    urls = ("nats://127.0.0.1:9", *login.urls)
    reader = WireReader(urls, user=login.user, password=login.password, inbox_prefix=login.inbox_prefix)
    with pytest.raises(Unknown):
        await reader.end()
    assert await reader.end() == await log.end()
    assert len(await read_to(reader, FIRST)) == 1
    reader.close()


@pytest.mark.usefixtures("impatient")
async def test_nothing_is_sent_while_there_is_no_server(nats_server: EmbeddedNats, log: JetStreamLog) -> None:
    """The caller is told, and what it gave up never appears later."""
    await log.record([started("before")])
    await nats_server.stop()
    for write in (log.record([started("lost")]), log.append([taken("lost")], after=FIRST)):
        with pytest.raises(Unknown):
            await write
    with pytest.raises(Unknown):
        await log.end()
    await nats_server.start()

    async def again() -> Position:
        while True:
            try:
                return await log.record([started("after")])
            except Unknown:
                await asyncio.sleep(0.05)

    async with asyncio.timeout(20):
        end = await again()
    assert [getattr(r.event, "run_id", "") for r in await read_to(log, end)] == ["", "before", "after"]
