"""A rebuild beside running projectors and readers: nothing is missed, and nothing is ever seen to go back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from events.base import START, Position, position_of
from events.head import LogFounded
from events.log.memory import MemoryLog
from projections.tables import event_index, job_view, projection_position, schema
from projections.tables.rebuild import rebuild
from projections.tables.verify import verify
from projections.tables.waiting import Shown
from runtime.clock import ManualClock
from runtime.fault import Fault
from runtime.postgres import Pool
from tests.projections.tables.running import projecting, record


@asynccontextmanager
async def reading(pool: Pool) -> AsyncIterator[list[tuple[Position, int, int]]]:
    """A reader looks again and again at position, index and jobs, in this order, on a connection of its own."""
    seen: list[tuple[Position, int, int]] = []

    async def look() -> None:
        async with pool.acquire() as conn:
            while True:
                position = (await projection_position.shown(conn)).position
                events = await conn.fetchval("SELECT count(*) FROM live.event_index")
                jobs = await conn.fetchval("SELECT count(*) FROM live.job_view")
                seen.append((position, events, jobs))
                await asyncio.sleep(0)

    task = asyncio.create_task(look())
    try:
        yield seen
    finally:
        task.cancel()
        ended = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended[0], asyncio.CancelledError), ended


async def test_a_swap_under_a_running_projector_leaves_no_gap(log: MemoryLog, pool: Pool, clock: ManualClock) -> None:
    """The log grows, a projector projects, a reader reads, and three rebuilds swap the tables under them."""
    async with projecting(log, pool) as progress:
        end = await record(log, range(500), clock)
        await Shown(pool).wait_for(end, 20)
        async with reading(pool) as seen, asyncio.TaskGroup() as tasks:

            async def grow() -> None:
                for start in range(500, 2000, 3):
                    await record(log, range(start, start + 3), clock)
                    await asyncio.sleep(0.002)

            growing = tasks.create_task(grow())
            rebuilds = 0
            while not growing.done() or rebuilds < 3:
                rebuilt = await rebuild(log, pool)
                assert (await projection_position.shown(pool)).position >= rebuilt.position
                rebuilds += 1
        end = await log.end()
        assert await Shown(pool).wait_for(end, 20) == end
        assert progress.position == end
        assert progress.restarts == 0  # each swap was nothing but the next transaction

    assert len(seen) > 10
    for before, after in pairwise(seen):
        assert all(a <= b for a, b in zip(before, after, strict=True))
    assert len(await event_index.of_all(pool, limit=10_000)) == 2001
    assert (await verify(log, pool)).differences == ()
    for gone in (schema.FRESH, schema.OLD, schema.SCRATCH):
        assert not await pool.fetchval(schema.EXISTS, gone)


class Behind(MemoryLog):
    """A log whose end is first said to be the end of long ago, as if all the rest had been written since."""

    asked = 0

    async def end(self) -> Position:
        """The first record, twice; then the truth."""
        self.asked += 1
        return position_of(1, 1) if self.asked <= 2 else await super().end()


async def test_new_tables_reach_as_far_as_the_old_ones(pool: Pool, clock: ManualClock) -> None:
    """What was written while a rebuild caught up is in the new tables before anybody sees them."""
    log = Behind("main", clock.now)
    await log.append([LogFounded(at=clock.now(), log_id="log-1", cell="main")], after=Position(0))
    end = await record(log, range(20), clock)
    log.asked = 2
    async with projecting(log, pool):
        await Shown(pool).wait_for(end, 10)
    log.asked = 0

    assert (await rebuild(log, pool)).position == end
    assert (await projection_position.shown(pool)).position == end


async def test_rebuilt_tables_take_the_place_of_those_of_another_log(
    log: MemoryLog, pool: Pool, clock: ManualClock
) -> None:
    """The way out that a refusal names works, also where the old tables reach further than this log."""
    async with projecting(log, pool):
        await Shown(pool).wait_for(await record(log, range(9), clock), 10)
    other = MemoryLog("main", clock.now)
    await other.append([LogFounded(at=clock.now(), log_id="log-2", cell="main")], after=START)
    end = await record(other, [100], clock)

    rebuilt = await rebuild(other, pool)

    assert (rebuilt.position, rebuilt.records) == (end, 2)
    assert [job.job_id for job in await job_view.jobs(pool)] == ["j0100"]
    async with projecting(other, pool):
        end = await record(other, [101], clock)
        assert await Shown(pool).wait_for(end, 10) == end


async def test_a_rebuild_makes_tables_where_there_were_none(log: MemoryLog, pool: Pool, clock: ManualClock) -> None:
    """An empty database is as good a start as any; what a rebuild that died left behind is cleared away."""
    async with pool.acquire() as conn:
        await schema.create(conn, schema.FRESH)
        await schema.create(conn, schema.OLD)
    end = await record(log, range(5), clock)

    assert (await rebuild(log, pool)).position == end
    assert len(await job_view.jobs(pool)) == 5


async def test_one_rebuild_at_a_time(log: MemoryLog, pool: Pool) -> None:
    """A second one is refused, and the first is not disturbed."""
    async with pool.acquire() as conn, schema.alone(conn):
        with pytest.raises(Fault) as refused:
            await rebuild(log, pool)
        assert refused.value.code == "rebuild_running"

    await rebuild(log, pool)


async def test_a_rebuild_waits_for_no_reader_before_the_swap(log: MemoryLog, pool: Pool, clock: ManualClock) -> None:
    """A long report holds the old tables open: others see the new ones all the same."""
    await record(log, range(3), clock)
    await rebuild(log, pool)
    await record(log, range(3, 6), clock)
    async with pool.acquire() as conn:
        report = conn.transaction()
        await report.start()
        await conn.fetch("SELECT * FROM live.job_view")
        rebuilding = asyncio.create_task(rebuild(log, pool))
        assert await Shown(pool).wait_for(await log.end(), 10) == await log.end()
        assert not rebuilding.done()  # the old ones are dropped when the report is done with them
        await report.rollback()
        await rebuilding
