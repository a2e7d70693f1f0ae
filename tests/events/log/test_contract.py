"""What every log answers, whether in memory, on one server or on three, and whichever way it is read."""

import asyncio
from contextlib import aclosing

import pytest

from events.base import START, Event, Position, StandingDocument, Unreadable, position_of, sequence_of
from events.codec import Codec, Stamp
from events.head import LogFounded
from events.job import JobSubmitted
from events.log.port import BATCH_MAX, QUIET_S, STRETCH_MAX, Broken, Conflict
from tests.events.log.rigs import (
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


async def test_a_log_begins_with_its_founding(rig: Rig) -> None:
    """Whoever reads from the start meets the log's id first."""
    [recorded] = await read_to(rig.reader, FIRST)

    assert isinstance(recorded.event, LogFounded)
    assert (recorded.position, recorded.subject) == (FIRST, "head")
    assert await rig.log.end() == FIRST


async def test_an_append_is_read_back_whole_and_in_order(rig: Rig) -> None:
    """What was decided together lies together, each event as it was written."""
    events = decided("j1", "j2", "j3")
    end = await rig.log.append(events, after=FIRST)

    records = await read_to(rig.reader, end, after=FIRST)

    assert [r.event for r in records] == events
    assert [sequence_of(r.position) for r in records] == [2, 3, 4, 5]
    assert end == records[-1].position
    assert [r.id for r in records] == [f"{FIRST:x}-{n}" for n in range(4)]
    assert records == sorted(records, key=lambda r: (r.position, r.at))


async def test_an_append_on_a_head_that_has_moved_is_refused_whole(rig: Rig) -> None:
    """Another leader's record stands between: nothing of ours is written."""
    head = await rig.log.append([taken("other")], after=FIRST)

    for events in ([taken("ours")], decided("j1", "j2")):
        with pytest.raises(Conflict):
            await rig.log.append(events, after=FIRST)

    assert await rig.log.end() == head
    assert await rig.log.append(decided("j1"), after=head) == head + 2


async def test_facts_do_not_move_the_head(rig: Rig) -> None:
    """Facts land between a decision and its commit, and the decision goes through all the same."""
    await rig.log.record([started("j1-1")])
    head = await rig.log.append(decided("j1"), after=FIRST) - 1
    await rig.log.record([cancel("j1"), started("j2-1")])
    end = await rig.log.append(decided("j2"), after=Position(head))

    records = await read_to(rig.reader, end)

    assert [r.subject for r in records[1:]] == [
        "node.node-1", "head", "job.red.j1", "intake.red.j1", "node.node-1", "head", "job.red.j2",
    ]  # fmt: skip
    assert len({r.id for r in records}) == len(records)


async def test_a_job_is_submitted_once(rig: Rig) -> None:
    """A key is taken for ever: of a batch with a second submission nothing is written, nor of one that comes late."""
    end = await rig.log.record([submitted("j1"), submitted("j2")])

    for facts in ([submitted("j1")], [cancel("j3"), submitted("j2"), submitted("j4")]):
        with pytest.raises(Conflict):
            await rig.log.record(facts)
    for late in ([cancel("j5"), submitted("j5")], [submitted("j5"), submitted("j5")]):
        with pytest.raises(Conflict):
            await rig.log.record(late)

    assert await rig.log.end() == end
    assert await rig.log.record([submitted("j3"), cancel("j3")]) == end + 2


async def test_a_key_of_an_account_is_taken_once(rig: Rig) -> None:
    """As a job's: nothing of a batch is written in which one is used again."""
    end = await rig.log.record([grant("a1"), submitted("j1"), grant("a2")])

    for facts in ([grant("a1")], [submitted("j2"), grant("a2")], [grant("a3"), grant("a3")]):
        with pytest.raises(Conflict):
            await rig.log.record(facts)

    assert await rig.log.end() == end
    assert await rig.log.record([grant("a3"), submitted("j2")]) == end + 2


async def test_of_many_who_submit_one_job_one_does(rig: Rig) -> None:
    """Also when they do at the same time."""
    facts = [[started(f"j{n}-1"), submitted("j1")] for n in range(8)]
    outcomes = await asyncio.gather(*map(rig.log.record, facts), return_exceptions=True)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Conflict"] * 7 + ["int"]
    records = await read_to(rig.reader, await rig.log.end())
    assert len(records) == 3
    assert sum(isinstance(r.event, JobSubmitted) for r in records) == 1


async def test_a_document_is_written_over_the_one_that_was_seen(rig: Rig) -> None:
    """And over no other: not over a later one, an earlier one, or none where there is one; also within a batch."""
    for over in (FIRST, Position(FIRST + 7)):
        with pytest.raises(Conflict):
            await rig.log.record([policy(over)])
    first = await rig.log.record([policy(START)])
    for facts in (
        [policy(START)],
        [policy(FIRST)],
        [started("j1-1"), policy(Position(first + 1)), submitted("j1")],
        [policy(first), policy(first)],
        [policy(None), policy(first)],
    ):
        with pytest.raises(Conflict):
            await rig.log.record(facts)
    assert await rig.log.end() == first

    second = await rig.log.record([started("j1-1"), policy(first), queues(START), submitted("j1")])
    anyway = await rig.log.record([policy(None)])

    assert (second, anyway) == (first + 4, first + 5)
    records = await read_to(rig.reader, anyway, after=first)
    assert [r.event.replaces for r in records if isinstance(r.event, StandingDocument)] == [first, START, None]
    assert await rig.log.record([policy(anyway), queues(Position(second - 1))]) == anyway + 2


async def test_of_many_who_set_one_document_one_does(rig: Rig) -> None:
    """Of the others nothing is written, the facts beside theirs included."""
    facts = [[started(f"j{n}-1"), policy(START)] for n in range(8)]
    outcomes = await asyncio.gather(*map(rig.log.record, facts), return_exceptions=True)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Conflict"] * 7 + ["int"]
    assert await rig.log.end() == FIRST + 2


async def test_calls_may_overlap(rig: Rig) -> None:
    """Facts of several tasks keep their own order, consecutive, and none is lost or doubled."""
    batches = [[started(f"b{n}-{k}") for k in range(1 + n % 5)] for n in range(40)]
    ends = await asyncio.gather(*map(rig.log.record, batches))

    records = {r.position: r.event for r in await read_to(rig.reader, max(ends))}

    assert len(records) == 1 + sum(map(len, batches))
    for batch, end in zip(batches, ends, strict=True):
        assert [records[Position(end - len(batch) + 1 + k)] for k in range(len(batch))] == batch


async def test_quiet_gives_empty_stretches(rig: Rig) -> None:
    """A loop that only follows comes round all the time, and what is written then still comes."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(20), aclosing(following(rig.reader, FIRST)) as stretches:
        began = loop.time()
        assert [await anext(stretches) for _ in range(3)] == [(), (), ()]
        assert loop.time() - began > QUIET_S
        end = await rig.log.record([started("j1-1")])
        while not (stretch := await anext(stretches)):
            pass
        assert stretch[-1].position == end


async def test_following_starts_after_any_position(rig: Rig) -> None:
    """Who has read so far reads on from there, with times that go on from what it knew."""
    end = await rig.log.record([started(f"j{n}-1") for n in range(10)])
    records = await read_to(rig.reader, end)

    for known in records[:-1]:
        assert await read_to(rig.reader, end, after=known.position) == records[sequence_of(known.position) :]


async def test_a_reader_ahead_of_the_log_is_told(rig: Rig) -> None:
    """What it read is not in this log: going on would be wrong."""
    with pytest.raises(Broken):
        await read_to(rig.reader, position_of(1, 9), after=position_of(1, 7))
    with pytest.raises(Broken):
        await read_to(rig.reader, position_of(2, 2), after=position_of(2, 1))


async def test_one_record_can_be_read(rig: Rig) -> None:
    """By position, or the last of a subject; None where there is none."""
    end = await rig.log.record([started("j1-1"), submitted("j1"), started("j2-1")])

    middle = await rig.reader.read(Position(end - 1))
    last = await rig.reader.last("node.node-1")

    assert middle is not None
    assert (middle.event, middle.position) == (submitted("j1"), end - 1)
    assert last is not None
    assert (last.event, last.position) == (started("j2-1"), end)
    for nowhere in (START, Position(end + 1), position_of(2, 1)):
        assert await rig.reader.read(nowhere) is None
    assert await rig.reader.last("node.node-2") is None


async def test_a_batch_may_be_as_large_as_promised(rig: Rig) -> None:
    """`BATCH_MAX` events at once, read back in stretches that are bounded; one more is a bug of the caller."""
    facts: list[Event] = [cancel(f"j{n}") for n in range(BATCH_MAX)]
    end = await rig.log.record(facts)

    assert end == position_of(1, BATCH_MAX + 1)
    seen: list[Event] = []
    async with asyncio.timeout(60), aclosing(following(rig.reader, FIRST)) as stretches:
        while len(seen) < BATCH_MAX:
            stretch = await anext(stretches)
            assert len(stretch) <= STRETCH_MAX
            seen += [r.event for r in stretch]
    assert seen == facts
    with pytest.raises(AssertionError, match="20001 events"):
        await rig.log.record([*facts, cancel("more")])


async def test_what_cannot_be_read_is_followed_past(rig: Rig) -> None:
    """A record of another version, of no version, or on another's subject is said to be so, and reading goes on."""
    codec = Codec()
    strange = [
        ("intake.red.j1", b'{"specversion":"1.0","type":"musterbook.job.cloned.v9","id":"x","data":{}}'),
        ("node.node-1", b"\x00\xff not even text"),
        ("job.red.j9", codec.encode(cancel("j1"), Stamp("a"))),
        ("intake.red.j2", codec.encode(cancel("j1"), Stamp("b"))),
        ("nobody", b""),
    ]
    for subject, payload in strange:
        await rig.put(subject, payload)
    end = await rig.log.record([started("j1-1")])

    records = await read_to(rig.reader, end, after=FIRST)

    assert [r.subject for r in records] == [*(subject for subject, _ in strange), "node.node-1"]
    unreadable = [r.event for r in records if isinstance(r.event, Unreadable)]
    assert len(unreadable) == len(strange)
    assert unreadable[0].named == "musterbook.job.cloned.v9"
    assert records[-1].event == started("j1-1")
    assert await rig.reader.read(records[0].position) is not None


async def test_an_append_says_how_it_must_be(rig: Rig) -> None:
    """What no caller means to write is a bug, found before anything is sent."""
    for events in ([], [cancel("j1")], [taken(), taken()]):
        with pytest.raises(AssertionError):
            await rig.log.append(events, after=FIRST)
    with pytest.raises(AssertionError):
        await rig.log.record([])
    assert await rig.log.end() == FIRST
