"""Copies of schemas: the same rows in another database, and nothing where the tables are of another version."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from projections.tables import copies
from runtime.embedded.postgres import EmbeddedPostgres
from runtime.fault import Fault
from runtime.postgres import Connection, create_pool

TABLES: Final = """
CREATE SCHEMA s;
CREATE TABLE s.parent (name text PRIMARY KEY, doubled bigint GENERATED ALWAYS AS (number * 2) STORED, number bigint);
CREATE TABLE s.a_child (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text REFERENCES s.parent, at timestamptz);
"""
AT: Final = datetime(2026, 3, 14, tzinfo=UTC)
ROWS: Final = "SELECT n, name, at, doubled FROM s.a_child JOIN s.parent USING (name) ORDER BY n"


async def filled(conn: Connection) -> None:
    """Two tables, one of which refers to the other and comes before it by name."""
    await conn.execute(TABLES)
    await conn.execute("INSERT INTO s.parent (name, number) VALUES ('x', 1), ('y', 2)")
    for name in ("x", "y", "x"):
        await conn.execute("INSERT INTO s.a_child (name, at) VALUES ($1, $2)", name, AT)


async def test_rows_are_the_same_elsewhere_and_numbers_go_on(
    postgres_dsn: str, postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    """In whatever order tables refer to each other; what is there already is replaced; made columns are made again."""
    await postgres_server.create_database("copies")
    pools = [
        await create_pool(dsn, name="test", size_max=1) for dsn in (postgres_dsn, postgres_server.dsn_of("copies"))
    ]
    async with pools[0].acquire() as one, pools[1].acquire() as other:
        await filled(one)
        assert await copies.saved(one, "s", tmp_path) == {"a_child": 3, "parent": 2}
        await other.execute(TABLES)
        await other.execute("INSERT INTO s.parent (name, number) VALUES ('z', 3)")
        files = [tmp_path / "a_child.copy", tmp_path / "parent.copy"]
        assert await copies.restored(other, "s", files) == {"parent": 2, "a_child": 3}
        assert await other.fetch(ROWS) == await one.fetch(ROWS)
        assert await other.fetchval("INSERT INTO s.a_child (name) VALUES ('x') RETURNING n") == 4

        await other.execute("CREATE TABLE s.newer (n int)")
        with pytest.raises(Fault, match="newer") as refused:
            await copies.restored(other, "s", files)
        assert refused.value.code == "tables_differ"
        assert len(await other.fetch(ROWS)) == 4
    for pool in pools:
        pool.terminate()
    await postgres_server.drop_database("copies")
