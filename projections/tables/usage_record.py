"""`usage_record`: what runs used and cost, in each hour of the clock and at their end. Rows are only ever added."""

from datetime import UTC, datetime
from typing import Final

import msgspec

from events.base import START, AccountId, JobId, Position, Recorded, RunId, TeamId
from events.credit import CreditEvent, UsageRecorded
from projections.tables.rows import Added, text
from runtime.postgres import Connection, Pool

WRITE: Final = """
INSERT INTO usage_record SELECT * FROM json_populate_recordset(NULL::usage_record, $1::json)
ON CONFLICT (usage_id) DO NOTHING
"""
COLUMNS: Final = """
SELECT usage_id, account, entry, run_id, job_id, team, gpu_type, gpu_us, amount_micro, nano_per_gpu_hour, began, ended,
       corrects, cause, prices, counted_at, month, at, position, event_id
FROM live.usage_record
"""
IN_ORDER: Final = f"{COLUMNS} WHERE position > $1 ORDER BY position LIMIT $2"  # of the constant above
OF_RUN: Final = f"{COLUMNS} WHERE usage_id > $1 || '-' AND usage_id < $1 || '.' ORDER BY position"  # '.' follows '-'
PAGE_MAX: Final = 10_000


class UsageRow(msgspec.Struct, gc=False):
    """A record of use."""

    usage_id: str  # "<run>-<number>"
    account: AccountId
    entry: int
    run_id: RunId
    job_id: JobId
    team: TeamId
    gpu_type: str
    gpu_us: int  # GPU-microseconds; less than 0 in a correction
    amount_micro: int
    nano_per_gpu_hour: int
    began: datetime
    ended: datetime  # exclusive
    corrects: bool
    cause: str  # of a correction
    prices: Position  # of the document that its price is from
    counted_at: datetime  # its CloudEvents time: when it began; of a correction, when that was made
    month: str  # "2026-11", of UTC: the one that it counts in, that of `counted_at`
    at: datetime  # when it was stored
    position: Position
    event_id: str  # CloudEvents id


def rows() -> Added[UsageRow]:
    """Rows to add."""
    return Added(write=WRITE)


def fold(usage: Added[UsageRow], event: CreditEvent, recorded: Recorded) -> None:
    """What was used is recorded, from when that was first said under its id."""
    if not isinstance(event, UsageRecorded):
        return
    row = UsageRow(
        usage_id=text(event.usage_id),
        account=event.account,
        entry=event.entry,
        run_id=event.run_id,
        job_id=event.job_id,
        team=event.team,
        gpu_type=text(event.gpu_type),
        gpu_us=event.gpu_us,
        amount_micro=event.amount_micro,
        nano_per_gpu_hour=event.nano_per_gpu_hour,
        began=event.began,
        ended=event.ended,
        corrects=event.corrects,
        cause=text(event.cause),
        prices=event.prices,
        counted_at=event.at,
        month=month_of(event.at),
        at=recorded.at,
        position=recorded.position,
        event_id=text(recorded.id),
    )
    usage.add(row)


def month_of(at: datetime) -> str:
    """The month that a time lies in, in UTC: "2026-11"."""
    return at.astimezone(UTC).isoformat()[:7]


async def usage(db: Pool | Connection, *, after: Position = START, limit: int = 1000) -> list[UsageRow]:
    """Up to `limit` records in log order, after the one at position `after`."""
    return [UsageRow(*record) for record in await db.fetch(IN_ORDER, after, min(limit, PAGE_MAX))]


async def usage_of(db: Pool | Connection, run_id: RunId) -> list[UsageRow]:
    """The records of a run, in log order."""
    return [UsageRow(*record) for record in await db.fetch(OF_RUN, run_id)]
