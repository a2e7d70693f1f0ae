"""`account_view`: every account of the document, and every one that ever had an entry: what it has, less what is reserved."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from events.accounts import Account, AccountsSet
from events.base import AccountId, Position, Recorded
from events.credit import (
    AccountClosed,
    AdjustCause,
    CreditAdjusted,
    CreditCommitted,
    CreditEvent,
    CreditGranted,
    CreditRefunded,
    CreditRenewed,
    CreditReserved,
    UsageUncovered,
)
from events.policy import Bearer
from events.teller import TellerEvent
from projections.tables.rows import Rows
from runtime.postgres import Connection, Pool

LOAD: Final = """
SELECT account, queues, overdraft_micro, granted_micro, adjusted_micro, committed_micro, reserved_micro, balance_micro,
       debt_micro, reservations, entry, listed, closing, closed, position
FROM account_view WHERE account = ANY($1)
"""
WRITE: Final = """
INSERT INTO account_view SELECT * FROM json_populate_recordset(NULL::account_view, $1::json)
ON CONFLICT (account) DO UPDATE SET
    queues = excluded.queues, overdraft_micro = excluded.overdraft_micro, granted_micro = excluded.granted_micro,
    adjusted_micro = excluded.adjusted_micro, committed_micro = excluded.committed_micro,
    reserved_micro = excluded.reserved_micro, balance_micro = excluded.balance_micro,
    debt_micro = excluded.debt_micro, reservations = excluded.reservations, entry = excluded.entry,
    listed = excluded.listed, closing = excluded.closing, closed = excluded.closed, position = excluded.position
"""
LISTED: Final = "SELECT account FROM account_view WHERE listed"
SHOWN: Final = """
SELECT account, queues, overdraft_micro, granted_micro, adjusted_micro, committed_micro, reserved_micro, balance_micro,
       debt_micro, reservations, entry, listed, closing, closed, position
FROM live.account_view WHERE $1::text IS NULL OR account = $1 ORDER BY account
"""


class AccountRow(msgspec.Struct, gc=False):
    """An account: what the document says of it, and what its entries add up to. All in micro-credits."""

    account: AccountId
    queues: list[str] = []  # that it pays for
    overdraft_micro: int | None = 0  # None: no bound
    granted_micro: int = 0
    adjusted_micro: int = 0  # the sum of its adjustments
    committed_micro: int = 0
    reserved_micro: int = 0  # for runs that are not settled
    balance_micro: int = 0  # granted + adjusted - committed - reserved; less than 0 where it is overdrawn
    debt_micro: int = 0  # used beyond what was reserved, and not paid yet
    reservations: int = 0  # that are not settled
    entry: int = 0  # its last
    listed: bool = False  # it is in the document; else it pays for nothing new, and keeps its balance
    closing: bool = False  # the document says that it is closed
    closed: bool = False  # for ever
    position: Position = Position(0)  # of the last event that changed it

    @property
    def headroom_micro(self) -> int | None:
        """What may still be reserved or taken; None: no bound. Less than 0 where it is overdrawn beyond its bound."""
        return self.balance_micro + self.overdraft_micro if self.overdraft_micro is not None else None


def rows() -> Rows[AccountId, AccountRow]:
    """The table, with nothing read yet."""
    return Rows(AccountRow, lambda row: row.account, load=LOAD, write=WRITE)


def keys(records: Iterable[Recorded]) -> Iterator[AccountId]:
    """The accounts that these records may change, or that an ask is made of."""
    for recorded in records:
        match recorded.event:
            case CreditEvent() | TellerEvent() as e:
                yield e.account
            case AccountsSet() as e:
                yield from (account.name for account in e.accounts)
            case _:
                pass


async def listed(conn: Connection) -> list[AccountId]:
    """The accounts of the document in force: a new one takes from them what it does not name."""
    return [record["account"] for record in await conn.fetch(LISTED)]


def fold_document(accounts: Rows[AccountId, AccountRow], event: AccountsSet, recorded: Recorded) -> None:
    """The document is the one in force: an account that it leaves out keeps its row, and pays for nothing new."""
    said = {account.name: account for account in event.accounts}
    named = {row.account: row for row in accounts.kept() if row.listed} | {name: accounts.get(name) for name in said}
    for name, before in named.items():
        row = before or AccountRow(name)
        _say(row, said.get(name))
        row.position = recorded.position
        accounts.put(row)


def _say(row: AccountRow, account: Account | None) -> None:
    row.listed = account is not None
    said = account or Account(name=row.account)
    row.queues, row.overdraft_micro, row.closing = list(said.queues), said.overdraft_micro, said.closed


def opened(accounts: Rows[AccountId, AccountRow], event: CreditEvent) -> AccountRow | None:
    """The account that an entry is of; None: the account has it already, and what it said first holds."""
    row = accounts.get(event.account) or AccountRow(event.account)
    return row if event.entry > row.entry else None


def enter(
    accounts: Rows[AccountId, AccountRow], row: AccountRow, event: CreditEvent, recorded: Recorded, *, settled: bool
) -> None:
    """The account has one entry more. `settled`: with it a reservation is."""
    _move(row, event)
    row.reservations -= settled
    row.balance_micro = row.granted_micro + row.adjusted_micro - row.committed_micro - row.reserved_micro
    row.entry, row.position = event.entry, recorded.position
    accounts.put(row)


def _move(row: AccountRow, event: CreditEvent) -> None:
    match event:
        case CreditGranted():
            row.granted_micro += event.amount_micro
        case CreditAdjusted():
            row.adjusted_micro += event.amount_micro
            if event.cause is AdjustCause.UNCOVERED:
                row.debt_micro += event.amount_micro  # which is less than 0
        case CreditReserved():
            row.reserved_micro += event.amount_micro
            row.reservations += 1
        case CreditRenewed():
            row.reserved_micro += event.amount_micro
        case CreditCommitted():
            row.committed_micro += event.amount_micro
            row.reserved_micro -= event.amount_micro
        case CreditRefunded():
            row.reserved_micro -= event.amount_micro
        case UsageUncovered() if event.bearer is Bearer.ACCOUNT:
            row.debt_micro += event.amount_micro
        case AccountClosed():
            row.closed = True
        case _:
            pass  # it moves nothing


async def accounts(db: Pool | Connection) -> list[AccountRow]:
    """Every account of the document, and every one that ever had an entry, by name."""
    return [AccountRow(*record) for record in await db.fetch(SHOWN, None)]


async def account(db: Pool | Connection, name: str) -> AccountRow | None:
    """The account of this name; None: there is none, and never was."""
    record = await db.fetchrow(SHOWN, name)
    return AccountRow(*record) if record is not None else None
