"""What every log answers across its chapters: positions go on, keys stay taken, documents and heads keep their order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise

import pytest

from events.base import START, Event, Position, StandingDocument, Stretch, chapter_of, position_of, sequence_of
from events.chain import Chain, extended, follows
from events.chapter import ChapterClosed, ChapterOpened, RollCause
from events.job import JobSubmitted
from events.log.port import Conflict, Roll
from tests.events.log.rigs import (
    NOW,
    Rig,
    cancel,
    decided,
    following,
    grant,
    policy,
    queues,
    read_to,
    started,
    submitted,
    taken,
)

FIRST = position_of(1, 1)


async def test_a_chapter_is_closed_and_the_next_goes_on(rig: Rig) -> None:
    """The one ends with what it held, the other begins with where it goes on from; readers see one log."""
    end = await rig.log.record([submitted("j1"), started("j1-1")])
    rolled = await rig.roll(by="ops", cause=RollCause.RECORDS)
    after = await rig.log.record([started("j2-1")])

    records = await read_to(rig.reader, after)
    *_, closing, opening, last = records
    assert (rolled.closed, rolled.opened, after) == (end + 1, position_of(2, 1), position_of(2, 2))
    assert [r.position for r in (closing, opening, last)] == [rolled.closed, rolled.opened, after]
    assert [r.subject for r in (closing, opening)] == ["chapter.1", "head"]
    assert [follows(a.position, b) for a, b in pairwise(records)] == [True] * (len(records) - 1)
    assert [r.at for r in records] == sorted(r.at for r in records)
    before, whole = extended(Chain(), tuple(records[:-3])), extended(Chain(), tuple(records[:-2]))
    assert closing.event == ChapterClosed(
        at=NOW,
        by="ops",
        chapter=1,
        log_id="x",
        records=sequence_of(end),
        size_bytes=sum(len(r.document) for r in records[:-3]),
        digest=before.digest.hex(),
        cause=RollCause.RECORDS,
    )
    assert opening.event == ChapterOpened(
        at=NOW, by="ops", chapter=2, log_id="x", previous=rolled.closed, digest=whole.digest.hex()
    )
    assert await rig.reader.end() == after


async def test_following_goes_from_chapter_to_chapter(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, from any position, whether the next was there when reading began or opens meanwhile; empty ones too."""
    monkeypatch.setattr("events.log.follow.STANDING_EVERY_S", 60.0)
    async with asyncio.timeout(20), aclosing(following(rig.reader, FIRST)) as stretches:
        await rig.log.record([started("j1-1")])
        await rig.roll()
        await rig.roll()
        end = await rig.log.record([started("j2-1")])
        seen = [r async for stretch in _until(stretches, end) for r in stretch]
    records = await read_to(rig.reader, end)

    assert [chapter_of(r.position) for r in records] == [1, 1, 1, 2, 2, 3, 3]
    assert seen == records[1:]
    for n, known in enumerate(records[:-1], 1):
        assert await read_to(rig.reader, end, after=known.position) == records[n:]
        assert await rig.reader.read(known.position) == known
    assert await rig.reader.read(Position(records[2].position + 1)) is None


async def _until(stretches: AsyncIterator[Stretch], end: Position) -> AsyncIterator[Stretch]:
    async for stretch in stretches:
        yield stretch
        if stretch and stretch[-1].position >= end:
            return


async def test_a_key_is_taken_once_in_all_chapters(rig: Rig) -> None:
    """Whichever chapter it was taken in; of a batch with one that was, nothing is written. New ones are taken as ever."""
    firsts = {"j1": await rig.log.record([submitted("j1")]), "a1": await rig.log.record([grant("a1")])}
    await rig.roll()
    firsts["j2"] = await rig.log.record([submitted("j2")])
    await rig.roll()
    end = await rig.log.record([cancel("j1"), submitted("j3")])

    for facts in (
        [submitted("j1")],
        [grant("a1")],
        [submitted("j2")],
        [started("j9-1"), submitted("j1")],
        [submitted("j3")],
    ):
        with pytest.raises(Conflict):
            await rig.log.record(facts)

    assert await rig.log.end() == end
    for key, subject in (("j1", "intake.red.j1"), ("j2", "intake.red.j2"), ("a1", "teller.red.a1")):
        first = await rig.reader.first(subject)
        assert first is not None
        assert first.position == firsts[key]
    last = await rig.reader.last("intake.red.j1")
    assert last is not None
    assert last.event == cancel("j1")
    assert await rig.reader.first("intake.red.j9") is None
    assert await rig.log.record([submitted("j4"), grant("a2")]) == end + 2


