"""Reading the log: `LogReader` follows it over any way to the server, `JetStreamReader` over nats-py."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import Final, NamedTuple

from nats.aio.client import Client

from events.base import Position, Recorded, Stretch, chapter_of, position_of, sequence_of, spelled
from events.chapter import ChapterOpened
from events.codec import EPOCH, Codec
from events.log.chapters import Chapters
from events.log.port import QUIET_S, STRETCH_MAX, Broken, Unknown
from events.log.server import NatsWay, NoAnswer, Raw, Standing, Way, direct_get, record_of, standing_of
from events.subjects import CELL_DEFAULT, Subjects, events_stream

STANDING_EVERY_S: Final = 1.0  # how often a quiet log is asked whether it is still the one that was read
SHORT_MAX: Final = 20  # times in a row that it may seem too short: a leader that is new knows its end a little late
AWAY_S: Final = 0.1  # before asking again a server that did not answer
OPENING_S: Final = 0.01  # before asking again for a chapter that opens just now


class Place(NamedTuple):
    """Where a reader goes on."""

    chapter: int
    sequence: int  # of the next record

    @property
    def stream(self) -> str:
        """The stream of the chapter."""
        return events_stream(self.chapter)

    @property
    def begins(self) -> bool:
        """Whether it is at the beginning of a chapter that opens after another, which may take its time."""
        return self.sequence == 1 and self.chapter > 1


class LogReader:
    """Reads the log over a way to the server. See `port.Reader` for what it promises."""

    def __init__(self, way: Way, cell: str = CELL_DEFAULT, codec: Codec | None = None) -> None:
        self.subjects = Subjects(cell)
        self.codec = codec or Codec()
        self.chapters = Chapters(way, self.subjects)
        self._way = way
        self._created: dict[int, str] = {}  # of the stream of each chapter, as first seen

    async def end(self) -> Position:
        """See `port.Reader`."""
        try:
            newest = await self.chapters.newest()
        except NoAnswer as error:
            raise Unknown("The log did not say where it ends.", code="log_away") from error
        return position_of(newest.chapter, newest.last)

    async def read(self, position: Position) -> Recorded | None:
        """See `port.Reader`."""
        chapter, query = chapter_of(position), {"seq": sequence_of(position)}
        try:
            if chapter > self.chapters.seen and chapter > (await self.chapters.newest()).chapter:
                return None
            raw = await record_of(self._way, events_stream(chapter), query) if chapter else None
        except NoAnswer as error:
            raise Unknown("The log did not give a record.", code="log_away") from error
        return None if raw is None else self._recorded(raw, chapter, EPOCH)

    async def first(self, subject: str) -> Recorded | None:
        """See `port.Reader`."""
        return await self._found(self.chapters.first, subject)

    async def last(self, subject: str) -> Recorded | None:
        """See `port.Reader`."""
        return await self._found(self.chapters.last, subject)

    async def _found(self, end: Callable[[str], Awaitable[tuple[int, Raw] | None]], subject: str) -> Recorded | None:
        try:
            found = await end(self.subjects.events_prefix + subject)
        except NoAnswer as error:
            raise Unknown("The log did not give a record.", code="log_away") from error
        return None if found is None else self._recorded(found[1], found[0], EPOCH)

    async def follow(self, after: Position, *, since: datetime = EPOCH) -> AsyncIterator[Stretch]:
        """See `port.Reader`."""
        place, at = Place(chapter_of(after) or 1, sequence_of(after) + 1), since
        # One read ahead, in a task of its own: a server that is slow to answer holds up no empty stretch.
        reading = asyncio.create_task(self._read_on(place, first=True))
        try:
            while True:
                done, _ = await asyncio.wait({reading}, timeout=QUIET_S)
                if not done:
                    yield ()
                    continue
                place, raws = reading.result()
                contiguous(place.sequence, raws)
                here, place = place, self._place_after(place, raws)
                reading = asyncio.create_task(self._read_on(place))
                await asyncio.sleep(0)  # it asks now: the server reads while we decode
                stretch = self.stretch(raws, here.chapter, at)
                if here.begins:
                    linked(after, stretch[0])
                after, at = stretch[-1].position, stretch[-1].at
                yield stretch
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, Broken):
                await reading

    def _place_after(self, place: Place, raws: list[Raw]) -> Place:
        if raws[-1].subject == self.subjects.closing(place.chapter):
            return Place(place.chapter + 1, 1)
        return Place(place.chapter, place.sequence + len(raws))

    def stretch(self, raws: list[Raw], chapter: int, at: datetime) -> Stretch:
        """Records of a chapter as stored, with times that never go back, from `at` on."""
        stretch = []
        for raw in raws:
            recorded = self._recorded(raw, chapter, at)
            at = recorded.at
            stretch.append(recorded)
        return tuple(stretch)

    def _recorded(self, raw: Raw, chapter: int, not_before: datetime) -> Recorded:
        subject = self.subjects.short(raw.subject)
        event, identity = self.codec.decode(subject, raw.payload)
        at = max(datetime.fromisoformat(raw.time), not_before)
        return Recorded(event, position_of(chapter, raw.sequence), at, identity, subject, raw.payload)

    async def _read_on(self, place: Place, *, first: bool = False) -> tuple[Place, list[Raw]]:
        """The next records from `place` on, or from where the log goes on after it, when there are any.

        Raises `Broken`.
        """
        loop = asyncio.get_running_loop()
        doubtful, check_at = first, loop.time() + STANDING_EVERY_S
        while True:
            moved = self._way.moved  # taken before reading, so that no hint is lost in between
            try:
                if doubtful or loop.time() >= check_at:
                    await self._way.start()
                    place = await self._standing(place)
                    doubtful, check_at = False, loop.time() + STANDING_EVERY_S
                if raws := await self._way.get(place.stream, direct_get(place.sequence, STRETCH_MAX)):
                    return place, raws
            except NoAnswer:
                doubtful = True  # another server may have taken the place of the one that went away
                await asyncio.sleep(OPENING_S if place.begins else AWAY_S)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(QUIET_S):
                    await moved.wait()

    async def _standing(self, place: Place) -> Place:
        """Where the log goes on: at `place`, or in the next chapter where this one ends before it.

        Raises `Broken` unless the stream is the one first seen, and not shorter than what was read of it.
        """
        standing = await standing_of(self._way, place.stream)
        for _ in range(SHORT_MAX):
            if (standing.last >= place.sequence - 1 and standing.created) or place.begins:
                break
            await asyncio.sleep(AWAY_S)
            standing = await standing_of(self._way, place.stream)
        if not standing.created and place.begins:
            return place
        self._assert_the_same(place, standing)
        if standing.last == place.sequence - 1 and self.subjects.closing(place.chapter) in standing.subjects:
            query = {"last_by_subj": self.subjects.closing(place.chapter)}
            closed = await record_of(self._way, place.stream, query)
            if closed is not None and closed.sequence == standing.last:
                return Place(place.chapter + 1, 1)
        return place

    def _assert_the_same(self, place: Place, standing: Standing) -> None:
        read_to = place.sequence - 1
        if not standing.created:
            raise Broken(f"There is no stream {place.stream}.", code="log_gone", hint="Found or restore the log first.")
        if standing.last < read_to:
            raise Broken(
                f"Chapter {place.chapter} of the log ends at {standing.last}, but was read up to {read_to}.",
                code="log_cut",
                hint="Its end was lost. Restore it, or rebuild everything that was read from it.",
            )
        created = self._created.setdefault(place.chapter, standing.created)
        if standing.created != created:
            raise Broken(
                f"Chapter {place.chapter} was created at {standing.created}; the one read so far at {created}.",
                code="log_swapped",
                hint="Another stream took the place of the one that was read. Start again, from a log that fits.",
            )


class JetStreamReader(LogReader):
    """Reads the log through nats-py."""

    def __init__(self, nc: Client, cell: str = CELL_DEFAULT, *, codec: Codec | None = None) -> None:
        super().__init__(NatsWay(nc, Subjects(cell).moved), cell, codec)


def contiguous(sequence: int, raws: list[Raw]) -> None:
    """Raises `Broken` unless the records follow each other without a gap, from `sequence` on."""
    for expected, raw in enumerate(raws, sequence):
        if raw.sequence != expected:
            raise Broken(
                f"Record {expected} is missing: {raw.sequence} came in its place.",
                code="log_gap",
                hint="Records were deleted or lost. Restore the stream from a backup or another replica.",
            )


def linked(before: Position, first: Recorded) -> None:
    """Raises `Broken` unless the record is the first of a chapter that goes on from the record before."""
    opened = first.event
    if not isinstance(opened, ChapterOpened) or opened.previous != before:
        raise Broken(
            f"Chapter {chapter_of(first.position)} does not go on from {spelled(before)}.",
            code="log_unlinked",
            hint="Its stream is of another log, or was restored from another time than the one before it.",
        )
