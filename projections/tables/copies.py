"""Copies of whole schemas: every table of one moment into files, and back into empty tables of the same version."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from runtime.fault import Fault
from runtime.postgres import Connection

TABLES: Final = """
SELECT table_name FROM information_schema.tables
WHERE table_schema = $1 AND table_type = 'BASE TABLE' ORDER BY table_name
"""
COLUMNS: Final = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = $1 AND table_name = $2 AND is_generated = 'NEVER' ORDER BY ordinal_position
"""
SERIALS: Final = """
SELECT table_name, column_name FROM information_schema.columns
WHERE table_schema = $1 AND (is_identity = 'YES' OR column_default LIKE 'nextval(%') ORDER BY 1, 2
"""


async def saved(conn: Connection, schema: str, folder: Path) -> dict[str, int]:
    """Rows of each table of the schema, a file a table in `folder`, which is there. Inside one transaction: one moment."""
    rows: dict[str, int] = {}
    for table in await _tables(conn, schema):
        columns = await _columns(conn, schema, table)
        done = await conn.copy_from_table(
            table, schema_name=schema, columns=columns, output=folder / f"{table}.copy", format="binary"
        )
        rows[table] = int(done.rpartition(" ")[2])
    return rows


async def restored(conn: Connection, schema: str, files: Sequence[Path]) -> dict[str, int]:
    """Rows of each table, which holds what its file has and nothing else. Raises `Fault` for tables of another version."""
    await assert_fit(conn, schema, files)
    of_tables = {file.stem: file for file in files}
    tables = await _tables(conn, schema)
    rows: dict[str, int] = {}
    async with conn.transaction():
        named = ", ".join(f'"{schema}"."{table}"' for table in tables)
        await conn.execute(f"TRUNCATE {named} CASCADE")
        for table in await _in_order(conn, schema, tables):
            columns = await _columns(conn, schema, table)
            done = await conn.copy_to_table(
                table, schema_name=schema, columns=columns, source=of_tables[table], format="binary"
            )
            rows[table] = int(done.rpartition(" ")[2])
        for table, column in await conn.fetch(SERIALS, schema):
            await conn.execute(NEXT.format(schema=schema, table=table, column=column))
    return rows


async def assert_fit(conn: Connection, schema: str, files: Sequence[Path]) -> None:
    """The files are of the tables that the schema has. Raises `Fault`."""
    if odd := {file.stem for file in files} ^ set(await _tables(conn, schema)):
        hint = "Restore it with the version that made the copy, then upgrade."
        differing = ", ".join(sorted(odd))
        raise Fault(
            "tables_differ", f"Schema {schema} of this version has other tables than the copy: {differing}.", hint
        )


NEXT: Final = """
SELECT setval(pg_get_serial_sequence('"{schema}"."{table}"', '{column}'),
              coalesce((SELECT max("{column}") FROM "{schema}"."{table}"), 0) + 1, false)
"""
PARENTS: Final = """
SELECT child.relname, parent.relname FROM pg_constraint
JOIN pg_class child ON child.oid = conrelid JOIN pg_class parent ON parent.oid = confrelid
JOIN pg_namespace space ON space.oid = child.relnamespace
WHERE contype = 'f' AND space.nspname = $1 AND conrelid <> confrelid
"""


async def _in_order(conn: Connection, schema: str, tables: Sequence[str]) -> list[str]:
    """Each table after those that it refers to."""
    left = {table: set[str]() for table in tables}
    for child, parent in await conn.fetch(PARENTS, schema):
        left[child].add(parent)
    ordered: list[str] = []
    while left:
        ready = sorted(table for table, parents in left.items() if not parents & left.keys())
        ordered += ready
        for table in ready:
            del left[table]
        assert ready, f"tables of {schema} refer to each other in a circle"
    return ordered


async def _tables(conn: Connection, schema: str) -> list[str]:
    return [record[0] for record in await conn.fetch(TABLES, schema)]


async def _columns(conn: Connection, schema: str, table: str) -> list[str]:
    return [record[0] for record in await conn.fetch(COLUMNS, schema, table)]
