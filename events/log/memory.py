"""The log in memory, for simulations and laws: what is written goes through the codec, as on a server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import datetime

from events.base import START, Event, Position, Recorded, Stretch, position_of, sequence_of
from events.codec import EPOCH, Codec
from events.log.follow import sequence_after
from events.log.port import QUIET_S, STRETCH_MAX, Broken, Conflict
from events.log.writing import CHAPTER, Pen, Writing
from events.subjects import Subjects


class MemoryLog:
    """A log that ends with the process. See `port.Log` for what it promises; `clock` says when a record is stored.

    The same calls give the same log. `stretch` reads it without a loop.
    """

    def __init__(self, cell: str, clock: Callable[[], datetime], *, source: str = "musterbook") -> None:
        self.subjects = Subjects(cell)
        self.codec = Codec()
        self._clock = clock
        self._pen = Pen(self.subjects, self.codec, source)
        self._records: list[Recorded] = []
        self._firsts: dict[str, int] = {}  # subject -> sequence of its first record
        self._lasts: dict[str, int] = {}  # subject -> sequence of its last record
        self._batches = 0
        self._moved = asyncio.Event()

    def stretch(self, after: Position = START, most: int = STRETCH_MAX) -> Stretch:
        """At most `most` records after a position."""
        start = sequence_after(after) - 1
        if start > len(self._records):
            raise Broken(f"The log ends at {len(self._records)}, not at {start} or later.", code="log_cut")
        return tuple(self._records[start : start + most])

    def write_raw(self, subject: str, payload: bytes) -> Position:
        """The position of bytes put on a subject below `muster.<cell>.ev.`, whatever they are: what no writer does."""
        return self._write([Writing(self.subjects.events_prefix + subject, payload)])

    async def end(self) -> Position:
        """See `port.Reader`."""
        return position_of(CHAPTER, len(self._records))

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
        sequence = sequence_of(position)
        known = position_of(CHAPTER, 1) <= position <= position_of(CHAPTER, len(self._records))
        return self._records[sequence - 1] if known else None

    async def first(self, subject: str) -> Recorded | None:
        """See `port.Reader`."""
        sequence = self._firsts.get(self.subjects.events_prefix + subject)
        return self._records[sequence - 1] if sequence else None

    async def last(self, subject: str) -> Recorded | None:
        """See `port.Reader`."""
        sequence = self._lasts.get(self.subjects.events_prefix + subject)
        return self._records[sequence - 1] if sequence else None

    async def append(self, events: Sequence[Event], *, after: Position) -> Position:
        """See `port.Log`."""
        return self._write(self._pen.decided(events, after))

    async def record(self, facts: Sequence[Event]) -> Position:
        """See `port.Log`."""
        return self._write(self._pen.facts(facts, f"f{self._batches}"))

    def _write(self, writings: list[Writing]) -> Position:
        for writing in writings:
            actual = self._lasts.get(writing.subject, 0)
            if writing.expected not in {None, actual}:
                raise Conflict(f"The log has moved on: {writing.subject} is at {actual}.", code="log_moved")
        self._batches += 1
        now = self._clock()
        at = max(now, self._records[-1].at) if self._records else now
        for writing in writings:
            subject = writing.subject.removeprefix(self.subjects.events_prefix)
            event, identity = self.codec.decode(subject, writing.payload)
            sequence = len(self._records) + 1
            position = position_of(CHAPTER, sequence)
            self._records.append(Recorded(event, position, at, identity, subject, writing.payload))
            self._firsts.setdefault(writing.subject, sequence)
            self._lasts[writing.subject] = sequence
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        return self._records[-1].position
