"""`project`: the live tables follow the log, for as long as the process runs."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import Final, cast

import asyncpg
import msgspec

from events.base import START, Position, Stretch, Unreadable, position_of, spelled
from events.codec import EPOCH
from events.head import LogFounded
from events.log.between import holds
from events.log.port import STRETCH_MAX, Reader, Unknown
from projections.tables import projection_position, schema, unreadable
from projections.tables.fold import Tables
from projections.tables.projection_position import Reached
from runtime.fault import Fault
from runtime.logging import get_logger
from runtime.postgres import Connection, Pool

logger = get_logger(__name__)

WAIT_FIRST_S: Final = 0.1
WAIT_MAX_S: Final = 5.0
TOGETHER_MAX: Final = 4 * STRETCH_MAX  # records in one transaction: a third of a second, during which nothing is shown
FOUNDED: Final = position_of(1, 1)

# What comes and goes: a server that is down, restarts, is full, or ended a transaction; tables taken from under us.
PASSING: Final = (
    OSError,
    Unknown,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what asyncpg says of a rollback when the session ended inside a statement
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.UndefinedTableError,
    asyncpg.InvalidSchemaNameError,
)


class Progress(msgspec.Struct):
    """How far a projector is, for metrics. It alone changes this."""

    position: Position = START  # that the tables reach
    at: datetime = EPOCH  # when the record there was stored
    caught_up: bool = False  # the log had no more when last read
    records: int = 0  # taken by this process
    stretches: int = 0
    faults: int = 0  # since the last stretch
    restarts: int = 0  # of following, after a fault or because others moved the tables

    def lag_s(self, now: datetime) -> float:
        """How old what the tables show is: 0 when that is all there is."""
        return 0.0 if self.caught_up or self.at == EPOCH else max(0.0, (now - self.at).total_seconds())


async def project(reader: Reader, pool: Pool, progress: Progress) -> None:
    """Never returns: the live tables follow the log, in one transaction a stretch. Any number may do this at once.

    Waits while PostgreSQL is down, and goes on from where the tables are. Raises `Fault` when they are not this log's,
    or not this version's, and what `reader` raises when the log is broken.
    """
    while True:
        try:
            async with pool.acquire() as conn:
                await _follow(reader, conn, progress)
        except PASSING as error:
            if progress.faults == 0:
                logger.warning("tables_wait", cause=type(error).__name__, reason=str(error))
            await asyncio.sleep(min(WAIT_FIRST_S * 2**progress.faults, WAIT_MAX_S))
            progress.faults = min(progress.faults + 1, 16)
        progress.restarts += 1


async def _follow(reader: Reader, conn: Connection, progress: Progress) -> None:
    """Returns when others have put the tables back: following begins anew from where they are."""
    await schema.create(conn, schema.LIVE)
    await schema.enter(conn, schema.LIVE)
    stored = await projection_position.read(conn)
    await check(reader, stored)
    await _nothing_was_beyond_them(reader, conn)
    tables = Tables(schema.LIVE)
    after = stored.position
    progress.position, progress.at = stored.position, stored.at
    async with aclosing(stretches(reader, stored)) as following:
        async for stretch in following:
            if stretch:
                if not await tables.take(conn, stretch, after=after):
                    logger.warning("tables_behind", after=after)
                    return
                after = stretch[-1].position
                progress.position, progress.at = after, stretch[-1].at
                progress.records += len(stretch)
                progress.stretches += 1
            elif conn.is_closed():
                raise asyncpg.InterfaceError("PostgreSQL has ended the session")  # seen now, not at the next event
            progress.caught_up = not stretch
            progress.faults = 0


async def stretches(reader: Reader, reached: Reached) -> AsyncGenerator[Stretch, None]:
    """What follows in the log, with times as if it had been read from its beginning.

    The next stretch is read and decoded while the server writes the one before. Full ones, of which more will follow,
    are put together: what changes often is written once a transaction.
    """
    following = reader.follow(reached.position, since=reached.at)
    coming = asyncio.ensure_future(anext(following))
    try:
        while True:
            stretch = last = await coming
            coming = asyncio.ensure_future(anext(following))
            while len(last) == STRETCH_MAX and len(stretch) < TOGETHER_MAX:
                last = await coming
                coming = asyncio.ensure_future(anext(following))
                stretch += last
            yield stretch
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        await cast("AsyncGenerator[Stretch, None]", following).aclose()


async def check(reader: Reader, stored: Reached) -> None:
    """The tables may go on from this log. Raises `Fault`."""
    projection_position.of_this_version(stored)
    if stored.position == START:
        return
    log_id = await log_id_of(reader)
    if stored.log_id != log_id:
        raise Fault(
            "tables_of_another_log",
            f"The tables were made from log {stored.log_id!r}; this is log {log_id!r}.",
            "If this log is the right one, run `muster rebuild`; else connect to the other.",
        )
    end = await reader.end()
    if end < stored.position:
        raise Fault(
            "tables_ahead",
            f"The tables reach position {spelled(stored.position)}, but the log ends at {spelled(end)}: its end was lost.",
            "Restore the log; or, if what was lost stays lost, run `muster rebuild`.",
        )
    if not await holds(reader, stored.position, stored.at):
        raise Fault(
            "tables_ahead",
            f"The tables reach position {spelled(stored.position)}, where the log has another record, or none: it was restored.",
            "Restore a later copy; or, if what was lost stays lost, run `muster rebuild`.",
        )


async def _nothing_was_beyond_them(reader: Reader, conn: Connection) -> None:
    """No record that the tables passed over for want of its type can be read now. Raises `Fault`."""
    for position, named in await unreadable.passed_over(conn):
        record = await reader.read(position)
        if record is not None and not isinstance(record.event, Unreadable):
            raise Fault(
                "tables_of_another_version",
                f"The tables were made by a version that could not read {named} at {spelled(position)}; this one can.",
                "Run `muster rebuild`.",
            )


async def log_id_of(reader: Reader) -> str:
    """The id that the log was founded with; empty when it does not begin as a log must."""
    first = await reader.read(FOUNDED)
    return first.event.log_id if first is not None and isinstance(first.event, LogFounded) else ""
