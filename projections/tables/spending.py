"""How fast accounts spend, what jobs cost so far, and what keeps months open: read from several tables of credits."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from events.base import AccountId, JobId, RunId
from runtime.postgres import Connection, Pool

RECORDED: Final = """
SELECT account.account,
       (SELECT coalesce(sum(amount_micro), 0)::bigint FROM live.usage_record
        WHERE account = account.account AND month >= $2 AND counted_at >= $3),
       (SELECT began FROM live.usage_record WHERE account = account.account ORDER BY month, position LIMIT 1)
FROM live.account_view AS account WHERE $1::text IS NULL OR account.account = $1
"""
# A run without a record counts from its start: where one counts from its placement, that much is not foretold.
RUNNING: Final = """
SELECT bill.account, coalesce(
           (SELECT max(ended) FROM live.usage_record
            WHERE usage_id > bill.run_id || '-' AND usage_id < bill.run_id || '.'), run.started_at),
       run.gpus, bill.nano_per_gpu_hour
FROM live.bill_view AS bill JOIN live.run_view AS run USING (run_id)
WHERE bill.state = 'reserved' AND ($1::text IS NULL OR bill.account = $1)
  AND run.started_at IS NOT NULL AND run.ended_at IS NULL
"""
COSTS: Final = """
SELECT job_id,
       (array_agg(account ORDER BY reserved_at DESC, position DESC))[1],
       sum(CASE WHEN state = 'reserved' THEN reserved_micro - committed_micro - refunded_micro ELSE 0 END)::bigint,
       bool_or(state = 'reserved'),
       sum(committed_micro + CASE WHEN bearer = 'account' THEN uncovered_micro ELSE 0 END)::bigint
FROM live.bill_view WHERE job_id = ANY($1) GROUP BY job_id
"""
GIVEN_BACK: Final = """
SELECT paid.job_id, paid.run_id, sum(given.amount_micro)::bigint
FROM live.credit_entry AS paid
JOIN live.credit_entry AS given ON given.account = paid.account AND given.of_entry = paid.entry
    AND given.kind = 'adjusted' AND given.cause = 'refund'
WHERE paid.kind = 'committed' AND paid.job_id = ANY($1) GROUP BY paid.job_id, paid.run_id
"""
UNRECORDED_BEFORE: Final = """
SELECT count(*) FROM live.bill_view AS bill JOIN live.run_view AS run USING (run_id)
WHERE bill.state = 'reserved' AND run.placed_at < $1 AND NOT EXISTS (
    SELECT FROM live.usage_record
    WHERE usage_id > bill.run_id || '-' AND usage_id < bill.run_id || '.' AND ended >= $1)
"""
GPU_TYPES: Final = "SELECT DISTINCT gpu_type FROM live.node_view WHERE gpu_type <> ''"
ASKS_WAITING: Final = "SELECT count(*) FROM live.ask_view WHERE state = 'asked'"


class GivenBack(NamedTuple):
    """What operators gave back of what a run was charged."""

    job_id: JobId
    run_id: RunId
    micro: int


class Recorded(NamedTuple):
    """What usage records say of an account."""

    account: AccountId
    micro: int  # of those since a time, corrections taken off
    first: datetime | None  # when the use of the first one began; None: there is none


class Running(NamedTuple):
    """A run that goes on, and that an account pays for."""

    account: AccountId
    since: datetime  # what it used up to then is recorded
    gpus: int
    nano_per_gpu_hour: int


class Cost(NamedTuple):
    """What a job's runs cost."""

    account: AccountId  # of the last one
    reserved_micro: int  # now
    reserved: bool  # whether there is a run that credits are set aside for
    charged_micro: int  # committed, and uncovered use that the account bears


async def recorded(db: Pool | Connection, since: datetime, *, account: str | None = None) -> list[Recorded]:
    """What was recorded of each account, or of one, since a time, in UTC."""
    return [Recorded(*record) for record in await db.fetch(RECORDED, account, f"{since:%Y-%m}", since)]


async def running(db: Pool | Connection, *, account: str | None = None) -> list[Running]:
    """The runs that go on, of all accounts or of one."""
    return [Running(*record) for record in await db.fetch(RUNNING, account)]


async def costs(db: Pool | Connection, job_ids: Sequence[JobId]) -> dict[JobId, Cost]:
    """What each of these jobs costs, those that nothing was ever reserved for left out."""
    return {job_id: Cost(*cost) for job_id, *cost in await db.fetch(COSTS, list(job_ids))}


async def given_back(db: Pool | Connection, job_ids: Sequence[JobId]) -> list[GivenBack]:
    """What was given back for runs of these jobs, those left out for which nothing was."""
    return [GivenBack(*record) for record in await db.fetch(GIVEN_BACK, list(job_ids))]


async def unrecorded_before(db: Pool | Connection, at: datetime) -> int:
    """How many runs that were placed before a time have, up to then, use that is not recorded yet."""
    number: int = await db.fetchval(UNRECORDED_BEFORE, at)
    return number


async def gpu_types(db: Pool | Connection) -> list[str]:
    """The GPU types of all nodes that ever joined."""
    return [record["gpu_type"] for record in await db.fetch(GPU_TYPES)]


async def asks_waiting(db: Pool | Connection) -> int:
    """How many asks of operators are not answered yet."""
    number: int = await db.fetchval(ASKS_WAITING)
    return number
