"""The auditor's reading of accounts: entries in order, what operators asked done once, accounts and months closed for ever."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from events.accounts import AccountsSet
from events.base import Recorded
from events.credit import (
    AccountClosed,
    AdjustCause,
    AskRefused,
    CreditAdjusted,
    CreditEvent,
    CreditGranted,
    CreditRenewed,
    CreditReserved,
    UsageRecorded,
)
from events.period import PeriodClosed
from events.prices import PricesSet
from events.queues import QueuesSet
from events.teller import AdjustmentAsked, GrantAsked
from projections.cluster.audit.books import Books
from projections.cluster.audit.purses import Debt, Purse, name_of

MONTH: Final = re.compile(r"[1-8][0-9]{3}-(0[1-9]|1[0-2])")


def _accounts_set(books: Books, recorded: Recorded, e: AccountsSet) -> None:
    books.credit.accounts.put(recorded.position, e)
    books.credit.overdrafts.put(recorded.position, {one.name: one.overdraft_micro for one in e.accounts})
    for account in e.accounts:
        books.credit.purses.setdefault(account.name, Purse())


def _prices_set(books: Books, recorded: Recorded, e: PricesSet) -> None:
    books.credit.prices.put(recorded.position, e)


def _queues_set(books: Books, recorded: Recorded, e: QueuesSet) -> None:
    books.credit.queues.put(recorded.position, e)


def _entry(books: Books, recorded: Recorded, e: CreditEvent) -> None:
    """Each account counts its entries, and has none after its last."""
    purse = books.credit.purses.get(e.account)
    if purse is None:
        books.find(recorded, "entries in order", f"{name_of(e)}: no document ever named the account")
        purse = books.credit.purses[e.account] = Purse()
    if purse.closed:
        books.find(recorded, "nothing after closing", f"{name_of(e)}: the account was closed")
    if e.entry != purse.entry + 1:
        books.find(recorded, "entries in order", f"{name_of(e)} follows entry {purse.entry}")
    purse.entry = e.entry


def _asked(books: Books, recorded: Recorded, e: GrantAsked | AdjustmentAsked) -> None:
    purse = books.credit.purses.get(e.account)
    if e.ask_id in books.credit.asked:
        books.find(recorded, "asked once", f"{type(e).__name__} {e.ask_id} of {e.account} was asked before")
        return
    books.credit.asked.add(e.ask_id)
    if purse is not None and not purse.closed:  # any other is never answered
        books.credit.asks[e.ask_id] = e


def _ask(
    books: Books, recorded: Recorded, e: CreditGranted | CreditAdjusted | AskRefused
) -> GrantAsked | AdjustmentAsked | None:
    """What is answered by this, now for ever; None, and noted, where nobody asked it or it has its answer."""
    ask = books.credit.asks.get(e.ask_id)
    if ask is None or ask.account != e.account:
        books.find(recorded, "asked for, and answered once", f"{name_of(e)}: no such ask {e.ask_id!r} is open")
        return None
    return books.credit.asks.pop(e.ask_id)


def _granted(books: Books, recorded: Recorded, e: CreditGranted) -> None:
    books.credit.purses[e.account].granted += e.amount_micro
    ask = _ask(books, recorded, e)
    if ask is not None and (not isinstance(ask, GrantAsked) or ask.amount_micro != e.amount_micro):
        books.find(recorded, "as asked", f"{name_of(e)}: {e.amount_micro}, asked as {ask.amount_micro}")


def _refused(books: Books, recorded: Recorded, e: AskRefused) -> None:
    _ask(books, recorded, e)


def _adjusted(books: Books, recorded: Recorded, e: CreditAdjusted) -> None:
    books.credit.purses[e.account].adjusted += e.amount_micro
    if e.cause is AdjustCause.UNCOVERED:
        _debt_paid(books, recorded, e)
    elif (ask := _ask(books, recorded, e)) is not None:
        refunds = isinstance(ask, AdjustmentAsked) and bool(ask.refunds)
        of_entry = ask.refunds_entry if isinstance(ask, AdjustmentAsked) else -1
        if ask.amount_micro != e.amount_micro or (e.cause is AdjustCause.REFUND) is not refunds:
            books.find(recorded, "as asked", f"{name_of(e)}: {e.amount_micro}, asked as {ask.amount_micro}")
        elif refunds and of_entry != e.of_entry:
            books.find(recorded, "as asked", f"{name_of(e)}: of entry {e.of_entry}, asked of {of_entry}")
    if e.cause is AdjustCause.REFUND:
        _given_back(books, recorded, e)
    if e.amount_micro < 0:
        within(books, recorded, e)


def _debt_paid(books: Books, recorded: Recorded, e: CreditAdjusted) -> None:
    debt = Debt(e.account, e.of_entry)
    owed = books.credit.debts.get(debt, 0)
    if not 0 < -e.amount_micro <= owed:
        books.find(recorded, "debts paid once", f"{name_of(e)}: {e.amount_micro}, entry {e.of_entry} owes {owed}")
    elif owed + e.amount_micro:
        books.credit.debts[debt] = owed + e.amount_micro
    else:
        del books.credit.debts[debt]


def _given_back(books: Books, recorded: Recorded, e: CreditAdjusted) -> None:
    commit = Debt(e.account, e.of_entry)
    left = books.credit.commits.get(commit, 0)
    if not 0 <= e.amount_micro <= left:
        message = f"{name_of(e)}: {e.amount_micro}, of entry {e.of_entry} there is {left} to give back"
        books.find(recorded, "no more back than was paid", message)
    books.credit.commits[commit] = left - e.amount_micro


def within(books: Books, recorded: Recorded, e: CreditReserved | CreditRenewed | CreditAdjusted) -> None:
    """What lowers a balance leaves it no lower than the account's overdraft of the time. What costs nothing may always be."""
    if not e.amount_micro:
        return
    bound = books.credit.overdrafts.at(books.decided_at).get(e.account, 0)
    balance = books.credit.purses[e.account].balance
    if bound is not None and balance < -bound:
        books.find(recorded, "within what there is", f"{name_of(e)} leaves {balance}; the overdraft is {bound}")


