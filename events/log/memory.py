"""The log in memory, for simulations and laws: what is written goes through the codec, as on a server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import datetime

from events.base import START, Event, Position, Recorded, Stretch, chapter_of, position_of, sequence_of, spelled
from events.chain import Chain, extended
from events.codec import EPOCH, Codec, Stamp
from events.log.port import QUIET_S, STRETCH_MAX, Broken, Conflict, Roll, Rolled
from events.log.writing import Pen, Writing
from events.subjects import Subjects


class MemoryLog:
    """A log that ends with the process. See `port.Log` and `port.Rolling` for what it promises.

    `clock` says when a record is stored. The same calls give the same log. `stretch` reads it without a loop.
    """

    def __init__(self, cell: str, clock: Callable[[], datetime], *, source: str = "musterbook") -> None:
        self.subjects = Subjects(cell)
        self.codec = Codec()
        self._clock = clock
        self._pen = Pen(self.subjects, self.codec, source)
        self._records: list[Recorded] = []
        self._begins = [0]  # of each chapter: how many records are before it
        self._firsts: dict[str, Position] = {}  # subject -> position of its first record
        self._lasts: dict[str, Position] = {}  # subject -> position of its last record
        self._batches = 0
        self._moved = asyncio.Event()

    def stretch(self, after: Position = START, most: int = STRETCH_MAX) -> Stretch:
        """At most `most` records after a position."""
        start = self._index(after) + 1 if after != START else 0
        if start > len(self._records):
            raise Broken(f"The log ends at {spelled(self._end)}, not at {spelled(after)} or later.", code="log_cut")
        return tuple(self._records[start : start + most])

    def _index(self, position: Position) -> int:
        """Of the record at a position; beyond all where there is none."""
        chapter, sequence = chapter_of(position), sequence_of(position)
        if not 1 <= chapter <= len(self._begins):
            return len(self._records)
        index = self._begins[chapter - 1] + sequence - 1
        within = chapter == len(self._begins) or index < self._begins[chapter]
        return index if within else len(self._records)

    @property
    def _end(self) -> Position:
        return position_of(len(self._begins), len(self._records) - self._begins[-1])

    def write_raw(self, subject: str, payload: bytes) -> Position:
        """The position of bytes put on a subject below `muster.<cell>.ev.`, whatever they are: what no writer does."""
        return self._write([Writing(self.subjects.events_prefix + subject, payload)])

    async def end(self) -> Position:
        """See `port.Reader`."""
        return self._end

    async def follow(self, after: Position, *, since: datetime = EPOCH) -> AsyncIterator[Stretch]:
        """See `port.Reader`."""
        del since  # the times of all records are at hand
        while True:
            moved = self._moved
            stretch = self.stretch(after)
            if not stretch:
                with suppress(TimeoutError):
                    async with asyncio.timeout(QUIET_S):
                        await moved.wait()
                stretch = self.stretch(after)
            after = stretch[-1].position if stretch else after
            yield stretch

    async def read(self, position: Position) -> Recorded | None:
        """See `port.Reader`."""
        index = self._index(position)
        return self._records[index] if sequence_of(position) and index < len(self._records) else None

    async def first(self, subject: str) -> Recorded | None:
        """See `port.Reader`."""
        return await self.read(self._firsts.get(self.subjects.events_prefix + subject, START))

    async def last(self, subject: str) -> Recorded | None:
        """See `port.Reader`."""
        return await self.read(self._lasts.get(self.subjects.events_prefix + subject, START))

    async def append(self, events: Sequence[Event], *, after: Position) -> Position:
        """See `port.Log`."""
        return self._write(self._pen.decided(events, after))

    async def record(self, facts: Sequence[Event]) -> Position:
        """See `port.Log`."""
        return self._write(self._pen.facts(facts, f"f{self._batches}"))

    async def roll(self, chain: Chain, roll: Roll) -> Rolled:
        """See `port.Rolling`."""
        chapter = chapter_of(chain.position) or 1
        if chapter == len(self._begins):
            chain = self._extended(chain)
            self._put(self.subjects.closing(chapter), roll.closing(chain), "closed")
            chain = self._extended(chain)
            self._begins.append(len(self._records))
            self._put(self.subjects.head, roll.opening(chain), "opened")
        return Rolled(self._records[self._begins[chapter] - 1].position, position_of(chapter + 1, 1), 0.0)

    def _put(self, subject: str, event: Event, name: str) -> None:
        stamp = Stamp(f"{self._end:x}-{name}", self._pen.source)
        self._write([Writing(subject, self.codec.encode(event, stamp))])

    def _extended(self, chain: Chain) -> Chain:
        """The chain up to the end of the log."""
        while stretch := self.stretch(chain.position):
            chain = extended(chain, stretch)
        return chain

    def _write(self, writings: list[Writing]) -> Position:
        for writing in writings:
            actual = self._lasts.get(writing.subject, START)
            if writing.expected not in {None, actual}:
                raise Conflict(f"The log has moved on: {writing.subject} is at {spelled(actual)}.", code="log_moved")
        self._batches += 1
        now = self._clock()
        at = max(now, self._records[-1].at) if self._records else now
        for writing in writings:
            subject = self.subjects.short(writing.subject)
            event, identity = self.codec.decode(subject, writing.payload)
            position = Position(self._end + 1)
            self._records.append(Recorded(event, position, at, identity, subject, writing.payload))
            self._firsts.setdefault(writing.subject, position)
            self._lasts[writing.subject] = position
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        return self._records[-1].position
