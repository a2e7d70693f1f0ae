"""Reading the log: `LogReader` follows it over any way to the server, `JetStreamReader` over nats-py."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from typing import Final

from nats.aio.client import Client

from events.base import Position, Recorded, Stretch, chapter_of, position_of, sequence_of
from events.codec import EPOCH, Codec
from events.log.port import QUIET_S, STRETCH_MAX, Broken, Unknown
from events.log.server import NatsWay, NoAnswer, Raw, Way, record_of, standing_of
from events.log.writing import CHAPTER
from events.subjects import CELL_DEFAULT, Subjects, events_stream

STANDING_EVERY_S: Final = 1.0  # how often a quiet log is asked whether it is still the one that was read
SHORT_MAX: Final = 20  # times in a row that it may seem too short: a leader that is new knows its end a little late
AWAY_S: Final = 0.1  # before asking again a server that did not answer


class LogReader:
    """Reads the log over a way to the server. See `port.Reader` for what it promises."""

    def __init__(self, way: Way, cell: str = CELL_DEFAULT, codec: Codec | None = None) -> None:
        self.subjects = Subjects(cell)
        self.codec = codec or Codec()
        self._way = way
        self._stream = events_stream(CHAPTER)
        self._created = ""  # of the stream, as first seen

    async def end(self) -> Position:
        """See `port.Reader`."""
        try:
            return position_of(CHAPTER, (await standing_of(self._way, self._stream)).last)
        except NoAnswer as error:
            raise Unknown("The log did not say where it ends.", code="log_away") from error

    async def read(self, position: Position) -> Recorded | None:
        """See `port.Reader`."""
        if chapter_of(position) != CHAPTER:
            return None
        return await self._one({"seq": sequence_of(position)})

    async def first(self, subject: str) -> Recorded | None:
        """See `port.Reader`."""
        return await self._one({"seq": 1, "next_by_subj": self.subjects.events_prefix + subject})

    async def last(self, subject: str) -> Recorded | None:
        """See `port.Reader`."""
        return await self._one({"last_by_subj": self.subjects.events_prefix + subject})

    async def _one(self, query: dict[str, object]) -> Recorded | None:
        try:
            raw = await record_of(self._way, self._stream, query)
        except NoAnswer as error:
            raise Unknown("The log did not give a record.", code="log_away") from error
        return None if raw is None else self._recorded(raw, EPOCH)

    async def follow(self, after: Position, *, since: datetime = EPOCH) -> AsyncIterator[Stretch]:
        """See `port.Reader`."""
        sequence, at = sequence_after(after), since
        # One read ahead, in a task of its own: a server that is slow to answer holds up no empty stretch.
        reading = asyncio.create_task(self._read_on(sequence, first=True))
        try:
            while True:
                done, _ = await asyncio.wait({reading}, timeout=QUIET_S)
                if not done:
                    yield ()
                    continue
                raws = reading.result()
                contiguous(sequence, raws)
                sequence += len(raws)
                reading = asyncio.create_task(self._read_on(sequence))
                await asyncio.sleep(0)  # it asks now: the server reads while we decode
                stretch = self._stretch(raws, at)
                at = stretch[-1].at
                yield stretch
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, Broken):
                await reading

    def _stretch(self, raws: list[Raw], at: datetime) -> Stretch:
        """The records, with times that never go back, from `at` on."""
        stretch = []
        for raw in raws:
            recorded = self._recorded(raw, at)
            at = recorded.at
            stretch.append(recorded)
        return tuple(stretch)

    def _recorded(self, raw: Raw, not_before: datetime) -> Recorded:
        subject = raw.subject.removeprefix(self.subjects.events_prefix)
        event, identity = self.codec.decode(subject, raw.payload)
        at = max(datetime.fromisoformat(raw.time), not_before)
        return Recorded(event, position_of(CHAPTER, raw.sequence), at, identity, subject, raw.payload)

    async def _read_on(self, sequence: int, *, first: bool = False) -> list[Raw]:
        """The next records from `sequence` on, when there are any. Raises `Broken`."""
        loop = asyncio.get_running_loop()
        doubtful, check_at = first, loop.time() + STANDING_EVERY_S
        while True:
            moved = self._way.moved  # taken before reading, so that no hint is lost in between
            try:
                if doubtful or loop.time() >= check_at:
                    await self._way.start()
                    await self._assert_standing(sequence)
                    doubtful, check_at = False, loop.time() + STANDING_EVERY_S
                if raws := await self._way.get(self._stream, sequence, STRETCH_MAX):
                    return raws
            except NoAnswer:
                doubtful = True  # another server may have taken the place of the one that went away
                await asyncio.sleep(AWAY_S)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(QUIET_S):
                    await moved.wait()

    async def _assert_standing(self, sequence: int) -> None:
        """Raises `Broken` unless the stream is the one first seen, and not shorter than what was read of it."""
        standing = await standing_of(self._way, self._stream)
        for _ in range(SHORT_MAX):
            if standing.last >= sequence - 1 and standing.created:
                break
            await asyncio.sleep(AWAY_S)
            standing = await standing_of(self._way, self._stream)
        if not standing.created:
            raise Broken(f"There is no stream {self._stream}.", code="log_gone", hint="Found or restore the log first.")
        if standing.last < sequence - 1:
            raise Broken(
                f"The log ends at {standing.last}, but was read up to {sequence - 1}.",
                code="log_cut",
                hint="Its end was lost. Restore it, or rebuild everything that was read from it.",
            )
        self._created = self._created or standing.created
        if standing.created != self._created:
            raise Broken(
                f"The log was created at {standing.created}; the one read so far at {self._created}.",
                code="log_swapped",
                hint="Another stream took the place of the one that was read. Start again, from a log that fits.",
            )


class JetStreamReader(LogReader):
    """Reads the log through nats-py."""

    def __init__(self, nc: Client, cell: str = CELL_DEFAULT, *, codec: Codec | None = None) -> None:
        super().__init__(NatsWay(nc, Subjects(cell).moved), cell, codec)


def sequence_after(position: Position) -> int:
    """The first sequence after a position. Raises `Broken`."""
    if chapter_of(position) > CHAPTER:
        raise Broken(f"There is no chapter {chapter_of(position)}.", code="no_chapter", hint="Is this the right log?")
    return sequence_of(position) + 1


def contiguous(sequence: int, raws: list[Raw]) -> None:
    """Raises `Broken` unless the records follow each other without a gap, from `sequence` on."""
    for expected, raw in enumerate(raws, sequence):
        if raw.sequence != expected:
            raise Broken(
                f"Record {expected} is missing: {raw.sequence} came in its place.",
                code="log_gap",
                hint="Records were deleted or lost. Restore the stream from a backup or another replica.",
            )
