"""`credit_entry`: every entry of every account, with the balance after it. Rows are only ever added.

Statements are read from it by `statement`.
"""

from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from events.base import AccountId, AskId, JobId, Position, Recorded, RunId, TeamId
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
from projections.tables.ask_view import AskRow
from projections.tables.bill_view import BillRow
from projections.tables.rows import Added, text
from runtime.postgres import Connection, Pool

WRITE: Final = """
INSERT INTO credit_entry SELECT * FROM json_populate_recordset(NULL::credit_entry, $1::json)
"""
ENTRIES: Final = """
SELECT account, entry, kind, amount_micro, balance_micro, run_id, job_id, team, reservation, cause, reason, by, ask_id,
       gpu_us, of_entry, evidence, at, position, event_id, gpus, covers_s, until
FROM live.credit_entry WHERE account = $1 AND entry > $2 ORDER BY entry LIMIT $3
"""
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
    gpus: int | None = None  # the most that it reserves for
    covers_s: int | None = None  # for so long, or so much longer
    until: datetime | None = None  # what is reserved lasts, where no more can be

    @property
    def change_micro(self) -> int:
        """What the balance changed by."""
        return SIGNS.get(EntryKind(self.kind), 0) * self.amount_micro


class Beside(NamedTuple):
    """What other tables say of an entry, as they are after it."""

    balance_micro: int
    bill: BillRow | None  # that it is about
    ask: AskRow | None  # that it answers


def rows() -> Added[EntryRow]:
    """Rows to add."""
    return Added(write=WRITE)


def fold(entries: Added[EntryRow], event: CreditEvent, recorded: Recorded, beside: Beside) -> None:
    """The account has the entry, with what its event does not say: who asked, and whose run it is about."""
    bill, ask = beside.bill, beside.ask
    row = EntryRow(
        account=event.account,
        entry=event.entry,
        kind=KIND_OF[type(event)],
        amount_micro=getattr(event, "amount_micro", 0),
        balance_micro=beside.balance_micro,
        run_id=getattr(event, "run_id", None),
        job_id=getattr(event, "job_id", None),
        team=getattr(event, "team", None) or (bill.team if bill is not None else None),
        reservation=getattr(event, "reservation", None) or (bill.reservation if bill is not None else None),
        cause=_cause(event),
        reason=_text(event.message if isinstance(event, AskRefused) else getattr(event, "reason", None)),
        by=_text(event.by or (ask.by if ask is not None else "")),
        ask_id=getattr(event, "ask_id", None) or None,
        gpu_us=getattr(event, "gpu_us", None),
        of_entry=getattr(event, "of_entry", None) or None,
        evidence=[text(one) for one in getattr(event, "evidence", ())],
        at=recorded.at,
        position=recorded.position,
        event_id=text(recorded.id),
        gpus=getattr(event, "gpus", None),
        covers_s=getattr(event, "covers_s", None),
        until=getattr(event, "until", None),
    )
    entries.add(row)


def _text(value: str | None) -> str | None:
    return text(value) if value else None


def _cause(event: CreditEvent) -> str | None:
    match event:
        case AskRefused():
            return _text(event.code)
        case CreditCommitted():
            return event.outcome
        case UsageUncovered():
            return event.bearer
        case CreditAdjusted() | CreditRefunded():
            return event.cause
        case UsageRecorded():
            return _text(event.cause)
        case _:
            return None


async def entries(db: Pool | Connection, account: str, *, after: int = 0, limit: int = 1000) -> list[EntryRow]:
    """The entries of an account that follow the one numbered `after`, the oldest first."""
    return [EntryRow(*record) for record in await db.fetch(ENTRIES, account, after, min(limit, PAGE_MAX))]
