"""`Ledger`: the tables of credits, folded together, since an entry shows the balance of its account after it."""

from typing import Final

from events.accounts import AccountsSet
from events.base import CREDIT, PERIOD, TELLER, Recorded, Stretch, Unreadable, spelled
from events.codec import family_of, type_of
from events.credit import AccountClosed, CreditEvent
from events.period import PeriodClosed
from events.teller import TellerEvent
from projections.tables import account_view, ask_view, bill_view, credit_entry, period_view, usage_record
from runtime.fault import Fault
from runtime.postgres import Connection

EVENTS: Final = (AccountsSet, CreditEvent, TellerEvent, PeriodClosed)  # that these tables show
FAMILIES: Final = (CREDIT, TELLER, PERIOD)  # of which no record may be left out


class Ledger:
    """The tables of one schema that show accounts and what happened on them."""

    def __init__(self) -> None:
        self._accounts = account_view.rows()
        self._entries = credit_entry.rows()
        self._usage = usage_record.rows()
        self._bills = bill_view.rows()
        self._asks = ask_view.rows()
        self._periods = period_view.rows()
        self._all = (self._accounts, self._entries, self._usage, self._bills, self._asks, self._periods)

    async def load(self, conn: Connection, records: list[Recorded]) -> None:
        """What these records may change, or look at, is kept."""
        if not records:
            return
        await self._accounts.load(conn, account_view.keys(records))
        if any(isinstance(recorded.event, AccountsSet) for recorded in records):
            await self._accounts.load(conn, await account_view.listed(conn))
        await self._bills.load(conn, bill_view.keys(records))
        await self._asks.load(conn, [*ask_view.keys(records), *await ask_view.left_open(conn, records)])
        await self._periods.load(conn, period_view.keys(records))

    def fold(self, recorded: Recorded) -> None:
        """The tables show the record. An entry that its account has already changes nothing."""
        event = recorded.event
        match event:
            case CreditEvent():
                self._enter(event, recorded)
            case TellerEvent():
                ask_view.fold(self._asks, event, recorded, self._accounts.get(event.account))
            case AccountsSet():
                account_view.fold_document(self._accounts, event, recorded)
            case PeriodClosed():
                period_view.fold(self._periods, event, recorded)
            case _:
                pass  # not shown in these tables

    def _enter(self, event: CreditEvent, recorded: Recorded) -> None:
        account = account_view.opened(self._accounts, event)
        if account is None:
            return
        bill = bill_view.fold(self._bills, event, recorded)
        settled = bill is not None and bill.position == recorded.position and bill.state == bill_view.BillState.SETTLED
        account_view.enter(self._accounts, account, event, recorded, settled=settled)
        ask = ask_view.answer(self._asks, event, recorded)
        if isinstance(event, AccountClosed):
            ask_view.close(self._asks, event, recorded)
        credit_entry.fold(self._entries, event, recorded, credit_entry.Beside(account.balance_micro, bill, ask))
        usage_record.fold(self._usage, event, recorded)

    async def write(self, conn: Connection) -> None:
        """The tables have every row that is new or changed."""
        for rows in self._all:
            await rows.write(conn)

    def forget(self) -> None:
        """Nothing is kept: the tables may have changed."""
        for rows in self._all:
            rows.forget()


def before_unreadable(stretch: Stretch) -> tuple[Stretch, Fault | None]:
    """The stretch up to the first record of these families that cannot be read, and what to say of that one."""
    for index, recorded in enumerate(stretch):
        if isinstance(event := recorded.event, Unreadable) and family_of(event.subject, FAMILIES) is not None:
            return stretch[:index], fault(recorded, event.named, event.reason)
    return stretch, None


def may_park(recorded: Recorded) -> bool:
    """Whether the tables may go on without a record whose values they cannot hold."""
    return getattr(type(recorded.event), "family", None) not in FAMILIES


def fault(recorded: Recorded, named: str, reason: str) -> Fault:
    """Why the tables stand still before a record."""
    return Fault(
        "ledger_unreadable",
        f"Record {spelled(recorded.position)} on {recorded.subject!r} ({named or 'of no type'}) cannot be shown: {reason}."
        " Accounts would be wrong without it, so all tables stand still before it.",
        "Run a version of Musterbook that knows it: the one that wrote it, or a newer one. The tables go on from there.",
    )


def unfit(recorded: Recorded) -> Fault:
    """The same for one whose values no table can hold."""
    return fault(recorded, type_of(type(recorded.event)), "its values are beyond what the tables hold")
