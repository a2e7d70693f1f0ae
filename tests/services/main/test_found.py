"""What must be there before any part starts."""

import asyncio

from msgspec.structs import replace

from events.base import START
from events.log.append import JetStreamLog
from events.log.streams import StreamSettings
from events.policy import JobOrder, PolicySet
from runtime.embedded.nats import EmbeddedNats
from runtime.nats import connect
from runtime.postgres import create_pool
from services.main.found import found_log, migrate, set_lost_after
from services.main.local import CLOCK


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


async def test_a_start_changes_three_fields_of_the_policy_and_no_others(nats_server: EmbeddedNats) -> None:
    """What an operator applied stays; said again, nothing is written; over none, all else has its default."""
    await found_log(nats_server.login("system"), StreamSettings())
    login = nats_server.login("gate")
    connection = await connect(login, name="operator")
    log = JetStreamLog(connection)

    await set_lost_after(login, 30.0)
    first = await log.last("policy")
    assert first is not None
    assert first.event == replace(
        PolicySet(at=first.event.at, by="up", suspect_after_s=10.0, lost_after_s=30.0, lost_most_s=30.0), replaces=START
    )
    await set_lost_after(login, 30.0)
    assert await log.end() == first.position

    applied = PolicySet(at=CLOCK.now(), by="api:ada", order=JobOrder.FIFO, promises=7, replaces=first.position)
    position = await log.record([applied])
    await asyncio.gather(set_lost_after(login, 60.0), set_lost_after(login, 60.0))
    last = await log.last("policy")
    assert last is not None
    said = {"suspect_after_s": 20.0, "lost_after_s": 60.0, "lost_most_s": 60.0}
    wanted = replace(applied, at=last.event.at, by="up", replaces=position, **said)
    assert (last.event, last.position) == (wanted, position + 1)
    await connection.close()
