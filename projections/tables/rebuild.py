"""`rebuild`: new tables beside the live ones, by the same code, caught up and then put in their place."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Final

import msgspec

from events.base import Position, Stretch
from events.log.port import Reader
from projections.tables import projection_position, schema
from projections.tables.fold import Tables
from projections.tables.projection_position import Reached
from projections.tables.projector import log_id_of, stretches
from runtime.logging import get_logger
from runtime.postgres import Connection, Pool

logger = get_logger(__name__)

PASSES_MAX: Final = 5  # to catch up with a log that grows meanwhile, before writers have to wait for the rest

OnProgress = Callable[[Position, int], None]  # position reached, records so far


class Rebuilt(msgspec.Struct, frozen=True):
    """What a rebuild did."""

    position: Position  # that the new tables reached when they went live
    records: int


class Building:
    """Tables in a schema that nobody reads yet."""

    def __init__(self, reader: Reader, schema_name: str, on_progress: OnProgress | None = None) -> None:
        self._reader = reader
        self._tables = Tables(schema_name)
        self._on_progress = on_progress
        self.reached = Reached()
        self.records = 0

    async def near(self, conn: Connection, goal: Callable[[], Awaitable[Position]]) -> None:
        """The tables reach the goal, which may move meanwhile, or nearly so."""
        for _ in range(PASSES_MAX):
            until = await goal()
            if self.reached.position >= until:
                return
            await self.catch_up(conn, until)

    async def catch_up(self, conn: Connection, until: Position) -> None:
        """The tables reach exactly `until`, a position in the log that is not behind them."""
        if self.reached.position >= until:
            return
        async with aclosing(stretches(self._reader, self.reached)) as following:
            async for stretch in following:
                if await self._take(conn, tuple(r for r in stretch if r.position <= until)) >= until:
                    return

    async def _take(self, conn: Connection, stretch: Stretch) -> Position:
        if stretch:
            taken = await self._tables.take(conn, stretch, after=self.reached.position)
            assert taken, "nobody else writes here"
            self.reached = await projection_position.read(conn)
            self.records += len(stretch)
            if self._on_progress is not None:
                self._on_progress(self.reached.position, self.records)
        return self.reached.position


async def rebuild(reader: Reader, pool: Pool, *, on_progress: OnProgress | None = None) -> Rebuilt:
    """The live tables are new ones, made from the log alone. Readers and projectors go on meanwhile, and after.

    A projector waits only for the last records and the swap. Its next transaction finds the new tables by the same
    name and goes on from their position, which is not before that of the old ones.
    """
    async with pool.acquire() as conn, schema.alone(conn):
        for leftover in (schema.FRESH, schema.OLD):
            await schema.drop(conn, leftover)
        await schema.create(conn, schema.FRESH)
        await schema.enter(conn, schema.FRESH)
        building = Building(reader, schema.FRESH, on_progress)
        await building.near(conn, reader.end)
        async with schema.held_still(conn, schema.LIVE):
            await building.catch_up(conn, await _goal(reader, conn, building))
            await schema.swap(conn)
        await schema.drop(conn, schema.OLD)  # waits for those who still read it
        logger.info("tables_rebuilt", position=building.reached.position, records=building.records)
        return Rebuilt(building.reached.position, building.records)


async def _goal(reader: Reader, conn: Connection, building: Building) -> Position:
    """How far the new tables must reach so that readers see nothing go back: as far as the old ones, if of this log."""
    live = await projection_position.shown(conn)
    if live.log_id != await log_id_of(reader):
        return building.reached.position
    return min(live.position, await reader.end())
