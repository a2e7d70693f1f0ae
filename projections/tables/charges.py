"""What a month is charged with: records of use, grants, corrections by operators; read from several tables, in one order."""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from events.base import AccountId, JobId, Position, RunId, TeamId
from projections.tables.period_view import PeriodRow
from runtime.postgres import Connection, Pool

# The order is (account, began, id). Each part has an index in that order, so that a page costs what is in it.
# What is stored after its month was closed counts in the first month that was open then: those records are looked up
# once for an export (`LATE`), by when they were stored, and named to every page.
USED: Final = """
SELECT account, began, usage_id AS id, 'usage' AS kind, entry, run_id, job_id, team, gpu_type, gpu_us, amount_micro,
       nano_per_gpu_hour, began AS from_at, ended AS to_at, corrects, cause, prices, counted_at, '' AS reason, 0 AS of_entry, at,
       position, event_id
FROM live.usage_record
"""
BEHIND: Final = """
  AND position <= $5 AND (account, began, usage_id) > ($6, $7, $8)
  AND ($9::text IS NULL OR account = $9) AND ($10::text IS NULL OR team = $10)
ORDER BY account, began, usage_id LIMIT $11
"""
ENTERED: Final = """
SELECT told.account, told.at AS began, lpad(told.entry::text, 10, '0') COLLATE "C" AS id,
       CASE WHEN told.kind = 'granted' THEN 'grant' WHEN told.cause = 'refund' THEN 'refund' ELSE 'adjustment' END AS kind,
       told.entry, paid.run_id, paid.job_id, paid.team, '' AS gpu_type, 0 AS gpu_us, told.amount_micro,
       0 AS nano_per_gpu_hour, coalesce(used.began, told.at) AS from_at, coalesce(used.ended, told.at) AS to_at,
       false AS corrects, coalesce(told.cause, '') AS cause, 0 AS prices, told.at AS counted_at,
       coalesce(told.reason, '') AS reason, coalesce(told.of_entry, 0) AS of_entry, told.at, told.position, told.event_id
FROM live.credit_entry AS told
LEFT JOIN live.credit_entry AS paid ON (paid.account, paid.entry) = (told.account, told.of_entry)
LEFT JOIN LATERAL (
    SELECT min(began) AS began, max(ended) AS ended FROM live.usage_record
    WHERE usage_id > paid.run_id || '-' AND usage_id < paid.run_id || '.'
) AS used ON true
WHERE told.kind IN ('granted', 'adjusted') AND told.cause IS DISTINCT FROM 'uncovered'
  AND (told.at >= $2 OR told.position > $4) AND told.at < $3 AND told.position <= $5
  AND (told.account, told.at, lpad(told.entry::text, 10, '0') COLLATE "C") > ($6, $7, $8)
  AND ($9::text IS NULL OR told.account = $9) AND ($10::text IS NULL OR paid.team = $10)
ORDER BY told.account, told.at, told.entry LIMIT $11
"""
PAGE: Final = f"""
({USED} WHERE month = $1 {BEHIND})
UNION ALL ({USED} WHERE usage_id = ANY($12) {BEHIND})
UNION ALL ({ENTERED})
ORDER BY 1, 2, 3 LIMIT $11
"""
LATE: Final = """
SELECT usage_id FROM live.usage_record WHERE position > $1 AND position <= $2 AND month < $3
"""
PAGE_MAX: Final = 10_000
MAX_POSITION: Final = (1 << 63) - 1
FIRST: Final = datetime.min.replace(tzinfo=UTC)


class ChargeKind(StrEnum):
    """What an account is charged with, or given."""

    USAGE = "usage"  # a record of use, or a correction of earlier ones
    GRANT = "grant"
    REFUND = "refund"  # of what was committed, by an operator
    ADJUSTMENT = "adjustment"  # by an operator, of nothing in particular


class Charge(msgspec.Struct, gc=False):
    """A record of use, or an entry that is a charge of its own. What its kind says nothing of is None, empty or 0."""

    account: AccountId
    began: datetime  # with account and id, its place in the order
    id: str  # of a record of use, its `usage_id`; else the entry, as ten digits
    kind: str  # a `ChargeKind`
    entry: int
    run_id: RunId | None
    job_id: JobId | None
    team: TeamId | None
    gpu_type: str
    gpu_us: int  # GPU-microseconds; less than 0 in a correction
    amount_micro: int  # of a record of use, what it costs; else what the balance changed by
    nano_per_gpu_hour: int
    from_at: datetime  # of what is charged; of a correction or refund, of what that is about
    to_at: datetime  # exclusive
    corrects: bool
    cause: str
    prices: Position
    counted_at: datetime  # the CloudEvents time; of an entry, when it was stored
    reason: str
    of_entry: int
    at: datetime  # when it was stored
    position: Position
    event_id: str  # CloudEvents id


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Which charges are meant."""

    month: str  # "2026-11"
    start: datetime
    end: datetime  # exclusive
    through: Position  # the last position that counts: of the month's `PeriodClosed`, or of now
    after: Position | None = (
        None  # what was stored later than this counts here, if it is of an earlier month; None: nothing
    )
    account: str | None = None  # None: all
    team: str | None = None  # None: all, and what is of no team


class Place(NamedTuple):
    """Where in the order a page begins: after this."""

    account: str = ""
    began: datetime = FIRST
    id: str = ""


BEGINNING: Final = Place()


def closed_at(months: Sequence[PeriodRow], month: str) -> Position | None:
    """The position that closed a month, itself or with a later one; None: it is open. `months` as `period_view.months` has them."""
    return next((row.position for row in months if row.month >= month), None)


async def late(db: Pool | Connection, scope: Scope) -> list[str]:
    """The `usage_id`s of what is of an earlier month and counts in this one, because that was closed already."""
    if scope.after is None:
        return []
    records = await db.fetch(LATE, scope.after, scope.through, scope.month)
    return [record["usage_id"] for record in records]


async def page(
    db: Pool | Connection, scope: Scope, late: Sequence[str], *, after: Place = BEGINNING, limit: int = 1000
) -> list[Charge]:
    """Up to `limit` charges that follow `after`, in order. `late` as the function of that name has it."""
    beyond = MAX_POSITION if scope.after is None else scope.after
    records = await db.fetch(
        PAGE,
        scope.month,
        scope.start,
        scope.end,
        beyond,
        scope.through,
        *after,
        scope.account,
        scope.team,
        min(limit, PAGE_MAX),
        list(late),
    )
    return [Charge(*record) for record in records]
