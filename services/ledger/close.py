"""Accounts and months are closed, once nothing can come that belongs to them."""

from datetime import datetime
from typing import Final

from events.credit import AccountClosed
from events.period import PeriodClosed
from projections.cluster.credit.months import end_of, month_after
from projections.cluster.state import Cluster
from services.ledger.entries import Entries
from services.ledger.usage import LATE

CLOSED_MAX: Final = 1_000  # accounts in one round; the rest is the next round's


def close_accounts(entries: Entries) -> None:
    """Accounts that the document says are closed are so for ever: nothing is reserved on them, asked of them, or owed by them."""
    ledger = entries.cluster.credits
    asked: set[str] | None = None
    closed = 0
    for name in ledger.payers.closing:
        book = ledger.books[name]
        if book.closed or book.reservations or book.owed:
            continue
        if asked is None:
            asked = {ask.account for ask in ledger.asked.values()}
        if name not in asked:
            entries.write(AccountClosed(at=entries.tick.at, **entries.next(name)))
            closed += 1
        if closed == CLOSED_MAX:
            return


def close_month(entries: Entries) -> None:
    """The next month that is to be closed is, once it is over and all that was used in it is recorded."""
    month = next_month(entries.cluster)
    if month is None:
        return
    end = end_of(month)
    if end + LATE <= entries.tick.at and not _unrecorded(entries.cluster, end):
        entries.write(PeriodClosed(at=entries.tick.at, month=month))


def next_month(cluster: Cluster) -> str | None:
    """The month to close next, of those that the document says are to be closed; None: all of them are."""
    ledger = cluster.credits
    through = ledger.payers.closed_through
    if through <= ledger.month_closed:
        return None
    if not ledger.month_closed:
        return through
    return month_after(ledger.month_closed)


def _unrecorded(cluster: Cluster, end: datetime) -> bool:
    """Whether some use before `end` is not recorded yet. What is corrected later is of the month in which that is done."""
    first = next(cluster.credits.hours.line(None), None)
    if first is not None and first[0][0] <= end.timestamp():
        return True
    bills = (cluster.credits.bills[run_id] for run_id in cluster.credits.settling)
    return any(bill.counts_from is not None and (bill.recorded_until or bill.counts_from) < end for bill in bills)
