"""The auditor of chapters: a log of several is proved, and whatever is changed, left out or put in between is found."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Final

import pytest
from msgspec.structs import replace

from events.base import START, Event, Position, Recorded, chapter_of, position_of
from events.chain import Chain, extended
from events.chapter import ChapterClosed, ChapterOpened
from events.head import LogFounded
from events.log.memory import MemoryLog
from events.log.port import Roll
from projections.cluster.audit.audit import audit
from tests.events.log.rigs import NOW, cancel, started, submitted

Records = list[Recorded]
CLOSED: Final = 3  # where the first chapter has its last record
OPENED: Final = 4


async def written() -> Records:
    """A log of three chapters."""
    ticks = count()
    log = MemoryLog("main", lambda: NOW + timedelta(milliseconds=next(ticks)))
    await log.append([LogFounded(at=NOW, log_id="x", cell="main")], after=START)
    chain = Chain()
    for n in range(3):
        await log.record([submitted(f"j{n}"), cancel(f"j{n}")])
        chain = extended(chain, log.stretch(chain.position))
        if n < 2:
            await log.roll(chain, Roll(log_id="x", at=NOW))
    return list(log.stretch())


async def test_chapters_that_are_as_they_were_written_are_proved() -> None:
    """Every record of every chapter is in the digest that the next chapter begins with."""
    records = await written()

    assert [type(r.event) for r in records[CLOSED : OPENED + 1]] == [ChapterClosed, ChapterOpened]
    assert audit(records) == []
    for closed in (r.event for r in records if isinstance(r.event, ChapterClosed)):
        held = [r for r in records if chapter_of(r.position) == closed.chapter][:-1]
        assert (closed.records, closed.size_bytes) == (len(held), sum(len(r.document) for r in held))


def changed(number: int, **fields: object) -> Callable[[Records], None]:
    """One record is another."""

    def change(records: Records) -> None:
        records[number] = replace(records[number], **fields)

    return change


def said(number: int, **fields: object) -> Callable[[Records], None]:
    """One record says something else."""

    def change(records: Records) -> None:
        event: Event = replace(records[number].event, **fields)
        records[number] = replace(records[number], event=event)

    return change


def _unclosed(records: Records) -> None:
    del records[CLOSED]


def _unopened(records: Records) -> None:
    records[OPENED] = replace(records[OPENED], event=started("j1-1"))


def _beyond(records: Records) -> None:
    records.insert(OPENED, Recorded(started("late-1"), Position(records[CLOSED].position + 1), records[CLOSED].at))


def _without_a_chapter(records: Records) -> None:
    del records[OPENED : OPENED + 4]


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (changed(1, document=b"{}"), ["chapters", "digest", "digest", "digest", "digest"]),
        (changed(1, at=NOW), ["digest"] * 4),
        (changed(1, subject="node.n1"), ["digest"] * 4),
        (changed(6, subject="node.n1"), ["digest"] * 2),
        (said(CLOSED, digest="0" * 64), ["digest"]),
        (said(CLOSED, records=7), ["chapters"]),
        (said(CLOSED, size_bytes=7), ["chapters"]),
        (said(OPENED, previous=position_of(1, 2)), ["chapters"]),
        (said(OPENED, digest="0" * 64), ["digest"]),
        (_unclosed, ["chapters", "chapters", "digest", "digest", "digest"]),
        (_unopened, ["chapters"]),
        (_beyond, ["chapters", "chapters", "chapters", "digest", "digest", "digest"]),
        (_without_a_chapter, ["contiguous", "chapters", "digest"]),
    ],
)
async def test_what_was_changed_is_found(change: Callable[[Records], None], broken: list[str]) -> None:
    """Where it was, and in the digest of every chapter from there on."""
    records = await written()
    change(records)

    assert [finding.law for finding in audit(records)] == broken
