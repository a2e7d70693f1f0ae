"""`ask_view`: what operators asked of accounts, and what became of it."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from events.base import AccountId, AskId, Position, Recorded
from events.credit import AccountClosed, AskRefused, CreditAdjusted, CreditEvent, CreditGranted
from events.teller import AdjustmentAsked, GrantAsked, TellerEvent
from projections.tables.account_view import AccountRow
from projections.tables.rows import Rows, text
from runtime.postgres import Connection, Pool

LOAD: Final = """
SELECT ask_id, account, kind, amount_micro, state, code, message, entry, by, reason, asked_at, position
FROM ask_view WHERE ask_id = ANY($1)
"""
WRITE: Final = """
INSERT INTO ask_view SELECT * FROM json_populate_recordset(NULL::ask_view, $1::json)
ON CONFLICT (ask_id) DO UPDATE SET
    state = excluded.state, code = excluded.code, message = excluded.message, entry = excluded.entry,
    position = excluded.position
"""
OPEN: Final = "SELECT ask_id FROM ask_view WHERE account = ANY($1) AND state = 'asked'"
ONE: Final = """
SELECT ask_id, account, kind, amount_micro, state, code, message, entry, by, reason, asked_at, position
FROM live.ask_view WHERE ask_id = $1
"""
OF_ACCOUNT: Final = """
SELECT ask_id, account, kind, amount_micro, state, code, message, entry, by, reason, asked_at, position
FROM live.ask_view WHERE account = $1 ORDER BY asked_at DESC, ask_id DESC LIMIT $2
"""
PAGE_MAX: Final = 1_000


class AskKind(StrEnum):
    """What was asked for."""

    GRANT = "grant"
    ADJUSTMENT = "adjustment"


class AskState(StrEnum):
    """What became of it."""

    ASKED = "asked"  # not answered yet
    DONE = "done"
    REFUSED = "refused"


class AskRow(msgspec.Struct, gc=False):
    """What an operator asked of an account."""

    ask_id: AskId
    account: AccountId
    kind: str  # an `AskKind`
    amount_micro: int
    state: str  # an `AskState`
    code: str | None  # of a refusal
    message: str | None  # likewise
    entry: int | None  # of the account, that answers it
    by: str
    reason: str
    asked_at: datetime
    position: Position  # of the last event that changed it


def rows() -> Rows[AskId, AskRow]:
    """The table, with nothing read yet."""
    return Rows(AskRow, lambda row: row.ask_id, load=LOAD, write=WRITE)


def keys(records: Iterable[Recorded]) -> Iterator[AskId]:
    """The asks that these records make or answer."""
    for recorded in records:
        if isinstance(recorded.event, CreditEvent | TellerEvent) and (ask_id := getattr(recorded.event, "ask_id", "")):
            yield AskId(ask_id)


async def left_open(conn: Connection, records: Iterable[Recorded]) -> list[AskId]:
    """The asks that no entry answers any more, if these records close their accounts."""
    closed = {recorded.event.account for recorded in records if isinstance(recorded.event, AccountClosed)}
    return [record[0] for record in await conn.fetch(OPEN, sorted(closed))] if closed else []


def fold(asks: Rows[AskId, AskRow], event: TellerEvent, recorded: Recorded, account: AccountRow | None) -> None:
    """It was asked, of the account as it is then. One that is closed by then has no more entries, so this says no."""
    if asks.get(event.ask_id) is not None or not isinstance(event, GrantAsked | AdjustmentAsked):
        return
    row = AskRow(
        ask_id=event.ask_id,
        account=event.account,
        kind=AskKind.GRANT if isinstance(event, GrantAsked) else AskKind.ADJUSTMENT,
        amount_micro=event.amount_micro,
        state=AskState.ASKED,
        code=None,
        message=None,
        entry=None,
        by=text(event.by),
        reason=text(event.reason),
        asked_at=recorded.at,
        position=recorded.position,
    )
    if account is None:
        row.state, row.code, row.message = AskState.REFUSED, "no_account", "There is no such account."
    elif account.closed:
        _too_late(row)
    asks.put(row)


def _too_late(row: AskRow) -> None:
    row.state, row.code, row.message = AskState.REFUSED, "account_closed", "The account is closed."


def close(asks: Rows[AskId, AskRow], event: AccountClosed, recorded: Recorded) -> None:
    """What was asked while the closing was decided has no answer, and never will: this says no."""
    for row in asks.kept():
        if row.account == event.account and row.state == AskState.ASKED:
            _too_late(row)
            row.position = recorded.position
            asks.put(row)


def answer(asks: Rows[AskId, AskRow], event: CreditEvent, recorded: Recorded) -> AskRow | None:
    """What an entry answers, if anything: the first answer holds."""
    if not isinstance(event, CreditGranted | CreditAdjusted | AskRefused) or not event.ask_id:
        return None
    row = asks.get(event.ask_id)
    if row is not None and row.state == AskState.ASKED and row.account == event.account:
        row.state, row.entry, row.position = AskState.DONE, event.entry, recorded.position
        if isinstance(event, AskRefused):
            row.state, row.code, row.message = AskState.REFUSED, text(event.code), text(event.message)
        asks.put(row)
    return row


async def ask(db: Pool | Connection, ask_id: str) -> AskRow | None:
    """What was asked under this id; None: nothing was."""
    record = await db.fetchrow(ONE, ask_id)
    return AskRow(*record) if record is not None else None


async def asks_of(db: Pool | Connection, account: str, *, limit: int = 100) -> list[AskRow]:
    """What was last asked of an account, the newest first."""
    return [AskRow(*record) for record in await db.fetch(OF_ACCOUNT, account, min(limit, PAGE_MAX))]
