"""The live tables follow the log: restarts, other projectors, a server that dies, and logs that are not theirs."""

import asyncio
from pathlib import Path

import pytest

from events.base import START, position_of
from events.head import LogFounded
from events.log.memory import MemoryLog
from projections.tables import job_view, projection_position, queue_view, schema, unreadable
from projections.tables.projector import Progress, project
from projections.tables.verify import verify
from projections.tables.waiting import Shown
from runtime.clock import ManualClock
from runtime.embedded.postgres import EmbeddedPostgres
from runtime.fault import Fault
from runtime.postgres import Pool, create_pool
from tests.fixtures.waiting import until
from tests.projections.tables.running import projecting, record


async def test_tables_follow_and_go_on_after_a_restart(log: MemoryLog, pool: Pool, clock: ManualClock) -> None:
    """What was written is shown within a moment, also what was written while nobody projected."""
    async with projecting(log, pool) as progress:
        end = await record(log, range(10), clock)
        assert await Shown(pool).wait_for(end, 10) == end
        await until(lambda: progress.caught_up)
        assert progress.lag_s(clock.now()) == 0
    end = await record(log, range(10, 20), clock)
    async with projecting(log, pool) as progress:
        assert await Shown(pool).wait_for(end, 10) == end

    assert progress.records == 10
    assert (await projection_position.shown(pool)).log_id == "log-1"
    assert len(await job_view.jobs(pool)) == 20


async def test_waiting_ends_when_time_is_up_or_there_are_no_tables_yet(log: MemoryLog, pool: Pool) -> None:
    """Who waits for what never comes is told how far the tables are."""
    shown = Shown(pool)
    assert await shown.wait_for(position_of(1, 5), 0.05) == 0
    async with projecting(log, pool):
        assert await shown.wait_for(position_of(1, 1), 10) == position_of(1, 1)
        reached = await asyncio.gather(*(shown.wait_for(position_of(1, 5), 0.1) for _ in range(50)))

    assert set(reached) == {position_of(1, 1)}


async def test_two_projectors_share_the_work(log: MemoryLog, pool: Pool, clock: ManualClock) -> None:
    """Each event counts once, whoever of several projectors writes it."""
    async with projecting(log, pool), projecting(log, pool):
        end = await log.end()
        for start in range(0, 200, 5):
            end = await record(log, range(start, start + 5), clock)
            await asyncio.sleep(0)
        assert await Shown(pool).wait_for(end, 10) == end

    assert (await queue_view.queues(pool))[0].queued == 200
    assert (await verify(log, pool)).differences == ()


async def test_a_dead_server_is_waited_for(log: MemoryLog, clock: ManualClock, tmp_path: Path) -> None:
    """PostgreSQL is killed in the middle and comes back: nothing is missing, nothing is there twice."""
    server = EmbeddedPostgres(tmp_path)
    await server.start()
    pool = await create_pool(server.dsn, name="test")
    try:
        async with projecting(log, pool) as progress:
            end = await record(log, range(100), clock)
            await until(lambda: progress.position == end)
            server.kill()
            end = await record(log, range(100, 200), clock)
            await until(lambda: progress.faults > 0)
            await server.stop()
            await server.start()
            assert await Shown(pool).wait_for(end, 30) == end
            assert progress.restarts > 0
        assert (await verify(log, pool)).differences == ()
    finally:
        await pool.close()
        await server.stop()


async def test_another_log_is_refused(log: MemoryLog, pool: Pool, clock: ManualClock) -> None:
    """A wiped log beside an old database is noticed, and the way out is named."""
    async with projecting(log, pool):
        await Shown(pool).wait_for(await log.end(), 10)
    other = MemoryLog("main", clock.now)
    await other.append([LogFounded(at=clock.now(), log_id="log-2", cell="main")], after=START)

    with pytest.raises(Fault, match="'log-1'; this is log 'log-2'") as refused:
        await project(other, pool, Progress())
    assert refused.value.code == "tables_of_another_log"
    assert "muster rebuild" in refused.value.hint


async def test_a_log_that_was_cut_is_refused(log: MemoryLog, pool: Pool, clock: ManualClock) -> None:
    """Tables that reach beyond the end of their log stop: what they show is no longer in it."""
    async with projecting(log, pool):
        await Shown(pool).wait_for(await record(log, range(3), clock), 10)
    cut = MemoryLog("main", clock.now)
    await cut.append([LogFounded(at=clock.now(), log_id="log-1", cell="main")], after=START)

    with pytest.raises(Fault, match="its end was lost") as refused:
        await project(cut, pool, Progress())
    assert refused.value.code == "tables_ahead"


async def test_tables_of_another_fold_are_refused(log: MemoryLog, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that would write other rows does not go on from those of an older one."""
    async with projecting(log, pool):
        await Shown(pool).wait_for(await log.end(), 10)
    monkeypatch.setattr(schema, "FOLD_VERSION", schema.FOLD_VERSION + 1)

    with pytest.raises(Fault) as refused:
        await project(log, pool, Progress())
    assert refused.value.code == "tables_of_another_version"


async def test_tables_that_are_dropped_are_made_anew(log: MemoryLog, pool: Pool, clock: ManualClock) -> None:
    """Somebody drops the live schema under a running projector: it makes another, from the log's beginning."""
    async with projecting(log, pool):
        await Shown(pool).wait_for(await record(log, range(3), clock), 10)
        async with pool.acquire() as conn:
            await schema.drop(conn, schema.LIVE)
        end = await record(log, range(3, 6), clock)
        assert await Shown(pool).wait_for(end, 10) == end

    assert len(await job_view.jobs(pool)) == 6


async def test_what_cannot_be_read_is_named(log: MemoryLog, pool: Pool, clock: ManualClock) -> None:
    """Bytes that somebody put there by hand stop nothing: they are named, and all others are shown."""
    await record(log, range(50), clock)
    log.write_raw("node.n1", b"not json")
    end = await record(log, range(50, 99), clock)
    async with projecting(log, pool):
        assert await Shown(pool).wait_for(end, 20) == end

    (row,) = await unreadable.records(pool)
    assert (row.position, row.subject, row.named) == (position_of(1, 52), "node.n1", "")
    assert await unreadable.count(pool) == 1
    assert len(await job_view.jobs(pool)) == 99
    assert (await verify(log, pool)).differences == ()