async def test_a_document_replaces_the_last_one_of_any_chapter(rig: Rig) -> None:
    """Over the one that was seen, though a chapter was closed since; and over none where there never was one."""
    first = await rig.log.record([policy(START)])
    await rig.roll()
    for over in (START, Position(first + 1), FIRST, position_of(2, 1), position_of(9, 1)):
        with pytest.raises(Conflict):
            await rig.log.record([policy(over)])
    second = await rig.log.record([started("j1-1"), policy(first), queues(START)]) - 1
    for over in (START, first, position_of(2, sequence_of(first))):
        with pytest.raises(Conflict):
            await rig.log.record([policy(over)])
    await rig.roll()
    await rig.roll()
    third = await rig.log.record([policy(Position(second))])
    last = await rig.reader.last("queues")

    assert chapter_of(third) == 4
    assert last is not None
    assert last.position == second + 1
    assert isinstance(last.event, StandingDocument)


async def test_an_append_on_a_head_of_another_chapter_is_refused(rig: Rig) -> None:
    """Also where a head of the new chapter has the same sequence; the opening is a head, and one can be decided on it."""
    head = await rig.log.append([taken("old")], after=FIRST)
    rolled = await rig.roll()
    second = await rig.log.append([taken("new")], after=rolled.opened)

    assert sequence_of(head) == sequence_of(second)
    for after in (FIRST, head, rolled.opened, START, position_of(3, 1)):
        with pytest.raises(Conflict):
            await rig.log.append(decided("j1"), after=after)
    assert await rig.log.append(decided("j1"), after=second) == second + 2


async def test_of_many_who_roll_at_once_one_does(rig: Rig) -> None:
    """And all are told the same; who asks again for a chapter that is closed is told what became of it."""
    await rig.log.record([submitted("j1")])
    chain = await rig.chain()
    rolls = await asyncio.gather(*(rig.rolling.roll(chain, Roll(log_id="x", at=NOW)) for _ in range(4)))
    late = await rig.rolling.roll(chain, Roll(log_id="x", at=NOW))
    records = tuple(r for r in await read_to(rig.reader, late.closed) if r.position <= late.closed)
    whole = await rig.rolling.roll(extended(Chain(), records), Roll(log_id="x", at=NOW))

    assert {(r.closed, r.opened) for r in (*rolls, late, whole)} == {(late.closed, position_of(2, 1))}
    assert await rig.reader.end() == position_of(2, 1)


async def test_facts_go_on_while_chapters_are_closed(rig: Rig) -> None:
    """Nothing is refused, lost or doubled; of many who submit one job again and again one does."""
    facts: list[list[Event]] = [[submitted("same"), started(f"s{n}-1")] for n in range(6)]
    facts += [[started(f"b{n}-{k}") for k in range(1 + n % 3)] for n in range(60)]

    async def write(batch: list[Event], after_s: float) -> Position:
        await asyncio.sleep(after_s)
        return await rig.log.record(batch)

    async with asyncio.TaskGroup() as group:
        writes = asyncio.gather(*(write(b, n * 0.004) for n, b in enumerate(facts)), return_exceptions=True)
        group.create_task(_rolls(rig, 3))
        outcomes = await writes
    records = await read_to(rig.reader, await rig.reader.end())

    assert [type(o).__name__ for o in outcomes[6:]] == ["int"] * 60
    assert sorted(type(o).__name__ for o in outcomes[:6]) == ["Conflict"] * 5 + ["int"]
    by_position = {r.position: r.event for r in records}
    for batch, end in zip(facts, outcomes, strict=True):
        if isinstance(end, int):
            assert [by_position[Position(end - len(batch) + 1 + k)] for k in range(len(batch))] == batch
    assert len(records) == 1 + 2 * 3 + 2 + sum(map(len, facts[6:]))
    assert sum(isinstance(r.event, JobSubmitted) for r in records) == 1


async def _rolls(rig: Rig, times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0.03)
        await rig.roll()
