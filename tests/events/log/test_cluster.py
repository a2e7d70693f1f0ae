"""Three servers, a leader that changes and a member that dies: nothing acknowledged is lost, and no fence gives way."""

import asyncio
from collections.abc import Sized
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial

import pytest

from events.base import START, Position, Recorded, chapter_of
from events.chain import Chain, extended
from events.chapter import ChapterOpened
from events.head import RoundDecided
from events.log.append import JetStreamLog
from events.log.port import Conflict, Roll, Unknown
from events.log.streams import StreamSettings, found
from projections.cluster.audit.audit import audit
from runtime.embedded.nats_cluster import NatsCluster
from tests.events.log.rigs import NOW, connected, decided, read_to, started, wired
from tests.fixtures.waiting import until

pytestmark = pytest.mark.cluster

STREAM = "EVENTS_0001"


@dataclass
class Books:
    """What writers were told."""

    appended: dict[Position, Position] = field(default_factory=dict)  # end of a decision -> the head it was made on
    recorded: dict[Position, str] = field(default_factory=dict)
    unknown: int = 0
    conflicts: int = 0
    stop: bool = False


async def decide(log: JetStreamLog, name: str, books: Books) -> None:
    """Append decisions, each on the last head seen, as fast as it goes, against another who does the same."""
    head, n = START, 0
    while not books.stop:
        n += 1
        try:
            if not head:
                last = await log.last("head")
                assert last is not None
                head = last.position
            record, *others = decided(*(f"{name}-{n}-{k}" for k in range(n % 4)))
            assert isinstance(record, RoundDecided)
            record = RoundDecided(at=NOW, epoch=START, decided_at=head, events=len(others), version=name)
            end = await log.append([record, *others], after=head)
        except (Conflict, Unknown) as lost:
            books.conflicts += isinstance(lost, Conflict)
            books.unknown += isinstance(lost, Unknown)
            head = START
        else:
            assert end not in books.appended
            books.appended[end] = head
            head = Position(end - len(others))


async def record(log: JetStreamLog, name: str, books: Books) -> None:
    """Record facts one after the other."""
    n = 0
    while not books.stop:
        n += 1
        try:
            end = await log.record([started(f"{name}-{n}")])
        except Unknown:
            books.unknown += 1
        else:
            books.recorded[end] = f"{name}-{n}"


async def progress(books: Books, more: int = 40) -> None:
    """So many more of both have been acknowledged."""
    for told in (books.appended, books.recorded):
        target = len(told) + more
        await until(partial(_holds, told, target), within_s=60)


def _holds(told: Sized, target: int) -> bool:
    return len(told) >= target


async def trouble(cluster: NatsCluster, books: Books) -> None:
    """The leader steps down twice, then it is killed, and comes back."""
    await progress(books)
    for _ in range(2):
        await cluster.step_down(STREAM)
        await progress(books)
    leader = await cluster.leader(STREAM)
    cluster.kill(leader)
    await progress(books)
    await cluster.restart(leader)
    await progress(books)
    books.stop = True


async def test_a_cluster_in_trouble_loses_and_doubles_nothing(nats_cluster: NatsCluster) -> None:
    """Two deciders race on one head and two others record facts, meanwhile; both readers see the same."""
    books = Books()
    async with AsyncExitStack() as stack:
        login = nats_cluster.login("system")
        await found(await connected(login, stack), StreamSettings(replicas=3))
        logs = [JetStreamLog(await connected(login, stack)) for _ in range(4)]
        async with asyncio.timeout(100), asyncio.TaskGroup() as group:
            group.create_task(trouble(nats_cluster, books))
            for n, log in enumerate(logs):
                group.create_task((decide if n < 2 else record)(log, f"w{n}", books))
        end = await logs[0].end()
        records = await read_to(logs[0], end)
        assert await read_to(wired(login, stack), end) == records

    _assert_kept(books, records)
    _assert_fenced(records)
    assert books.conflicts > 0


async def test_chapters_are_closed_while_a_cluster_is_in_trouble(nats_cluster: NatsCluster) -> None:
    """The stream's leader steps down, or is killed, in the middle of it; two write, and each fact is where it was told."""
    books = Books()
    async with AsyncExitStack() as stack:
        login = nats_cluster.login("system")
        await found(await connected(login, stack), StreamSettings(replicas=3))
        logs = [JetStreamLog(await connected(login, stack)) for _ in range(3)]
        async with asyncio.timeout(150), asyncio.TaskGroup() as group:
            for n, log in enumerate(logs[1:]):
                group.create_task(record(log, f"w{n}", books))
            for chapter in range(1, 5):
                target = len(books.recorded) + 20
                await until(partial(_holds, books.recorded, target), within_s=60)
                await _roll_in_trouble(nats_cluster, logs[0], chapter)
            books.stop = True
        end = await logs[0].end()
        records = await read_to(logs[0], end)
        assert await read_to(wired(login, stack), end) == records

    assert [chapter_of(r.position) for r in records if isinstance(r.event, ChapterOpened)] == [2, 3, 4, 5]
    assert [finding for finding in audit(records) if finding.law in {"contiguous", "chapters", "digest", "time"}] == []
    by_position = {r.position: r.event for r in records}
    for position, name in books.recorded.items():
        assert getattr(by_position[position], "run_id", "") == name
    runs = [r.event for r in records if r.subject == "node.node-1"]
    assert len(set(runs)) == len(runs)


async def _roll_in_trouble(cluster: NatsCluster, log: JetStreamLog, chapter: int) -> None:
    """The next chapter is open; whoever led the stream of this one lost that meanwhile."""
    stream = f"EVENTS_{chapter:04d}"
    rolling = asyncio.create_task(_rolled(log, chapter))
    leader = await cluster.leader(stream)
    if chapter < 4:
        await cluster.step_down(stream)
    else:
        cluster.kill(leader)
    await rolling
    if chapter == 4:
        await cluster.restart(leader)


async def _rolled(log: JetStreamLog, chapter: int) -> None:
    """The chapter is closed, however often it must be tried."""
    while True:
        with suppress(Unknown):
            chain = Chain()
            for recorded in await read_to(log, await log.end()):
                chain = extended(chain, (recorded,)) if chapter_of(recorded.position) <= chapter else chain
            await log.roll(chain, Roll(log_id="x", at=NOW))
            return


def _assert_kept(books: Books, records: list[Recorded]) -> None:
    """All that was acknowledged is where it was said to be, and nothing is there twice."""
    by_position = {r.position: r for r in records}
    for position, name in books.recorded.items():
        assert getattr(by_position[position].event, "run_id", "") == name
    for end, head in books.appended.items():
        first = next(r for r in records[end - records[0].position :: -1] if r.subject == "head")
        assert isinstance(first.event, RoundDecided)
        assert first.event.decided_at == head
        assert first.position + first.event.events == end
    told = [(r.subject, r.id) for r in records]
    assert len(set(told)) == len(told)
    runs = [r.event for r in records if r.subject == "node.node-1"]
    assert len(set(runs)) == len(runs)


def _assert_fenced(records: list[Recorded]) -> None:
    """Each decision was made on the one before it, and its events follow it without a gap."""
    head = records[0].position
    for n, r in enumerate(records):
        if isinstance(r.event, RoundDecided):
            assert r.event.decided_at == head
            head = r.position
            batch = records[n + 1 : n + 1 + r.event.events]
            assert [other.id for other in batch] == [f"{r.event.decided_at:x}-{k}" for k in range(1, len(batch) + 1)]
