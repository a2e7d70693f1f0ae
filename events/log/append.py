"""Writing the log: `JetStreamLog` appends decisions behind the fence on `head`, and records facts."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

import nats.errors
from nats.aio.client import Client

from events.base import Event, Position, Stretch
from events.chain import Chain
from events.codec import EPOCH
from events.log.batch import CHANCE, Batches, Chance
from events.log.follow import JetStreamReader
from events.log.port import Reader, Roll, Rolled
from events.log.roll import Roller
from events.log.writing import Pen, Writing
from events.subjects import CELL_DEFAULT

HEADERS_MAX_BYTES: Final = 512  # that a record has beside its event


class JetStreamLog(JetStreamReader):
    """Reads and writes the log. See `port.Log` for what it promises. Its calls may overlap.

    `source` says who writes; `reader` follows in its stead.
    """

    def __init__(
        self,
        nc: Client,
        cell: str = CELL_DEFAULT,
        *,
        source: str = "musterbook",
        reader: Reader | None = None,
        chance: Chance = CHANCE,
    ) -> None:
        super().__init__(nc, cell)
        self._nc = nc
        self._pen = Pen(self.subjects, self.codec, source)
        self._reader = reader
        self._name = chance.name
        self._batches = Batches(nc, self.chapters, chance)

    def follow(self, after: Position, *, since: datetime = EPOCH) -> AsyncIterator[Stretch]:
        """See `port.Reader`; by the reader that was given, if any."""
        if self._reader is not None:
            return self._reader.follow(after, since=since)
        return super().follow(after, since=since)

    async def append(self, events: Sequence[Event], *, after: Position) -> Position:
        """See `port.Log`."""
        return await self._write(self._pen.decided(events, after), key=0, patient=False)

    async def record(self, facts: Sequence[Event]) -> Position:
        """See `port.Log`."""
        writings = self._pen.facts(facts, self._name())
        # A submission tells for sure what became of its batch: its subject has one first record, ours or another's.
        key = next((n for n, writing in enumerate(writings) if writing.expected is not None), 0)
        return await self._write(writings, key, patient=True)

    async def roll(self, chain: Chain, roll: Roll) -> Rolled:
        """See `port.Rolling`."""
        rolled = await Roller(self._nc, self, self._pen).roll(chain, roll)
        await self._hint(rolled.opened)
        return rolled

    async def _write(self, writings: list[Writing], key: int, *, patient: bool) -> Position:
        largest = max(len(writing.payload) for writing in writings) + HEADERS_MAX_BYTES
        assert largest <= self._nc.max_payload, f"an event of {largest} bytes; the most is {self._nc.max_payload}"
        position = await self._batches.write(writings, key, patient=patient)
        await self._hint(position)
        return position

    async def _hint(self, position: Position) -> None:
        with suppress(nats.errors.Error, OSError):  # who misses it reads on a little later
            await self._nc.publish(self.subjects.moved, b"%d" % position)
