"""`Tables` takes stretches: what no table can hold is parked, and what was not written is not remembered."""

from typing import Any

import asyncpg
import msgspec
import pytest

from events.base import START, JobId, TeamId, position_of
from events.job import HoldCode, JobAdmitted, JobCancelRequested, JobHeld
from projections.tables import (
    account_view,
    alarm_view,
    ask_view,
    bill_view,
    credit_entry,
    gpu_view,
    job_view,
    node_view,
    period_view,
    promise_view,
    queue_view,
    run_view,
    schema,
    share_view,
    unreadable,
    usage_record,
)
from runtime.postgres import Pool
from tests.histories import BEGIN
from tests.projections.tables.running import submitted
from tests.projections.tables.written import empty, fill, last, recorded

COLUMNS = "SELECT array_agg(attname::text) FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0"
ROWS = {
    "job_view": job_view.JobRow,
    "run_view": run_view.RunRow,
    "share_view": share_view.ShareRow,
    "node_view": node_view.NodeRow,
    "gpu_view": gpu_view.GpuRow,
    "alarm_view": alarm_view.AlarmRow,
    "queue_view": queue_view.QueueRow,
    "promise_view": promise_view.PromiseRow,
    "account_view": account_view.AccountRow,
    "credit_entry": credit_entry.EntryRow,
    "usage_record": usage_record.UsageRow,
    "bill_view": bill_view.BillRow,
    "ask_view": ask_view.AskRow,
    "period_view": period_view.PeriodRow,
    "unreadable": unreadable.UnreadableRow,
}


def of(number: int) -> dict[str, Any]:
    """The ids of a job."""
    return {"at": BEGIN, "team": TeamId("red"), "job_id": JobId(f"j{number:04d}")}


async def test_rows_have_the_columns_of_their_tables(pool: Pool) -> None:
    """They are written by name and read by place: a column more or less, or elsewhere, would go unnoticed."""
    async with pool.acquire() as conn:
        await empty(conn, schema.LIVE)
        for name, row in ROWS.items():
            assert await conn.fetchval(COLUMNS, f"live.{name}") == list(row.__struct_fields__)


async def test_what_no_table_can_hold_is_parked(pool: Pool) -> None:
    """Among good records, those beyond all limits are named and change nothing, wherever the cuts are."""
    beyond = submitted(50, BEGIN, gpus=2**70)
    nul = JobCancelRequested(**of(1), reason="a\0b")
    long = msgspec.structs.replace(
        submitted(51, BEGIN), job_id=JobId("".join(chr(33 + n * n % 90) for n in range(90_000)))
    )
    events = [*(submitted(n, BEGIN) for n in range(40)), beyond, JobAdmitted(**of(50)), nul, long, submitted(60, BEGIN)]
    records = recorded(events)
    async with pool.acquire() as conn:
        tables = await fill(conn, schema.LIVE, [records])
        assert tables.reached.position in {START, last(records)}
        parked = await unreadable.records(conn)

    assert [row.position for row in parked] == [position_of(1, n) for n in (41, 43)]
    assert {row.named for row in parked} == {"musterbook.job.submitted.v1", "musterbook.job.cancel_requested.v1"}
    assert len(await job_view.jobs(pool)) == 42


async def test_a_stretch_that_was_not_written_is_not_remembered(pool: Pool) -> None:
    """A transaction that fails near its end leaves nothing behind, neither in the tables nor in memory."""
    records = recorded([submitted(1, BEGIN), JobHeld(**of(1), code=HoldCode.NO_ROOM), JobAdmitted(**of(1))])
    async with pool.acquire() as conn:
        tables = await fill(conn, schema.LIVE, [records[:1]])
        await conn.execute("ALTER TABLE event_index RENAME TO elsewhere")
        with pytest.raises(asyncpg.UndefinedTableError):
            await tables.take(conn, tuple(records[1:]), after=records[0].position)
        await conn.execute("ALTER TABLE elsewhere RENAME TO event_index")
        assert [job.state for job in await job_view.jobs(conn)] == ["queued"]
        assert await tables.take(conn, tuple(records[1:2]), after=records[0].position)
        (job,) = await job_view.jobs(conn)

    assert (job.state, job.hold_code) == ("queued", "no_room")


async def test_a_stretch_beyond_the_tables_is_not_taken(pool: Pool) -> None:
    """Records are missing before it: nothing is done, and the caller is told."""
    records = recorded([submitted(n, BEGIN) for n in range(9)])
    async with pool.acquire() as conn:
        tables = await fill(conn, schema.LIVE, [records[:3]])
        assert not await tables.take(conn, tuple(records[5:]), after=records[4].position)
        assert {row["count"] for row in await conn.fetch("SELECT count(*) FROM job_view")} == {3}
