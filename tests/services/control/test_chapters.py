"""Chapters of the log under load: closed and opened without a gap, whoever dies in between; and its digest is kept."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count, pairwise
from pathlib import Path

import msgspec
import pytest
import structlog.testing
from msgspec.structs import replace

from events.ask import RollAnswer, RollAsk
from events.base import START, Position, Recorded, chapter_of, position_of
from events.chain import Chain, extended, follows
from events.chapter import ChapterClosed, ChapterOpened, RollCause
from events.codec import EPOCH
from events.head import LeadershipTaken, RoundDecided
from events.job import JobPlaced, JobSubmitted
from events.log.append import JetStreamLog
from events.log.memory import MemoryLog
from events.log.port import Conflict, Roll, Rolled, Shut, Unknown
from events.log.roll import Roller
from events.log.streams import StreamSettings, check
from events.log.writing import Pen
from projections.cluster.audit.audit import audit
from projections.cluster.state import Cluster
from runtime.clock import ManualClock
from runtime.embedded.nats import EmbeddedNats
from runtime.nats import Connection
from services.control.answers import answering_roll
from services.control.chapters import FILE, SAVE_EVERY_S, Chapters, Kept, Limits
from services.control.leader import ControlPlane, Name
from tests.events.log.rigs import read_to, wired
from tests.fixtures.waiting import until
from tests.services.control.cells import CLOCK, Cell, Hint

STEPS = ("shut", "close", "create", "open")


@asynccontextmanager
async def leading(log: JetStreamLog | MemoryLog, chapters: Chapters, name: str = "a") -> AsyncIterator[ControlPlane]:
    """A control plane that leads, and closes chapters."""
    plane = ControlPlane(log, Cluster(), Hint(held=True), CLOCK, name=Name(name, "1"))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(plane.run(chapters=chapters))
        try:
            await until(lambda: plane.leading)
            yield plane
        finally:
            task.cancel()


async def submitting(cell: Cell, told: dict[str, Position], stop: asyncio.Event) -> None:
    """Jobs come one after the other, each twice; what was answered is noted."""
    for n in count():
        if stop.is_set():
            return
        job = f"job{n}"
        told[job] = Position(0)
        await cell.submit(job, 1)
        first = await cell.gate.first(f"intake.t.{job}")
        assert first is not None
        told[job] = first.position
        with pytest.raises(Conflict):
            await cell.submit(job, 1)


async def test_chapters_are_closed_under_load_without_a_gap(
    real: Cell, nats_server: EmbeddedNats, nats_connection: Connection
) -> None:
    """A gate writes, a leader decides, others follow: nothing lost, doubled or refused, and each key taken once."""
    async with AsyncExitStack() as stack:
        log = JetStreamLog(nats_connection, reader=wired(nats_server.login("system"), stack))
        chapters = Chapters(log, CLOCK)
        told: dict[str, Position] = {}
        stop = asyncio.Event()
        await real.join("n1", 8)
        lines = stack.enter_context(structlog.testing.capture_logs())
        async with leading(log, chapters), asyncio.TaskGroup() as group:
            group.create_task(submitting(real, told, stop))
            rolls = []
            for _ in range(3):
                before = len(told)
                await until(lambda: len(told) > before + 5, within_s=20)  # noqa: B023 - awaited here
                rolls.append(await asyncio.wait_for(chapters.asked("ops"), 10))
            await until(lambda: len(told) > before + 10, within_s=20)
            stop.set()
        end = await real.gate.end()
        records = await read_to(wired(nats_server.login("reader"), stack), end)

    assert [chapter_of(rolled.opened) for rolled in rolls] == [2, 3, 4]
    assert all(0 < rolled.gap_s < 1 for rolled in rolls)
    assert [line["event"] for line in lines if "chapter" in line["event"]] == ["chapter_opened"] * 3
    assert [line for line in lines if line["event"] == "round_dropped"] == []
    assert all(follows(a.position, b) for a, b in pairwise(records))
    assert [r.at for r in records] == sorted(r.at for r in records)
    submitted = {r.event.job_id: r.position for r in records if isinstance(r.event, JobSubmitted)}
    assert submitted == told
    assert len([r for r in records if isinstance(r.event, JobSubmitted)]) == len(told)
    assert {chapter_of(position) for position in told.values()} == {1, 2, 3, 4}
    assert sum(isinstance(r.event, LeadershipTaken) for r in records) == 1
    assert {chapter_of(r.position) for r in records if isinstance(r.event, RoundDecided)} == {1, 2, 3, 4}
    assert sum(isinstance(r.event, JobPlaced) for r in records) == 8
    assert audit(records) == []
    assert extended(chapters.chain, tuple(records)) == extended(Chain(), tuple(records))
    founded = await check(nats_connection, StreamSettings(), trial=True)
    assert founded.log_id == real.cluster.log_id
    assert founded.end >= end  # the last append may land after its writer has ended


@pytest.mark.parametrize("steps", range(len(STEPS) + 1))
async def test_a_chapter_that_was_half_closed_is_finished_by_the_next_leader(
    real: Cell, nats_connection: Connection, steps: int
) -> None:
    """Whatever step the one before it died after. Facts wait meanwhile, and none is lost."""
    log = JetStreamLog(nats_connection)
    await real.join("n1", 1)
    await real.submit("early", 1)
    await _until_step(log, steps)
    late = asyncio.create_task(_submitted(real, "late"))
    await asyncio.sleep(0.05)
    if steps < len(STEPS):
        founded = await check(nats_connection, StreamSettings(), trial=True)  # a start finds nothing wrong with it
        assert chapter_of(founded.end) == 1
    async with leading(JetStreamLog(nats_connection), Chapters(log, CLOCK), "b"):
        await late
        await until(lambda: real.placed("early"))
        with pytest.raises(Conflict):
            await real.submit("early", 1)

    chapters = [r for r in real.records if isinstance(r.event, ChapterClosed | ChapterOpened)]
    assert [type(r.event).__name__ for r in chapters] == (["ChapterClosed", "ChapterOpened"] if steps else [])


async def _submitted(cell: Cell, job: str) -> None:
    """As a gate does it: what was not written is tried again."""
    while True:
        with suppress(Shut):
            await cell.submit(job, 1)
            return


async def _until_step(log: JetStreamLog, steps: int) -> None:
    """A chapter is being closed, up to and including so many steps."""
    roller = Roller(log._nc, log, Pen(log.subjects, log.codec, "x"))
    roll, chain = Roll(log_id=await _log_id(log), at=CLOCK.now()), await _chain(log)
    for step in STEPS[:steps]:
        match step:
            case "shut":
                await roller.shut(1)
            case "close":
                chain = await roller.close(1, chain, roll)
            case "create":
                await roller.create(2)
            case _:
                await roller.open(chain, roll)


async def _chain(log: JetStreamLog) -> Chain:
    return extended(Chain(), tuple(await read_to(log, await log.end())))


async def _log_id(log: JetStreamLog) -> str:
    first = await log.read(position_of(1, 1))
    assert first is not None
    log_id: str = getattr(first.event, "log_id", "")
    return log_id


async def test_a_leader_that_slept_over_the_end_of_a_chapter_is_refused(
    real: Cell, nats_connection: Connection
) -> None:
    """It was about to append on a head of the old chapter; the new one has a head with the same sequence by then."""
    log, others = JetStreamLog(nats_connection), JetStreamLog(nats_connection)
    head = await log.append([LeadershipTaken(at=CLOCK.now(), instance="a", version="")], after=position_of(1, 1))
    await _until_step(others, len(STEPS))
    again = await others.append([LeadershipTaken(at=CLOCK.now(), instance="b", version="")], after=position_of(2, 1))

    assert (head, again) == (position_of(1, 2), position_of(2, 2))
    with pytest.raises(Conflict):
        await log.append([LeadershipTaken(at=CLOCK.now(), instance="a", version="")], after=head)
    assert await log.end() == again


async def test_while_a_chapter_is_shut_decisions_are_told_and_facts_wait(
    real: Cell, nats_connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decision would be stale by the time it could be written; a fact is true whenever it is."""
    monkeypatch.setattr("events.log.batch.ANSWER_S", 0.2)
    log = JetStreamLog(nats_connection)
    await _until_step(log, 1)
    with pytest.raises(Shut):
        await log.append([LeadershipTaken(at=CLOCK.now(), instance="a", version="")], after=position_of(1, 1))
    with pytest.raises(Shut) as waited:
        await real.submit("j", 1)
    assert waited.value.code == "log_away"  # the gate tries again for longer
    await log.roll(await _chain(log), Roll(log_id=await _log_id(log), at=CLOCK.now()))
    await real.submit("j", 1)