def _account_closed(books: Books, recorded: Recorded, e: AccountClosed) -> None:
    purse = books.credit.purses[e.account]
    document = books.credit.accounts.at(books.decided_at)
    if not any(one.closed for one in document.accounts if one.name == e.account):
        books.find(recorded, "closed when all is settled", f"{name_of(e)}: the document has it open")
    if purse.reservations:
        books.find(recorded, "closed when all is settled", f"{name_of(e)}: {purse.reservations} reservations are open")
    if any(debt.account == e.account for debt in books.credit.debts):
        books.find(recorded, "closed when all is settled", f"{name_of(e)}: it owes")
    purse.closed = True


def _period_closed(books: Books, recorded: Recorded, e: PeriodClosed) -> None:
    """Months are closed one after the other, once they are over, asked for, and recorded to their end."""
    credit = books.credit
    if not MONTH.fullmatch(e.month):
        books.find(recorded, "months in order", f"{e.month!r} is no month")
        return
    end = _end(e.month)
    through = credit.accounts.at(books.decided_at).closed_through
    due = through if not credit.month else f"{_end(credit.month):%Y-%m}"
    if e.month != due or e.month > through:
        message = f"{e.month} after {credit.month or 'none'}; they are closed through {through or 'none'}"
        books.find(recorded, "months in order", message)
    if e.at < end:
        books.find(recorded, "months that are over", f"{e.month} was closed at {e.at}")
    for run_id, charge in credit.charges.items():
        until = charge.recorded_until or charge.since
        if until is not None and until < (min(end, charge.over.ended) if charge.over is not None else end):
            books.find(recorded, "months with all their use", f"{e.month}: {run_id} is recorded until {until}")
    credit.month = e.month


def _end(month: str) -> datetime:
    year, number = int(month[:4]), int(month[5:])
    return datetime(year + (number == 12), 1 if number == 12 else number + 1, 1, tzinfo=UTC)


def _of_a_closed_month(books: Books, recorded: Recorded, e: UsageRecorded) -> None:
    if f"{e.at.astimezone(UTC):%Y-%m}" <= books.credit.month:
        books.find(recorded, "closed months stay", f"{name_of(e)} is of {e.at}; {books.credit.month} is closed")


CREDIT_READERS: Final[dict[Any, Callable[[Books, Recorded, Any], None]]] = {
    AccountsSet: _accounts_set,
    PricesSet: _prices_set,
    QueuesSet: _queues_set,
    (GrantAsked, AdjustmentAsked): _asked,
    CreditEvent: _entry,
    CreditGranted: _granted,
    CreditAdjusted: _adjusted,
    AskRefused: _refused,
    AccountClosed: _account_closed,
    PeriodClosed: _period_closed,
    UsageRecorded: _of_a_closed_month,
}
