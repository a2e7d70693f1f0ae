"""What must be there before any part starts."""

import asyncio

from events.log.streams import StreamSettings
from runtime.embedded.nats import EmbeddedNats
from runtime.postgres import create_pool
from services.main.found import found_log, migrate


async def test_founding_again_finds_the_same_log(nats_server: EmbeddedNats) -> None:
    """Also two at once, as two starts in a row or a supervisor and an operator do."""
    login = nats_server.login("system")
    first, second = await asyncio.gather(found_log(login, StreamSettings()), found_log(login, StreamSettings()))
    assert first
    assert first == second == await found_log(login, StreamSettings())


async def test_streams_are_there_again_after_nats_was_killed(nats_server: EmbeddedNats) -> None:
    """Heartbeats are kept in memory: their stream goes with the server, and every part would refuse to start."""
    login = nats_server.login("system")
    log_id = await found_log(login, StreamSettings())
    nats_server.kill()
    await nats_server.wait()
    await nats_server.stop()
    await nats_server.start()
    assert await found_log(nats_server.login("system"), StreamSettings()) == log_id


async def test_migrating_again_changes_nothing(postgres_dsn: str) -> None:
    """The tables are there after the first time."""
    for _ in range(2):
        await migrate(postgres_dsn)
    pool = await create_pool(postgres_dsn, name="test", size_max=1)
    assert await pool.fetchval("SELECT count(*) FROM live.job_view") == 0
    await pool.close()