async def test_a_chapter_that_is_full_is_closed(memory: Cell) -> None:
    """By its records or its bytes, by the leader alone."""
    log = memory.gate
    assert isinstance(log, MemoryLog)
    for limits, cause in ((Limits(records=9), RollCause.RECORDS), (Limits(size_bytes=3_000), RollCause.BYTES)):
        closed = len(_closings(memory.records))
        standby = Chapters(log, CLOCK, limits)
        standby.watch(memory.cluster, log.stretch(standby.chain.position))
        assert standby.due(leading=False) is None
        async with leading(log, Chapters(log, CLOCK, limits), cause):
            for n in range(12):
                await memory.submit(f"{cause}{n}", 1)
            await until(lambda: len(_closings(memory.records)) > closed)  # noqa: B023 - awaited here
        assert {event.cause for event in _closings(memory.records)[closed:]} == {cause}


def _closings(records: Sequence[Recorded]) -> list[ChapterClosed]:
    return [r.event for r in records if isinstance(r.event, ChapterClosed)]


async def test_who_asks_is_told_when_the_next_chapter_is_open(memory: Cell) -> None:
    """Two who ask at once are told of one; an ask that nobody can read, of none."""
    log = memory.gate
    assert isinstance(log, MemoryLog)
    chapters = Chapters(log, CLOCK)
    answer = answering_roll(chapters)
    async with leading(log, chapters):
        asked = msgspec.json.encode(RollAsk(by="ops"))
        answers = await asyncio.gather(answer("", asked), answer("", asked), answer("", b"{"))
    first, second, unread = (msgspec.json.decode(data, type=RollAnswer) for data in answers)

    assert first == second
    assert (first.opened, unread.opened) == (position_of(2, 1), START)
    assert unread.message
    assert [event.by for event in _closings(memory.records)] == ["ops"]


