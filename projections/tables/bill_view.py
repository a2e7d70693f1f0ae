"""`bill_view`: what every run that an account pays for had reserved, used, cost and was given back, and why."""

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from events.base import AccountId, JobId, Position, RunId, TeamId
from projections.tables.rows import Rows
from runtime.postgres import Connection, Pool

LOAD: Final = """
SELECT run_id, job_id, team, account, reservation, state, declared, covers_s, reserved_micro, committed_micro,
       refunded_micro, uncovered_micro, bearer, gpu_type, nano_per_gpu_hour, gpu_us, waived_us, outcome, running_out,
       evidence, prices, reserved_at, settled_at, position
FROM bill_view WHERE run_id = ANY($1)
"""
WRITE: Final = """
INSERT INTO bill_view SELECT * FROM json_populate_recordset(NULL::bill_view, $1::json)
ON CONFLICT (run_id) DO UPDATE SET
    state = excluded.state, covers_s = excluded.covers_s, reserved_micro = excluded.reserved_micro,
    committed_micro = excluded.committed_micro, refunded_micro = excluded.refunded_micro,
    uncovered_micro = excluded.uncovered_micro, bearer = excluded.bearer, gpu_type = excluded.gpu_type,
    nano_per_gpu_hour = excluded.nano_per_gpu_hour, gpu_us = excluded.gpu_us, waived_us = excluded.waived_us,
    outcome = excluded.outcome, running_out = excluded.running_out, evidence = excluded.evidence,
    settled_at = excluded.settled_at, position = excluded.position
"""
COLUMNS: Final = """
SELECT run_id, job_id, team, account, reservation, state, declared, covers_s, reserved_micro, committed_micro,
       refunded_micro, uncovered_micro, bearer, gpu_type, nano_per_gpu_hour, gpu_us, waived_us, outcome, running_out,
       evidence, prices, reserved_at, settled_at, position
FROM live.bill_view
"""
OF_RUN: Final = f"{COLUMNS} WHERE run_id = $1"  # of the constant above
OF_JOB: Final = f"{COLUMNS} WHERE job_id = $1 ORDER BY reserved_at, position"  # likewise
RESERVED: Final = f"""{COLUMNS}
WHERE account = $1 AND state = 'reserved' AND reservation > $2 ORDER BY reservation LIMIT $3
"""  # likewise
PAGE_MAX: Final = 10_000


class BillState(StrEnum):
    """Where a reservation stands."""

    RESERVED = "reserved"  # the run waits, goes on, or is over and not settled yet
    SETTLED = "settled"  # what was used is committed, the rest given back


class BillRow(msgspec.Struct, gc=False):
    """A run that an account pays for. Reserved = committed + refunded, once it is settled."""

    run_id: RunId
    job_id: JobId
    team: TeamId
    account: AccountId
    reservation: int  # the entry of its `CreditReserved`
    state: str  # a `BillState`
    declared: bool  # its runtime was
    covers_s: int  # for so long, with what was renewed
    reserved_micro: int  # ever, with what was renewed
    committed_micro: int
    refunded_micro: int
    uncovered_micro: int  # used beyond what was reserved
    bearer: str | None  # of that, a `Bearer`
    gpu_type: str | None  # once something was recorded of its use
    nano_per_gpu_hour: int  # of that type; before, of the dearest that it may get
    gpu_us: int  # GPU-microseconds charged: recorded so far; once committed, all
    waived_us: int  # GPU-microseconds that were used and are not charged
    outcome: str | None  # an `EndedAs`, once it is over
    running_out: datetime | None  # its account could not pay for it beyond this
    evidence: list[str]  # CloudEvents ids of what proves why it was given back
    prices: Position  # of the document that its prices are from
    reserved_at: datetime
    settled_at: datetime | None
    position: Position  # of the last event that changed it


def rows() -> Rows[RunId, BillRow]:
    """The table, with nothing read yet."""
    return Rows(BillRow, lambda row: row.run_id, load=LOAD, write=WRITE)


async def bill(db: Pool | Connection, run_id: RunId) -> BillRow | None:
    """The bill of a run; None: nobody pays for it."""
    record = await db.fetchrow(OF_RUN, run_id)
    return BillRow(*record) if record is not None else None


async def bills_of(db: Pool | Connection, job_id: JobId) -> list[BillRow]:
    """The bills of a job's attempts, the first one first."""
    return [BillRow(*record) for record in await db.fetch(OF_JOB, job_id)]


async def reserved(db: Pool | Connection, account: str, *, after: int = 0, limit: int = 1000) -> list[BillRow]:
    """The reservations of an account that are not settled, after the one of entry `after`, the oldest first."""
    return [BillRow(*record) for record in await db.fetch(RESERVED, account, after, min(limit, PAGE_MAX))]
