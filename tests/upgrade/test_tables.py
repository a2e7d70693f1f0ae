"""Projectors of two versions over one log and one database: tables are of one version, and the other stands still."""

import asyncio

import pytest

from events.log.memory import MemoryLog
from projections.tables import projection_position, schema, unreadable
from projections.tables.projector import Progress, project
from projections.tables.rebuild import rebuild
from projections.tables.waiting import Shown
from runtime.clock import ManualClock
from runtime.fault import Fault
from runtime.postgres import Pool
from tests.projections.tables.running import projecting, record


async def test_who_runs_on_beside_newer_tables_leaves_them_alone(
    log: MemoryLog, pool: Pool, clock: ManualClock
) -> None:
    """A projector whose tables were made anew by a newer version under its hands does not write into those."""
    older = asyncio.create_task(project(log, pool, Progress()))
    await Shown(pool).wait_for(await record(log, range(3), clock), 10)
    await pool.execute("UPDATE live.projection_position SET fold = fold + 1")  # as after the newer one's rebuild
    made = (await projection_position.shown(pool)).position
    await record(log, range(3, 6), clock)
    newer = f"made by version {schema.FOLD_VERSION + 1} of the fold"
    with pytest.raises(Fault, match=newer) as refused:
        await asyncio.wait_for(older, 10)
    assert (refused.value.code, "Run that version" in refused.value.hint) == ("tables_of_another_version", True)
    assert (await projection_position.shown(pool)).position == made


async def test_what_an_older_version_passed_over_asks_for_a_rebuild(
    log: MemoryLog, pool: Pool, clock: ManualClock
) -> None:
    """A record of a type that it did not know changed nothing in its tables: who knows it does not go on from there."""
    async with projecting(log, pool):
        end = await record(log, range(3), clock)
        await Shown(pool).wait_for(end, 10)
    passed = "INSERT INTO live.unreadable VALUES ($1, now(), 'intake.t.j', $2, $3)"
    await pool.execute(passed, end, "musterbook.job.submitted.v1", unreadable.PARKED)
    async with projecting(log, pool):  # it was not the type: nothing is to be mended
        end = await record(log, range(3, 6), clock)
        assert await Shown(pool).wait_for(end, 10) == end
    reason = "no type is known to this version"
    await pool.execute("UPDATE live.unreadable SET reason = $1", reason)

    with pytest.raises(Fault, match=r"could not read musterbook\.job\.submitted\.v1 at 1:") as refused:
        await project(log, pool, Progress())
    assert refused.value.code == "tables_of_another_version"
    await rebuild(log, pool)
    async with projecting(log, pool):
        end = await record(log, range(6, 9), clock)
        assert await Shown(pool).wait_for(end, 10) == end