class Away:
    """A log that does not answer, and then does."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.answers = False

    async def roll(self, chain: Chain, roll: Roll) -> Rolled:
        """See `Rolling`."""
        if not self.answers:
            raise Unknown("away")
        return await self.log.roll(chain, roll)


async def test_a_roll_that_failed_is_tried_until_it_is_done_and_then_no_more(memory: Cell) -> None:
    """Also where another control plane has done it meanwhile."""
    log = memory.gate
    assert isinstance(log, MemoryLog)
    away = Away(log)
    chapters = Chapters(away, CLOCK)
    chapters.watch(memory.cluster, log.stretch())
    with suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.gather(chapters.asked("ops"), chapters.roll(memory.cluster, RollCause.ASKED))
    assert chapters.due(leading=False)
    await log.roll(chapters.chain, Roll(log_id="memory", at=CLOCK.now()))  # another does it
    chapters.watch(memory.cluster, log.stretch(chapters.chain.position))
    assert chapters.due(leading=True) is None
    chapters.found_shut()
    assert chapters.due(leading=False)
    away.answers = True
    await chapters.roll(memory.cluster, RollCause.ASKED)
    chapters.watch(memory.cluster, log.stretch(chapters.chain.position))
    assert chapters.due(leading=True) is None
    assert chapters.chapter == 3


async def test_the_digest_is_kept(memory: Cell, tmp_path: Path) -> None:
    """A start goes on from where it was saved; from the beginning where it is not of this log, damaged or ahead of it."""
    log, clock = memory.gate, ManualClock()
    assert isinstance(log, MemoryLog)
    for n in range(5):
        await memory.submit(f"j{n}", 1)
    await until(lambda: len(memory.records) == 6)
    kept = Chapters(log, clock, folder=tmp_path)
    kept.watch(memory.cluster, log.stretch())
    assert not (tmp_path / FILE).exists()
    clock.advance(SAVE_EVERY_S)
    kept.watch(memory.cluster, ())
    saved = (tmp_path / FILE).read_bytes()
    await memory.submit("j5", 1)
    end = await log.end()
    whole = extended(Chain(), log.stretch())

    older = msgspec.msgpack.decode(saved, type=Kept)
    wrong = replace(older, chain=replace(older.chain, digest=bytes(32)))  # seen, if anything goes on from it
    put_back = replace(wrong, chain=replace(wrong.chain, at=EPOCH))  # the record there is another
    for data, ends in (
        (saved, end),
        (b"x", end),
        (msgspec.msgpack.encode(replace(wrong, log_id="other")), end),
        (msgspec.msgpack.encode(wrong), position_of(1, 2)),
        (msgspec.msgpack.encode(put_back), end),
    ):
        (tmp_path / FILE).write_bytes(data)
        restored = Chapters(log, clock, folder=tmp_path)
        await restored.restore(log, log_id="memory", to=end, end=ends)
        assert restored.chain == whole
