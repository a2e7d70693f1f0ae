"""The end of the log, read once for all who follow it: `Tail` keeps the newest records and hands them to everyone."""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from datetime import datetime
from typing import Final, cast

from events.base import START, Position, Recorded, Stretch
from events.log.port import Reader, Unknown

KEPT_MAX: Final = 20_000  # records; who is further behind reads the log on its own
QUIET_S: Final = 1.0  # an empty stretch after this long without news
AGAIN_S: Final = 0.2


class Tail:
    """Follows the log from where it ends now, for all who want to know what comes. `run` must be running."""

    def __init__(self, log: Reader, *, kept_max: int = KEPT_MAX) -> None:
        self._log = log
        self._kept_max = kept_max
        self._kept: list[Recorded] = []
        self._floor = START  # the position before the first record that is kept
        self._running = False
        self._moved = asyncio.Event()

    async def run(self) -> None:
        """Never returns. Raises `Broken` when the log is."""
        self._floor = await self._end()
        self._running = True
        async for stretch in self._log.follow(self._floor):
            if stretch:
                self._keep(stretch)

    async def follow(self, after: Position) -> AsyncIterator[Stretch]:
        """Every record after a position, without end; an empty stretch now and then while nothing comes."""
        position = after
        while True:
            if not self._running or position < self._floor:
                async with aclosing(self._follow_alone(position)) as alone:
                    async for stretch in alone:
                        position = stretch[-1].position if stretch else position
                        yield stretch
            elif stretch := self._after(position):
                position = stretch[-1].position
                yield stretch
            else:
                moved = self._moved
                with suppress(TimeoutError):
                    async with asyncio.timeout(QUIET_S):
                        await moved.wait()
                        continue
                yield ()

    def since(self, position: Position) -> datetime | None:
        """When the first record after a position was stored, as far as is kept; None where none is known."""
        index = bisect_right(self._kept, position, key=lambda recorded: recorded.position)
        return self._kept[index].at if index < len(self._kept) else None

    async def _follow_alone(self, position: Position) -> AsyncGenerator[Stretch, None]:
        """What comes after a position, until what is kept goes on from there."""
        following = cast("AsyncGenerator[Stretch, None]", self._log.follow(position))
        async with aclosing(following):
            async for stretch in following:
                position = stretch[-1].position if stretch else position
                yield stretch
                if self._running and position >= self._floor:
                    return

    async def _end(self) -> Position:
        while True:
            try:
                return await self._log.end()
            except Unknown:
                await asyncio.sleep(AGAIN_S)

    def _keep(self, stretch: Stretch) -> None:
        self._kept += stretch
        if len(self._kept) > 2 * self._kept_max:
            cut = len(self._kept) - self._kept_max
            self._floor = self._kept[cut - 1].position
            del self._kept[:cut]
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _after(self, position: Position) -> Stretch:
        return tuple(self._kept[bisect_right(self._kept, position, key=lambda recorded: recorded.position) :])
