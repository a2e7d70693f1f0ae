"""Schemas are made from the migrations, by any number of processes at once."""

import asyncio

import pytest

from projections.tables import schema
from projections.tables.verify import KEYS
from runtime.postgres import Pool

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = $1"


async def test_many_may_make_the_tables_at_once(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """Processes that start together find one set of tables, silently, and again at every start."""

    async def create() -> None:
        async with pool.acquire() as conn:
            await schema.create(conn, schema.LIVE)
            assert await conn.fetchval("SHOW search_path") == '"$user", public'

    await asyncio.gather(*(create() for _ in range(6)))
    await create()

    assert {record["tablename"] for record in await pool.fetch(TABLES, schema.LIVE)} == set(KEYS)
    assert not caplog.records


async def test_a_dropped_schema_can_be_made_again(pool: Pool) -> None:
    """What is remembered of the migrations goes with the tables that they made."""
    async with pool.acquire() as conn:
        for _ in range(2):
            await schema.create(conn, schema.FRESH)
            await schema.drop(conn, schema.FRESH)
        await schema.create(conn, schema.FRESH)

    assert len(await pool.fetch(TABLES, schema.FRESH)) == len(KEYS)


async def test_a_schema_that_others_dropped_can_be_made_again(pool: Pool) -> None:
    """By a projector, which makes the live tables, and by a rebuild, which puts new ones in their place."""
    async with pool.acquire() as conn:
        await schema.create(conn, schema.LIVE)
        await conn.execute("DROP SCHEMA live CASCADE")
        await schema.create(conn, schema.LIVE)
        assert len(await pool.fetch(TABLES, schema.LIVE)) == len(KEYS)
        await conn.execute("DROP SCHEMA live CASCADE")
        await schema.create(conn, schema.FRESH)
        await schema.swap(conn)
        await schema.create(conn, schema.LIVE)

    assert len(await pool.fetch(TABLES, schema.LIVE)) == len(KEYS)


async def test_a_swap_moves_what_is_remembered_too(pool: Pool) -> None:
    """After a swap the next start applies nothing anew, and the old tables can go."""
    async with pool.acquire() as conn:
        await schema.create(conn, schema.LIVE)
        await schema.create(conn, schema.FRESH)
        await conn.execute("CREATE TABLE fresh.mark ()")
        await schema.swap(conn)
        await schema.create(conn, schema.LIVE)
        await schema.drop(conn, schema.OLD)

    assert {record["tablename"] for record in await pool.fetch(TABLES, schema.LIVE)} == {*KEYS, "mark"}
    remembered = await pool.fetch("SELECT DISTINCT schema_name FROM public._pogo_migration")
    assert [record["schema_name"] for record in remembered] == [schema.LIVE]
