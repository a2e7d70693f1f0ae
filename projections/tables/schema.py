"""Where the tables live: a schema that readers use, made from `migrations/`, and the one that takes its place."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

import asyncpg
from pogo_core.util import migrate, sql

import migrations
from runtime.fault import Fault
from runtime.postgres import Connection

LIVE: Final = "live"  # what readers see
FRESH: Final = "fresh"  # made by a rebuild, to become `live`
SCRATCH: Final = "scratch"  # made by `verify`, to be compared
OLD: Final = "old"  # was `live` until the last rebuild

MIGRATIONS: Final = Path(migrations.__file__).parent / "tables"
FOLD_VERSION: Final = 4  # raised when the same log gives other rows than before: then tables are rebuilt

# Advisory locks: (1, hash of a schema) is held by who writes its tables.
REBUILD_LOCK: Final = 0x6D757374_00000002
MIGRATE_LOCK: Final = 0x6D757374_00000003

WRITE_LOCK_IN_TRANSACTION: Final = "SELECT pg_advisory_xact_lock(1, hashtext($1))"
WRITE_LOCK: Final = "SELECT pg_advisory_lock(1, hashtext($1))"
WRITE_UNLOCK: Final = "SELECT pg_advisory_unlock(1, hashtext($1))"
ALONE: Final = "SELECT pg_try_advisory_lock($1)"
NO_LONGER_ALONE: Final = "SELECT pg_advisory_unlock($1)"
SESSION: Final = """
SET synchronous_commit TO off; SET statement_timeout TO 0; SET plan_cache_mode TO force_custom_plan
"""
EXISTS: Final = "SELECT to_regnamespace($1) IS NOT NULL"
MIGRATED: Final = "SELECT to_regclass('public._pogo_migration') IS NOT NULL"
FORGET_MIGRATIONS: Final = "DELETE FROM public._pogo_migration WHERE schema_name = $1"
RENAME_MIGRATIONS: Final = "UPDATE public._pogo_migration SET schema_name = $2 WHERE schema_name = $1"

_quiet = logging.getLogger("musterbook.migrations")
_quiet.setLevel(logging.ERROR)  # the tool warns of every file that it applies


async def create(conn: Connection, schema: str) -> None:
    """The schema is there with all its tables, whoever else makes it at the same time."""
    async with conn.transaction():
        await conn.execute("SELECT pg_advisory_xact_lock($1)", MIGRATE_LOCK)
        if not await conn.fetchval(EXISTS, schema):
            await conn.execute(f'CREATE SCHEMA "{schema}"')
            await _forget_migrations(conn, schema)
        before = await conn.fetchval("SELECT current_setting('search_path')")
        await conn.execute(f'SET LOCAL search_path TO "{schema}"')
        await migrate.apply(cast("asyncpg.Connection", conn), MIGRATIONS, schema_name=schema, logger=_quiet)
        await conn.execute("SELECT set_config('search_path', $1, true)", before)


async def drop(conn: Connection, schema: str) -> None:
    """The schema is gone, with its tables and what is remembered of how they were made."""
    async with conn.transaction():
        await conn.execute("SELECT pg_advisory_xact_lock($1)", MIGRATE_LOCK)
        await conn.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
        await _forget_migrations(conn, schema)


async def _forget_migrations(conn: Connection, schema: str) -> None:
    """What is remembered of how a schema was made goes with it, also where somebody else has dropped it."""
    if await conn.fetchval(MIGRATED):
        await conn.execute(FORGET_MIGRATIONS, schema)


async def swap(conn: Connection) -> None:
    """`fresh` is `live`, and what was live is `old`: at once, for every reader's next statement.

    A name that readers find by is all that changes, so nobody is waited for, and no connection has to be told. The
    caller holds the write lock of `live`, so that no stretch is half in one and half in the other.
    """
    async with conn.transaction():
        await conn.execute("SELECT pg_advisory_xact_lock($1)", MIGRATE_LOCK)
        await sql.ensure_pogo_sync(cast("asyncpg.Connection", conn))
        if await conn.fetchval(EXISTS, LIVE):
            await conn.execute(f'ALTER SCHEMA "{LIVE}" RENAME TO "{OLD}"')
            await conn.execute(RENAME_MIGRATIONS, LIVE, OLD)
        await _forget_migrations(conn, LIVE)
        await conn.execute(f'ALTER SCHEMA "{FRESH}" RENAME TO "{LIVE}"')
        await conn.execute(RENAME_MIGRATIONS, FRESH, LIVE)


async def enter(conn: Connection, schema: str) -> None:
    """Until the connection goes back to its pool, names without a schema are found here, and rebuilds have their time.

    A commit does not wait for the disk: rows and position are lost together or not at all, and what a crash takes is
    read from the log again. Nothing that anybody was promised depends on these tables. Plans are made anew each time: one
    made while a table was nearly empty would go on reading all of it when it has grown.
    """
    await conn.execute(f'SET search_path TO "{schema}"')
    await conn.execute(SESSION)


@asynccontextmanager
async def alone(conn: Connection) -> AsyncIterator[None]:
    """Nobody else rebuilds or verifies meanwhile. Raises `Fault` where somebody does."""
    if not await conn.fetchval(ALONE, REBUILD_LOCK):
        raise Fault(
            "rebuild_running",
            "The tables are being rebuilt or verified already.",
            "Wait until that has ended, then try again.",
        )
    try:
        yield
    finally:
        if not conn.is_closed():
            await conn.execute(NO_LONGER_ALONE, REBUILD_LOCK)


@asynccontextmanager
async def held_still(conn: Connection, schema: str) -> AsyncIterator[None]:
    """No stretch is written into the schema meanwhile, except through this connection."""
    await conn.execute(WRITE_LOCK, schema)
    try:
        yield
    finally:
        if not conn.is_closed():
            await conn.execute(WRITE_UNLOCK, schema)
