"""Pools of connections to PostgreSQL, with the settings that every one of our sessions has."""

import asyncio
from typing import TYPE_CHECKING, Final

import asyncpg

from runtime.fault import Fault

if TYPE_CHECKING:  # the classes take parameters in their type stubs only
    Pool = asyncpg.Pool[asyncpg.Record]
    Connection = asyncpg.Connection[asyncpg.Record] | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
else:
    Pool = asyncpg.Pool
    Connection = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy

CONNECT_WITHIN_S: Final = 20.0
TRY_EVERY_S: Final = 0.2
POOL_MAX: Final = 8
STATEMENT_MAX_S: Final = 30.0  # the server gives up on a longer one; a rebuild sets its own
LOCK_WAIT_MAX_S: Final = 10.0
AWAY: Final = (  # what a reader meets while the server is down, starting, stopping or too busy
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
)
ABSENT: Final = (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError)  # the tables are not made yet
OUTDATED: Final = (asyncpg.UndefinedColumnError,)  # the tables are of another version
PASSING: Final = (  # what ends a transaction that may well be begun again
    *AWAY,
    *ABSENT,
    asyncpg.InternalClientError,  # what asyncpg says of a rollback when the session ended inside a statement
    asyncpg.TransactionRollbackError,
    asyncpg.ObjectNotInPrerequisiteStateError,
)
UNREACHABLE: Final = (  # by a process that starts before the server, or before the database is made
    OSError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InvalidCatalogNameError,
)


async def create_pool(
    dsn: str,
    *,
    name: str,
    size_max: int = POOL_MAX,
    search_path: str | None = None,
    statement_max_s: float = STATEMENT_MAX_S,
) -> Pool:
    """A pool of at most `size_max` connections, one of them made. Times are UTC; `name` is shown in pg_stat_activity.

    Waits for a server that is not up yet; raises `Fault` after `CONNECT_WITHIN_S`.
    """
    settings = _session(name, search_path, statement_max_s)
    last = ""
    try:
        async with asyncio.timeout(CONNECT_WITHIN_S):
            while True:
                try:
                    return await asyncpg.create_pool(dsn, min_size=1, max_size=size_max, server_settings=settings)
                except UNREACHABLE as error:
                    last = str(error)
                    await asyncio.sleep(TRY_EVERY_S)
    except TimeoutError as error:
        raise Fault(
            "postgres_unreachable", f"PostgreSQL does not take us: {last or 'no answer'}.", "Is it running?"
        ) from error


async def patient_pool(dsn: str, *, name: str, size_max: int = POOL_MAX) -> Pool:
    """A pool that connects when it is first used: for a process that starts, and does its part, while the server is away."""
    settings = _session(name, None, STATEMENT_MAX_S)
    return await asyncpg.create_pool(dsn, min_size=0, max_size=size_max, server_settings=settings)


def _session(name: str, search_path: str | None, statement_max_s: float) -> dict[str, str]:
    """The settings of every session."""
    settings = {
        "application_name": f"muster {name}",
        "timezone": "UTC",
        "statement_timeout": str(int(statement_max_s * 1000)),
        "lock_timeout": str(int(LOCK_WAIT_MAX_S * 1000)),
        "idle_in_transaction_session_timeout": str(int(statement_max_s * 1000)),
        "jit": "off",  # our statements are short: compiling them costs more than it saves
    }
    if search_path is not None:
        settings["search_path"] = search_path
    return settings
