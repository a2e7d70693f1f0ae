"""Positions across chapters: what comes before one, how many records lie between two, and where each chapter ends."""

from datetime import datetime

from events.base import START, Position, chapter_of, position_of, sequence_of
from events.chapter import ChapterOpened
from events.log.port import Broken, Reader


async def before(reader: Reader, position: Position) -> Position:
    """The position before one; `START` before the first. Raises `Unknown`."""
    chapter, sequence = chapter_of(position), sequence_of(position)
    if sequence > 1:
        return position_of(chapter, sequence - 1)
    return (await _opening(reader, chapter)).previous if chapter > 1 else START


async def distance(reader: Reader, after: Position, to: Position) -> int:
    """How many records lie behind `after`, up to `to`; less than 0 where it lies before. Raises `Unknown`."""
    if to < after:
        return -await distance(reader, to, after)
    chapter, records = chapter_of(to), sequence_of(to)
    while chapter > max(chapter_of(after), 1):
        previous = (await _opening(reader, chapter)).previous
        chapter, records = chapter - 1, records + sequence_of(previous)
    return records - sequence_of(after)


async def chapter_ends(reader: Reader, end: Position) -> list[Position]:
    """The last position of each chapter, of a log that ends at `end`. Raises `Unknown`."""
    ends = [end]
    while (chapter := chapter_of(ends[-1])) > 1:
        ends.append((await _opening(reader, chapter)).previous)
    return ends[::-1]


async def holds(reader: Reader, position: Position, at: datetime | None) -> bool:
    """Whether the log has what was read of it up to a position, at which time was `at`. Raises `Unknown`.

    One that was put back from a copy, and went on from there, has another record there, stored later.
    """
    record = await reader.read(position)
    return record is not None and at is not None and record.at <= at


async def _opening(reader: Reader, chapter: int) -> ChapterOpened:
    first = await reader.read(position_of(chapter, 1))
    if first is None or not isinstance(first.event, ChapterOpened):
        raise Broken(f"Chapter {chapter} does not begin with its opening.", code="log_unlinked")
    return first.event
