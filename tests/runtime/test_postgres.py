"""Pools of connections to a real PostgreSQL."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

from runtime import postgres
from runtime.embedded.postgres import EmbeddedPostgres
from runtime.fault import Fault
from runtime.postgres import AWAY, create_pool, patient_pool


async def test_every_session_has_our_settings(postgres_dsn: str) -> None:
    """Times in UTC, an end to statements and waits, the schema asked for."""
    pool = await create_pool(postgres_dsn, name="test", search_path="live", statement_max_s=0.1)
    names = ("application_name", "timezone", "search_path", "statement_timeout", "lock_timeout", "jit")
    settings = [await pool.fetchval("SELECT current_setting($1)", name) for name in names]
    assert settings == ["muster test", "UTC", "live", "100ms", "10s", "off"]
    with pytest.raises(asyncpg.QueryCanceledError):
        await pool.execute("SELECT pg_sleep(5)")
    await pool.close()


async def test_a_pool_waits_for_its_server_and_survives_its_restart(tmp_path: Path) -> None:
    """Processes start in any order; after a crash of the server the next statement finds the new one."""
    server = EmbeddedPostgres(tmp_path, durable=False)
    waiting = asyncio.create_task(create_pool(server.dsn, name="test"))
    await server.start()
    pool = await waiting
    await pool.execute("CREATE TABLE kept (n int)")
    server.kill()
    await server.wait()
    await server.stop()
    await server.start()
    async with asyncio.timeout(10):
        while True:
            try:
                assert await pool.fetch("SELECT n FROM kept") == []
                break
            except (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError):
                continue  # a connection of the old server: each is found out once
    await pool.close()
    await server.stop()


async def test_a_server_that_is_not_there_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while, not never."""
    monkeypatch.setattr(postgres, "CONNECT_WITHIN_S", 0.3)
    with pytest.raises(Fault) as absent:
        _ = await create_pool(EmbeddedPostgres(tmp_path, durable=False).dsn, name="test")
    assert absent.value.code == "postgres_unreachable"


async def test_a_patient_pool_is_there_before_its_server_is(tmp_path: Path) -> None:
    """A process that starts while PostgreSQL is away does what else it has to do, and reads once it is back."""
    server = EmbeddedPostgres(tmp_path, durable=False)
    await server.start()
    await server.stop()
    pool = await patient_pool(server.dsn, name="test")
    try:
        with pytest.raises(AWAY):
            await pool.fetchval("SELECT 1")
        await server.start()
        assert await pool.fetchval("SELECT 1") == 1
    finally:
        pool.terminate()
        await server.stop()
