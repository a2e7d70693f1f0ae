"""Where endpoints and deliveries are kept: a schema of its own, which no rebuild of the tables touches."""

import logging
from pathlib import Path
from typing import Any, Final, cast

from pogo_core.util import migrate

import migrations
from projections.tables.schema import MIGRATE_LOCK
from runtime.postgres import Connection

SCHEMA: Final = "webhooks"
MIGRATIONS: Final = Path(migrations.__file__).parent / "webhooks"

_quiet = logging.getLogger("musterbook.migrations.webhooks")
_quiet.setLevel(logging.ERROR)  # the tool warns of every file that it applies


async def create(conn: Connection) -> None:
    """The schema is there with all its tables, whoever else makes it at the same time."""
    async with conn.transaction():
        # That of the tables: what is remembered of how schemas were made is in one table for all.
        await conn.execute("SELECT pg_advisory_xact_lock($1)", MIGRATE_LOCK)
        await conn.execute(f'CREATE SCHEMA IF NOT EXISTS "{SCHEMA}"')
        before = await conn.fetchval("SELECT current_setting('search_path')")
        await conn.execute(f'SET LOCAL search_path TO "{SCHEMA}"')
        await migrate.apply(cast("Any", conn), MIGRATIONS, schema_name=SCHEMA, logger=_quiet)
        await conn.execute("SELECT set_config('search_path', $1, true)", before)
