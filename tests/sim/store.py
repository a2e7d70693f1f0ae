"""The servers: the log in memory and the desired values, with a faulty way to both. Each step of the log is checked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from random import Random
from typing import Final, NamedTuple, TypeVar

from events.base import START, Event, Position, Recorded, Stretch
from events.codec import EPOCH
from events.log.memory import MemoryLog
from events.log.port import QUIET_S, Unknown
from runtime.fault import Fault
from runtime.last_values import Stored
from tests.sim.clock import SimClock
from tests.sim.loop import VirtualLoop
from tests.sim.network import Network, Silence

T = TypeVar("T")

ANSWER_S: Final = 2.0  # for a read
WRITTEN_S: Final = 4.0  # for a write
STALE_S: Final = 3.0  # how old what a replica gives may be
SMALL: Final = 0.2  # of the stretches are short


class Value(NamedTuple):
    """One that was written."""

    sequence: int
    payload: bytes
    at_s: float


class Store:
    """What the servers hold."""

    def __init__(self, loop: VirtualLoop, network: Network, random: Random) -> None:
        self.loop = loop
        self.network = network
        self.random = random
        self.clock = SimClock(loop)
        self.memory = MemoryLog("main", self.clock.now)
        self.values: dict[str, list[Value]] = {}
        self.writes = 0
        self.moved = asyncio.Event()
        self.read: Callable[[Recorded], None] = lambda _recorded: None  # each record, as it is written
        self.wrote: Callable[[str, bytes], None] = lambda _subject, _payload: None  # each desired value
        self.decides: Callable[[str, Sequence[Event]], None] = lambda _who, _events: None  # what is to be appended
        self.behind_s: dict[str, float] = {}  # of subjects: how far who reads them is behind, at most
        self.sent: Callable[[str, bytes], None] = lambda _subject, _payload: None  # likewise, and those refused
        self._position: Position = START

    def look(self) -> None:
        """What was written since the last look is checked, and its readers know."""
        while stretch := self.memory.stretch(self._position):
            for recorded in stretch:
                self._position = recorded.position
                self.read(recorded)
        moved, self.moved = self.moved, asyncio.Event()
        moved.set()

    def put(self, subject: str, payload: bytes, after: int) -> int | None:
        """A value is written over the one with sequence `after`; None where that is another."""
        self.sent(subject, payload)
        written = self.values.setdefault(subject, [])
        if (written[-1].sequence if written else 0) != after:
            return None
        self.writes += 1
        self.wrote(subject, payload)
        written.append(Value(self.writes, payload, self.loop.time()))
        return self.writes

    def replica(self, subject: str) -> bytes:
        """The value as one of the servers has it: the last, or one that was the last not long ago."""
        written = self.values.get(subject, [])
        if not written:
            return b""
        stale_s = self.behind_s.get(subject, STALE_S if self.network.drawn(self.network.weather.slow) else 0.0)
        fresh_s = self.loop.time() - stale_s
        back = next((value for value in reversed(written) if value.at_s <= fresh_s), None)
        return back.payload if back is not None else b""


class SimLog:
    """The log as one process reaches it. See `events.log.port.Log`."""

    def __init__(self, store: Store, who: str, *, lag_s: float = 0.0) -> None:
        self._store = store
        self._who = who
        self.lag_s = lag_s  # how late it reads what others wrote

    async def end(self) -> Position:
        """See `port.Reader`."""
        return await self._ask(self._store.memory.end)

    async def read(self, position: Position) -> Recorded | None:
        """See `port.Reader`."""
        return await self._ask(lambda: self._store.memory.read(position))

    async def first(self, subject: str) -> Recorded | None:
        """See `port.Reader`."""
        return await self._ask(lambda: self._store.memory.first(subject))

    async def last(self, subject: str) -> Recorded | None:
        """See `port.Reader`."""
        return await self._ask(lambda: self._store.memory.last(subject))

    async def append(self, events: Sequence[Event], *, after: Position) -> Position:
        """See `port.Log`."""
        self._store.decides(self._who, events)
        return await self._write(lambda: self._store.memory.append(events, after=after))

    async def record(self, facts: Sequence[Event]) -> Position:
        """See `port.Log`."""
        return await self._write(lambda: self._store.memory.record(facts))

    async def follow(self, after: Position, *, since: datetime = EPOCH) -> AsyncIterator[Stretch]:
        """See `port.Reader`: in any cuts, as late as `lag_s`, and in empty stretches while the way is cut."""
        del since
        store = self._store
        while True:
            stretch: Stretch = ()
            if store.network.reaches(self._who):
                stretch = self._seen(after)
                if not stretch:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(QUIET_S):
                            await store.moved.wait()
                    await asyncio.sleep(store.random.uniform(0.0002, 0.003))
                    stretch = self._seen(after)
            else:
                await asyncio.sleep(QUIET_S)
            after = stretch[-1].position if stretch else after
            yield stretch

    def _seen(self, after: Position) -> Stretch:
        store = self._store
        most = store.random.randrange(1, 4) if store.random.random() < SMALL else 2_000
        stretch = store.memory.stretch(after, most)
        if self.lag_s:
            until = store.clock.now() - timedelta(seconds=self.lag_s)
            stretch = tuple(recorded for recorded in stretch if recorded.at <= until)
        return stretch

    async def _ask(self, work: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._store.network.call(self._who, work, within_s=ANSWER_S)
        except Silence:
            raise Unknown("The log did not answer.", code="log_away") from None

    async def _write(self, work: Callable[[], Awaitable[Position]]) -> Position:
        store = self._store
        if not store.network.reaches(self._who) and store.random.random() < 0.5:
            await asyncio.sleep(0.01)
            raise Unknown("There is no connection: nothing was sent.", code="log_away")

        async def written() -> Position:
            try:
                return await work()
            finally:
                store.look()

        try:
            return await store.network.call(self._who, written, within_s=WRITTEN_S, once=True)
        except Silence:
            raise Unknown("No answer to a write.", code="log_silent") from None


class SimValues:
    """Last values as one process reaches them. See `runtime.last_values.LastValues`."""

    def __init__(self, store: Store, who: str) -> None:
        self._store = store
        self._who = who

    async def get(self, subject: str) -> Stored:
        """As there."""

        async def read() -> Stored:
            written = self._store.values.get(subject, [])
            return Stored(written[-1].sequence, written[-1].payload) if written else Stored(0, b"")

        return await self._ask(read)

    async def put(self, subject: str, payload: bytes, *, after: int) -> int | None:
        """As there."""

        async def write() -> int | None:
            return self._store.put(subject, payload, after)

        return await self._ask(write)

    async def _ask(self, work: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._store.network.call(self._who, work, within_s=ANSWER_S)
        except Silence:
            raise Fault("no_answer", "The values did not answer.", hint="") from None
