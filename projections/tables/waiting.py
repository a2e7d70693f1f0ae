"""`Shown`: what position the tables show to readers, and waiting until they show one: read your own write."""

import asyncio
from contextlib import suppress
from typing import Final

import asyncpg

from events.base import START, Position
from projections.tables import projection_position
from runtime.postgres import Pool

POLL_S: Final = 0.01
ASK_WITHIN_S: Final = 2.0
AWAY: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)


class Shown:
    """The position that readers see. All who wait in one process share one question to the server every `POLL_S`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._position = START
        self._asking = False
        self._answered = asyncio.Event()

    async def position(self) -> Position:
        """The position that readers see now."""
        self._position = (await projection_position.shown(self._pool)).position
        return self._position

    async def wait_for(self, position: Position, timeout_s: float) -> Position:
        """The position that readers see, once it is at least `position`; the last one known when time is up.

        A server that is away is waited for.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._position < position:
                    if self._asking:
                        await self._answered.wait()
                    else:
                        await self._ask()
        return self._position

    async def _ask(self) -> None:
        """One has asked for all; if it is cancelled, another one of those who wait goes on."""
        self._asking = True
        try:
            with suppress(*AWAY):
                async with asyncio.timeout(ASK_WITHIN_S):
                    await self.position()
            await asyncio.sleep(POLL_S if self._position else POLL_S * 10)
        finally:
            self._asking = False
            self._answered.set()
            self._answered = asyncio.Event()
