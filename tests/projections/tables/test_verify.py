"""`verify` finds and names what is not as the log says."""

import pytest

from events.base import START, position_of
from events.log.memory import MemoryLog
from projections.tables import schema
from projections.tables.rebuild import rebuild
from projections.tables.verify import DIFFERENCES_MAX, KEYS, verify
from projections.tables.waiting import Shown
from runtime.clock import ManualClock
from runtime.fault import Fault
from runtime.postgres import Pool
from tests.projections.tables.running import projecting, record


async def test_tables_as_the_log_says_are_found_to_be_so(log: MemoryLog, pool: Pool, clock: ManualClock) -> None:
    """What was compared is counted, at the position that both reach."""
    end = await record(log, range(30), clock)
    await rebuild(log, pool)
    await record(log, range(30, 40), clock)  # nobody has projected these

    verified = await verify(log, pool)

    assert verified.same
    assert verified.position == end
    assert verified.rows == {
        **dict.fromkeys(KEYS, 0),
        "projection_position": 1,
        "job_view": 30,
        "queue_view": 1,
        "event_index": 31,
    }
    assert not await pool.fetchval(schema.EXISTS, schema.SCRATCH)


async def test_rows_changed_by_hand_are_named(log: MemoryLog, pool: Pool, clock: ManualClock) -> None:
    """A row changed, one missing and one too many: each with its key, and what it is and should be."""
    await record(log, range(5), clock)
    await rebuild(log, pool)
    await pool.execute("UPDATE live.job_view SET gpus = 7, hold_code = NULL WHERE job_id = 'j0003'")
    await pool.execute("DELETE FROM live.event_index WHERE position = $1", position_of(1, 2))
    await pool.execute("INSERT INTO live.gpu_view VALUES ('n1', 0, 1, 'u', 't', 'free', NULL, 1)")

    verified = await verify(log, pool)

    assert not verified.same
    assert verified.differing == {"job_view": 1, "gpu_view": 1, "event_index": 1}
    job, gpu, event = verified.differences
    assert (job.table, job.key, job.columns) == ("job_view", {"job_id": "j0003"}, ("gpus", "hold_code"))
    assert job.live == {"gpus": 7, "hold_code": None}
    assert job.rebuilt == {"gpus": 1, "hold_code": "not_evaluated"}
    assert (gpu.table, gpu.key, gpu.rebuilt) == ("gpu_view", {"node_id": "n1", "slot": 0}, None)
    assert (event.table, event.live) == ("event_index", None)
    assert event.rebuilt is not None
    assert event.rebuilt["type"] == "musterbook.job.submitted.v1"


async def test_differences_are_bounded_and_all_are_counted(log: MemoryLog, pool: Pool, clock: ManualClock) -> None:
    """A table that is wrong all over fills no screen, and is not made to look nearly right."""
    await record(log, range(100), clock)
    await rebuild(log, pool)
    await pool.execute("UPDATE live.job_view SET name = 'other'")

    verified = await verify(log, pool)

    assert verified.differing == {"job_view": 100}
    assert len(verified.differences) == DIFFERENCES_MAX
    assert verified.differences[0].key == {"job_id": "j0000"}


async def test_a_running_projector_is_verified_as_it_goes(log: MemoryLog, pool: Pool, clock: ManualClock) -> None:
    """Both sides are looked at in one position, whatever the projector writes meanwhile."""
    end = START
    async with projecting(log, pool):
        for start in range(0, 300, 100):
            end = await record(log, range(start, start + 100), clock)
            verified = await verify(log, pool)
            assert verified.differences == ()
            assert START <= verified.position <= end
        assert await Shown(pool).wait_for(end, 10) == end


async def test_tables_of_another_log_are_not_compared(log: MemoryLog, pool: Pool, clock: ManualClock) -> None:
    """They would differ in everything: the refusal says why."""
    await rebuild(log, pool)
    await pool.execute("UPDATE live.projection_position SET log_id = 'log-0'")

    with pytest.raises(Fault) as refused:
        await verify(log, pool)
    assert refused.value.code == "tables_of_another_log"
