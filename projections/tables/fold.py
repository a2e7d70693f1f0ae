"""`Tables`: all tables of one schema, moved on by a stretch of the log at a time, with the position in one transaction."""

from typing import Final

import asyncpg

from events.base import Position, Recorded, Stretch
from events.codec import TYPES
from events.head import LogFounded
from projections.tables import (
    event_index,
    gpu_view,
    job_view,
    node_view,
    projection_position,
    queue_view,
    run_view,
    share_view,
    unreadable,
)
from projections.tables.projection_position import Reached
from projections.tables.schema import WRITE_LOCK_IN_TRANSACTION
from runtime.logging import get_logger
from runtime.postgres import Connection

logger = get_logger(__name__)

Parts = list[list[Recorded]]
# What PostgreSQL, or the way to it, says of a value that no column can hold.
UNFIT: Final = (
    asyncpg.DataError,
    asyncpg.ProgramLimitExceededError,
    asyncpg.IntegrityConstraintViolationError,
    OverflowError,
    ValueError,
)


# The tables that fold, and which of them show an event of each type: most events are for one or two.
FOLDED: Final = (job_view, run_view, share_view, node_view, gpu_view)
SHOWN_IN: Final = {
    cls: tuple(index for index, table in enumerate(FOLDED) if issubclass(cls, table.EVENTS)) for cls in TYPES
}


class Tables:
    """The tables of `schema`. Rows are kept in memory as long as nobody else has moved the tables on."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self.reached = Reached()  # how far the rows kept reach, and the tables when this last looked
        self._gpus = gpu_view.Gpus()
        self._jobs = job_view.rows()
        self._nodes = node_view.rows()
        self._queues = queue_view.rows()
        self._runs = run_view.rows()
        self._shares = share_view.rows()

    async def take(self, conn: Connection, stretch: Stretch, *, after: Position) -> bool:
        """The tables reach the end of the stretch, or did already: what they have is left out, so that twice is once.

        The stretch is all that follows `after`. False: the tables end before it, so nothing was done.
        """
        try:
            return await self._take(conn, stretch, after)
        except UNFIT as error:
            self._forget()
            if len(stretch) == 1:
                return await self._park(conn, stretch[0], error)
        middle = len(stretch) // 2
        return await self.take(conn, stretch[:middle], after=after) and await self.take(
            conn, stretch[middle:], after=stretch[middle - 1].position
        )

    async def _take(self, conn: Connection, stretch: Stretch, after: Position) -> bool:
        try:
            async with conn.transaction():
                stored = await self._lock(conn)
                if stored.position < after:
                    return False
                if stored.position > after:
                    stretch = tuple(recorded for recorded in stretch if recorded.position > stored.position)
                if not stretch:
                    return True
                parts = _parts(stretch)
                await self._load(conn, parts)
                self._fold(parts)
                await self._write(conn, stretch)
                reached = _reached(stored, stretch)
                await projection_position.write(conn, reached)
        except BaseException:
            self._forget()  # what was kept has changes that the tables may not have
            raise
        self.reached = reached
        return True

    async def _lock(self, conn: Connection) -> Reached:
        """How far the tables reach, which nobody else changes before this transaction ends.

        The lock is a statement of its own: the one after it sees what whoever held it has committed, and finds the
        tables by their name anew, also when others have taken it meanwhile.
        """
        await conn.execute(WRITE_LOCK_IN_TRANSACTION, self._schema)
        stored = await projection_position.read(conn)
        if stored.position != self.reached.position:
            self._forget()
            self.reached = stored
        return stored

    async def _load(self, conn: Connection, parts: Parts) -> None:
        jobs, runs, shares, nodes, gpus = parts
        await self._jobs.load(conn, job_view.keys(jobs))
        await self._queues.load(conn, queue_view.keys(jobs))
        await self._runs.load(conn, run_view.keys(runs))
        await self._shares.load(conn, share_view.keys(shares))
        await self._nodes.load(conn, node_view.keys(nodes))
        await self._gpus.load(conn, gpu_view.keys(gpus))

    def _fold(self, parts: Parts) -> None:
        """Table by table: none looks at another, but for the queues, which count what moved among the jobs."""
        jobs, runs, shares, nodes, gpus = parts
        for recorded in jobs:
            if (moved := job_view.fold(self._jobs, recorded)) is not None:
                queue_view.fold(self._queues, moved, recorded.position)
        for recorded in runs:
            run_view.fold(self._runs, recorded)
        for recorded in shares:
            share_view.fold(self._shares, recorded)
        for recorded in nodes:
            node_view.fold(self._nodes, recorded)
        for recorded in gpus:
            gpu_view.fold(self._gpus, recorded)

    async def _write(self, conn: Connection, stretch: Stretch) -> None:
        for table in (self._jobs, self._queues, self._runs, self._shares, self._nodes, self._gpus):
            await table.write(conn)
        await event_index.write(conn, stretch)
        await unreadable.write(conn, stretch)

    async def _park(self, conn: Connection, recorded: Recorded, error: Exception) -> bool:
        """The record is named in `unreadable` and changes nothing else: it must not stop all that follow it."""
        logger.error("record_unfit", position=recorded.position, subject=recorded.subject, reason=str(error))
        async with conn.transaction():
            stored = await self._lock(conn)
            if stored.position < recorded.position:
                await unreadable.park(conn, recorded)
                await projection_position.write(conn, _reached(stored, (recorded,)))
        self._forget()
        return True

    def _forget(self) -> None:
        """Nothing is kept: all is read again from the tables."""
        for rows in (self._jobs, self._runs, self._shares, self._nodes, self._gpus, self._queues):
            rows.forget()
        self.reached = Reached()


def _parts(stretch: Stretch) -> Parts:
    """What of the stretch each table shows, in their order."""
    parts: Parts = [[] for _ in FOLDED]
    for recorded in stretch:
        for index in SHOWN_IN.get(type(recorded.event), ()):
            parts[index].append(recorded)
    return parts


def _reached(before: Reached, stretch: Stretch) -> Reached:
    log_id = before.log_id
    if not log_id:
        founded = (recorded.event for recorded in stretch if isinstance(recorded.event, LogFounded))
        log_id = next((event.log_id for event in founded), "")
    return Reached(log_id=log_id, position=stretch[-1].position, at=stretch[-1].at)
