"""`Tables`: all tables of one schema, moved on by a stretch of the log at a time, with the position in one transaction."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import asyncpg

from events.base import NodeId, Position, Recorded, Stretch
from events.codec import TYPES
from events.head import LogFounded
from events.job import JobPlaced
from projections.tables import (
    alarm_view,
    event_index,
    gpu_view,
    job_view,
    ledger,
    node_view,
    projection_position,
    promise_view,
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


# The tables that fold, in the order in which a record is, and which show an event of each type: most, one or two.
FOLDED: Final = (promise_view, job_view, run_view, share_view, node_view, gpu_view, queue_view, ledger, alarm_view)
SHOWN_IN: Final = {
    cls: tuple(index for index, table in enumerate(FOLDED) if issubclass(cls, table.EVENTS)) for cls in TYPES
}


class Tables:
    """The tables of `schema`. Rows are kept in memory as long as nobody else has moved the tables on."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self.reached = Reached()  # how far the rows kept reach, and the tables when this last looked
        self._alarms = alarm_view.Alarms()
        self._gpus = gpu_view.Gpus()
        self._jobs = job_view.rows()
        self._nodes = node_view.rows()
        self._promises = promise_view.rows()
        self._queues = queue_view.rows()
        self._runs = run_view.rows()
        self._shares = share_view.rows()
        self._ledger = ledger.Ledger()
        self._all = (
            self._jobs, self._promises, self._queues, self._runs, self._shares, self._nodes, self._gpus, self._ledger, self._alarms
        )  # fmt: skip
        folds: tuple[Callable[[Recorded], None], ...] = (  # in the order of `FOLDED`
            partial(promise_view.fold, self._promises, self._jobs),
            self._fold_job,
            partial(run_view.fold, self._runs, self._shares),
            partial(share_view.fold, self._shares),
            partial(node_view.fold, self._nodes),
            partial(gpu_view.fold, self._gpus, self._jobs),
            partial(queue_view.fold_document, self._queues),
            self._ledger.fold,
            self._alarms.fold,
        )
        self._folds_of = {cls: tuple(folds[index] for index in indexes) for cls, indexes in SHOWN_IN.items()}

    async def take(self, conn: Connection, stretch: Stretch, *, after: Position) -> bool:
        """The tables reach the end of the stretch, or did already: what they have is left out, so that twice is once.

        The stretch is all that follows `after`. False: the tables end before it, so nothing was done. Raises `Fault` at
        a record of the ledger that cannot be shown: the tables reach the one before it.
        """
        legible, fault = ledger.before_unreadable(stretch)
        if legible and not await self._take_fit(conn, legible, after):
            return False
        if fault is not None:
            raise fault
        return True

    async def _take_fit(self, conn: Connection, stretch: Stretch, after: Position) -> bool:
        try:
            return await self._take(conn, stretch, after)
        except UNFIT as error:
            self._forget()
            if len(stretch) == 1:
                return await self._park(conn, stretch[0], error)
        middle = len(stretch) // 2
        return await self._take_fit(conn, stretch[:middle], after) and await self._take_fit(
            conn, stretch[middle:], stretch[middle - 1].position
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
                await self._load(conn, _parts(stretch))
                self._fold(stretch)
                await self._write(conn, stretch)
                reached = _reached(stored, stretch)
                await projection_position.write(conn, reached)
        except BaseException:
            self._forget()  # what was kept has changes that the tables may not have
            raise
        self.reached = reached
        return True

    async def _lock(self, conn: Connection) -> Reached:
        """How far the tables reach, which nobody else changes before this transaction ends. Raises `Fault` for others' tables.

        The lock is a statement of its own: the one after it sees what whoever held it has committed, and finds the
        tables by their name anew, also when others have taken it meanwhile.
        """
        await conn.execute(WRITE_LOCK_IN_TRANSACTION, self._schema)
        stored = await projection_position.read(conn)
        projection_position.of_this_version(stored)
        if stored.position != self.reached.position:
            self._forget()
            self.reached = stored
        return stored

    async def _load(self, conn: Connection, parts: Parts) -> None:
        promises, jobs, runs, shares, nodes, gpus, documents, credited, alarms = parts
        await self._jobs.load(conn, job_view.keys(jobs))
        await self._promises.load(conn, promise_view.keys(promises, self._jobs))
        await self._queues.load(conn, queue_view.keys(jobs))
        if documents:
            await self._queues.load(conn, (*queue_view.keys(documents), *await queue_view.listed(conn)))
        await self._runs.load(conn, run_view.keys(runs))
        await self._shares.load(conn, share_view.keys(shares))
        await self._nodes.load(conn, node_view.keys(nodes))
        await self._nodes.load(conn, _first_nodes(promises))
        await self._gpus.load(conn, gpu_view.keys(gpus))
        await self._gpus.load_marked(conn, gpu_view.unmarked(gpus, self._jobs))
        await self._ledger.load(conn, credited)
        await self._alarms.load(conn, alarm_view.keys(alarms))

    def _fold(self, stretch: Stretch) -> None:
        """Record by record, so that a table may look at another as it was when that happened."""
        folds_of = self._folds_of
        for recorded in stretch:
            for fold in folds_of.get(type(recorded.event), ()):
                fold(recorded)

    def _fold_job(self, recorded: Recorded) -> None:
        gpu_type = ""
        if isinstance(recorded.event, JobPlaced) and recorded.event.shares:
            node = self._nodes.get(recorded.event.shares[0].node_id)
            gpu_type = node.gpu_type if node is not None else ""
        if (moved := job_view.fold(self._jobs, recorded, gpu_type)) is not None:
            queue_view.fold(self._queues, moved, recorded.position)

    async def _write(self, conn: Connection, stretch: Stretch) -> None:
        for table in self._all:
            await table.write(conn)
        await event_index.write(conn, stretch)
        await unreadable.write(conn, stretch)

    async def _park(self, conn: Connection, recorded: Recorded, error: Exception) -> bool:
        """The record is named in `unreadable` and changes nothing else: it must not stop all that follow it.

        Raises `Fault` where it is one of the ledger's.
        """
        if not ledger.may_park(recorded):
            raise ledger.unfit(recorded) from error
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
        for rows in self._all:
            rows.forget()
        self.reached = Reached()


def _parts(stretch: Stretch) -> Parts:
    """What of the stretch each table shows, in their order."""
    parts: Parts = [[] for _ in FOLDED]
    for recorded in stretch:
        for index in SHOWN_IN.get(type(recorded.event), ()):
            parts[index].append(recorded)
    return parts


def _first_nodes(records: list[Recorded]) -> Iterator[NodeId]:
    """The nodes whose GPU type is that of a placement."""
    for recorded in records:
        if isinstance(recorded.event, JobPlaced) and recorded.event.shares:
            yield recorded.event.shares[0].node_id


def _reached(before: Reached, stretch: Stretch) -> Reached:
    log_id = before.log_id
    if not log_id:
        founded = (recorded.event for recorded in stretch if isinstance(recorded.event, LogFounded))
        log_id = next((event.log_id for event in founded), "")
    return Reached(log_id=log_id, position=stretch[-1].position, at=stretch[-1].at)
