"""Closing one chapter of the log and opening the next: steps that anyone may repeat, or finish for another."""

import asyncio
from typing import Final

from nats.aio.client import Client

from events.base import Event, Position, chapter_of, position_of
from events.chain import Chain, extended
from events.codec import Stamp
from events.log.batch import MOVED, PLAIN, STREAM
from events.log.follow import LogReader, contiguous, linked
from events.log.port import STRETCH_MAX, Roll, Rolled, Unknown
from events.log.server import NatsWay, NoAnswer, Refusal, answered, ask, direct_get, record_of, request, standing_of
from events.log.streams import create
from events.log.writing import Pen
from events.subjects import events_stream

ROLL_S: Final = 10.0  # for all of it; it is finished later where it takes longer
AGAIN_S: Final = 0.01  # before looking again
LAST: Final = "Nats-Expected-Last-Sequence"


class Roller:
    """Goes on in another chapter. Who stops after any step leaves a log that the next caller finishes.

    1. `shut`: the stream listens no longer where events are written, only where its last record goes. Writers are told
       that nobody listens, know that nothing was written, and wait.
    2. `close`: that record is written behind all others. It says how many there are, and proves them.
    3. `create`: the next stream listens where events are written. Nobody writes there, since the log ends before it.
    4. `open`: its first record, on the head, says where the log goes on from. Writers find it and go on.

    Two may do this at once: a step that is done is done, and each record is written by one of them, since it expects
    the end of its stream.
    """

    def __init__(self, nc: Client, reader: LogReader, pen: Pen) -> None:
        self._nc = nc
        self._way = NatsWay(nc)
        self._reader = reader
        self._pen = pen

    async def roll(self, chain: Chain, roll: Roll) -> Rolled:
        """See `port.Rolling`."""
        chapter = chapter_of(chain.position) or 1
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(ROLL_S):
                await self.shut(chapter)
                chain = await self.close(chapter, chain, roll)
                await self.create(chapter + 1)
                opened = await self.open(chain, roll)
        except (NoAnswer, Refusal, TimeoutError) as error:
            raise Unknown(f"Chapter {chapter} is not closed yet: {error}.", code="log_shut") from error
        return Rolled(chain.position, opened, loop.time() - began)

    async def shut(self, chapter: int) -> None:
        """The chapter takes no more events. Raises `NoAnswer`, `Refusal`."""
        stream, closing = events_stream(chapter), self._pen.subjects.closing(chapter)
        while True:  # until its leader says so: in a cluster it hears of the change a little later
            info = await ask(self._way, f"STREAM.INFO.{stream}")
            if info["config"]["subjects"] == [closing]:
                return
            await ask(self._way, f"STREAM.UPDATE.{stream}", info["config"] | {"subjects": [closing]})

    async def close(self, chapter: int, chain: Chain, roll: Roll) -> Chain:
        """The chapter has its last record, and the chain ends there. Raises `NoAnswer`, `Refusal`."""
        stream, closing = events_stream(chapter), self._pen.subjects.closing(chapter)
        while True:
            chain = await self._read(chain, chapter, (await standing_of(self._way, stream)).last)
            if closed := await record_of(self._way, stream, {"last_by_subj": closing}):
                return await self._read(chain, chapter, closed.sequence)
            # What was under way when it was shut may come before it: then it is read, and this written anew.
            expected = {STREAM: stream, LAST: str(chain.records)}
            await self._put(closing, roll.closing(chain), f"{chain.position:x}-closed", expected)

    async def create(self, chapter: int) -> None:
        """The chapter's stream is there, as the one before it was made. Raises `NoAnswer`, `Refusal`."""
        config = (await ask(self._way, f"STREAM.INFO.{events_stream(chapter - 1)}"))["config"]
        subjects = [f"{self._pen.subjects.events_prefix}>"]
        await create(self._way, config | {"name": events_stream(chapter), "subjects": subjects})

    async def open(self, chain: Chain, roll: Roll) -> Position:
        """The position of the first record of the next chapter. Raises `NoAnswer`, `Refusal`, `Broken`."""
        chapter = chapter_of(chain.position) + 1
        stream = events_stream(chapter)
        event = roll.opening(chain)
        while (first := await self._reader.read(position_of(chapter, 1))) is None:
            await self._put(self._pen.subjects.head, event, f"{chain.position:x}-opened", {STREAM: stream, LAST: "0"})
        linked(chain.position, first)
        return first.position

    async def _read(self, chain: Chain, chapter: int, last: int) -> Chain:
        """The chain up to the record with sequence `last` of its chapter."""
        stream = events_stream(chapter)
        while (sequence := chain.records) < last:
            raws = await self._way.get(stream, direct_get(sequence + 1, min(STRETCH_MAX, last - sequence)))
            if raws:
                contiguous(sequence + 1, raws)
                chain = extended(chain, self._reader.stretch(raws, chapter, chain.at))
            else:
                await asyncio.sleep(AGAIN_S)  # a server that does not know yet what its leader has
        return chain

    async def _put(self, subject: str, event: Event, identity: str, expected: dict[str, str]) -> None:
        """The record is there, or another is, or nobody knows: who calls looks."""
        payload = self._pen.codec.encode(event, Stamp(identity, self._pen.source))
        try:
            answered(await request(self._nc, subject, payload, headers=PLAIN | expected))
        except NoAnswer:
            await asyncio.sleep(AGAIN_S)
        except Refusal as refusal:
            if refusal.code != MOVED:
                raise
