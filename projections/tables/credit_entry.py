"""`credit_entry`: every entry of every account, with its balance after it. Rows are only ever added."""

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from events.base import AccountId, AskId, JobId, Position, RunId, TeamId
from events.credit import (
    AccountClosed,
    AskRefused,
    CreditAdjusted,
    CreditCommitted,
    CreditEvent,
    CreditGranted,
    CreditRefunded,
    CreditRenewed,
    CreditReserved,
    CreditsRunningOut,
    UsageRecorded,
    UsageUncovered,
)
from runtime.postgres import Connection, Pool

TABLE: Final = "credit_entry"
# Entries and times of an account rise together, so that times say between which entries to look.
STATEMENT: Final = """
SELECT account, entry, kind, amount_micro, balance_micro, run_id, job_id, team, reservation, cause, reason, by, ask_id,
       gpu_us, of_entry, evidence, at, position, event_id
FROM live.credit_entry
WHERE account = $1 AND entry < $2
  AND entry >= CASE WHEN $3::timestamptz IS NULL THEN 0 ELSE coalesce(
      (SELECT entry FROM live.credit_entry WHERE account = $1 AND at >= $3 ORDER BY at, entry LIMIT 1), $2) END
  AND entry < CASE WHEN $4::timestamptz IS NULL THEN $2 ELSE coalesce(
      (SELECT entry FROM live.credit_entry WHERE account = $1 AND at >= $4 ORDER BY at, entry LIMIT 1), $2) END
  AND ($5::text[] IS NULL OR kind = ANY($5))
ORDER BY entry DESC LIMIT $6
"""
ENTRIES: Final = """
SELECT account, entry, kind, amount_micro, balance_micro, run_id, job_id, team, reservation, cause, reason, by, ask_id,
       gpu_us, of_entry, evidence, at, position, event_id
FROM live.credit_entry WHERE account = $1 AND entry > $2 ORDER BY entry LIMIT $3
"""
NEWEST: Final = (1 << 63) - 1  # the cursor of the first page
PAGE_MAX: Final = 1_000


class EntryKind(StrEnum):
    """What an entry is."""

    GRANTED = "granted"
    ADJUSTED = "adjusted"
    REFUSED = "refused"
    RESERVED = "reserved"
    RENEWED = "renewed"
    RUNNING_OUT = "running_out"
    COMMITTED = "committed"
    REFUNDED = "refunded"
    UNCOVERED = "uncovered"
    USAGE = "usage"
    CLOSED = "closed"


KIND_OF: Final[dict[type[CreditEvent], EntryKind]] = {
    CreditGranted: EntryKind.GRANTED,
    CreditAdjusted: EntryKind.ADJUSTED,
    AskRefused: EntryKind.REFUSED,
    CreditReserved: EntryKind.RESERVED,
    CreditRenewed: EntryKind.RENEWED,
    CreditsRunningOut: EntryKind.RUNNING_OUT,
    CreditCommitted: EntryKind.COMMITTED,
    CreditRefunded: EntryKind.REFUNDED,
    UsageUncovered: EntryKind.UNCOVERED,
    UsageRecorded: EntryKind.USAGE,
    AccountClosed: EntryKind.CLOSED,
}
# What the balance changes by, for each micro-credit of the entry's amount. A commit takes from what is reserved, and the
# balance is without that already.
SIGNS: Final = {
    EntryKind.GRANTED: 1,
    EntryKind.ADJUSTED: 1,
    EntryKind.RESERVED: -1,
    EntryKind.RENEWED: -1,
    EntryKind.REFUNDED: 1,
}


class EntryRow(msgspec.Struct, gc=False):
    """An entry. What its kind says nothing of is None."""

    account: AccountId
    entry: int
    kind: str  # an `EntryKind`
    amount_micro: int  # the event's own; 0 where it has none
    balance_micro: int  # of the account, after it
    run_id: RunId | None
    job_id: JobId | None
    team: TeamId | None
    reservation: int | None  # the entry of its `CreditReserved`
    cause: str | None  # an `AdjustCause`, a `RefundCause`, an `EndedAs`, a `Bearer`, or the code of a refusal
    reason: str | None  # what people, or a refusal, said
    by: str | None  # who asked
    ask_id: AskId | None
    gpu_us: int | None
    of_entry: int | None  # that is given back, or charged
    evidence: list[str]  # CloudEvents ids of what proves the cause
    at: datetime
    position: Position
    event_id: str  # CloudEvents id

    @property
    def change_micro(self) -> int:
        """What the balance changed by."""
        return SIGNS.get(EntryKind(self.kind), 0) * self.amount_micro


async def statement(
    db: Pool | Connection,
    account: str,
    *,
    before: int = NEWEST,
    since: datetime | None = None,
    until: datetime | None = None,
    kinds: frozenset[EntryKind] | None = None,
    limit: int = 100,
) -> list[EntryRow]:
    """Up to `limit` entries of an account, the newest first; `before` is the `entry` of the last one of the page before.

    From `since` on, to `until`, exclusive; of these kinds. None: all.
    """
    of = sorted(kinds) if kinds is not None else None
    records = await db.fetch(STATEMENT, account, before, since, until, of, min(limit, PAGE_MAX))
    return [EntryRow(*record) for record in records]


async def entries(db: Pool | Connection, account: str, *, after: int = 0, limit: int = 1000) -> list[EntryRow]:
    """The entries of an account that follow the one numbered `after`, the oldest first."""
    return [EntryRow(*record) for record in await db.fetch(ENTRIES, account, after, min(limit, PAGE_MAX))]
