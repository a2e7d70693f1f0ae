"""`bill_view`: what every run that an account pays for had reserved, used, cost and was given back, and why.

Of a run that was reserved for more than once, because it was not placed before, the last time.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from events.base import AccountId, JobId, Position, Recorded, RunId, TeamId
from events.credit import (
    CreditCommitted,
    CreditEvent,
    CreditRefunded,
    CreditRenewed,
    CreditReserved,
    CreditsRunningOut,
    EndedAs,
    RefundCause,
    UsageRecorded,
    UsageUncovered,
)
from projections.tables.rows import Rows, text
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
    account = excluded.account, reservation = excluded.reservation, declared = excluded.declared,
    prices = excluded.prices, reserved_at = excluded.reserved_at, state = excluded.state, covers_s = excluded.covers_s, reserved_micro = excluded.reserved_micro,
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
NAMED: Final = f"""{COLUMNS}
WHERE run_id >= $1 AND run_id < $1 || '~' AND ($2::text IS NULL OR run_id LIKE '%-' || $2)
ORDER BY run_id LIMIT $3
"""  # likewise
OF_JOB: Final = f"{COLUMNS} WHERE job_id = $1 ORDER BY reserved_at, position"  # likewise
MATCHES_MAX: Final = 6  # runs that a shortened id is shown to mean


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


def keys(records: Iterable[Recorded]) -> Iterator[RunId]:
    """The runs whose bills these records may change."""
    for recorded in records:
        if isinstance(recorded.event, CreditEvent) and (run_id := getattr(recorded.event, "run_id", "")):
            yield RunId(run_id)


def fold(bills: Rows[RunId, BillRow], event: CreditEvent, recorded: Recorded) -> BillRow | None:
    """The bill that an entry is about, as it is after it; None: it is about none. One that is settled changes no more.

    A job whose admission was taken back before it was placed is admitted to the same run again: that has a new bill then.
    """
    run_id = RunId(getattr(event, "run_id", ""))
    row = bills.get(run_id) if run_id else None
    if isinstance(event, CreditReserved) and (row is None or row.state == BillState.SETTLED):
        row = _reserved(event, recorded)
        bills.put(row)
    elif row is not None and row.state == BillState.RESERVED and row.account == event.account and _change(row, event):
        row.position = recorded.position
        if row.outcome is not None and row.reserved_micro == row.committed_micro + row.refunded_micro:
            row.state, row.settled_at = BillState.SETTLED, recorded.at
        bills.put(row)
    return row


def _reserved(event: CreditReserved, recorded: Recorded) -> BillRow:
    return BillRow(
        run_id=event.run_id,
        job_id=event.job_id,
        team=event.team,
        account=event.account,
        reservation=event.entry,
        state=BillState.RESERVED,
        declared=event.declared,
        covers_s=event.covers_s,
        reserved_micro=event.amount_micro,
        committed_micro=0,
        refunded_micro=0,
        uncovered_micro=0,
        bearer=None,
        gpu_type=None,
        nano_per_gpu_hour=max((rate.nano_per_gpu_hour for rate in event.rates), default=0),
        gpu_us=0,
        waived_us=0,
        outcome=None,
        running_out=None,
        evidence=[],
        prices=event.prices,
        reserved_at=recorded.at,
        settled_at=None,
        position=recorded.position,
    )


def _change(row: BillRow, event: CreditEvent) -> bool:
    """Whether an entry says something of a bill that is not settled: then its row says so too."""
    match event:
        case CreditRenewed():
            row.reserved_micro += event.amount_micro
            row.covers_s += event.covers_s
            row.running_out = None
        case CreditsRunningOut():
            row.running_out = event.until
        case UsageRecorded():
            row.gpu_us += event.gpu_us
            row.gpu_type, row.nano_per_gpu_hour = text(event.gpu_type), event.nano_per_gpu_hour
        case UsageUncovered():
            row.uncovered_micro += event.amount_micro
            row.bearer = event.bearer
        case CreditCommitted():
            row.committed_micro += event.amount_micro
            row.gpu_us, row.outcome = event.gpu_us, event.outcome
            row.gpu_type, row.nano_per_gpu_hour = text(event.gpu_type), event.nano_per_gpu_hour
        case CreditRefunded():
            row.refunded_micro += event.amount_micro
            row.waived_us += event.gpu_us
            row.evidence += [text(one) for one in event.evidence]
            if event.cause is RefundCause.NEVER_PLACED:
                row.outcome = EndedAs.NEVER_PLACED
        case _:
            return False  # said before
    return True


async def bill(db: Pool | Connection, run_id: RunId) -> BillRow | None:
    """The bill of a run; None: nobody pays for it."""
    record = await db.fetchrow(OF_RUN, run_id)
    return BillRow(*record) if record is not None else None


async def named(db: Pool | Connection, name: str) -> list[BillRow]:
    """The bills of the runs whose id is or begins with `name`, at most `MATCHES_MAX`.

    Also of those whose job's begins so and whose attempt is the one at its end: `j7q2-1` means `j7q2mc4kx3tfa9-1`.
    """
    if not name or not name.isascii() or "\0" in name:
        return []
    job, _, attempt = name.rpartition("-")
    begins, last = (job, attempt) if job and attempt.isdecimal() else (name, None)
    found = [BillRow(*record) for record in await db.fetch(NAMED, begins, last, MATCHES_MAX)]
    return [bill for bill in found if bill.run_id == name] or found


async def bills_of(db: Pool | Connection, job_id: JobId) -> list[BillRow]:
    """The bills of a job's attempts, the first one first."""
    return [BillRow(*record) for record in await db.fetch(OF_JOB, job_id)]
