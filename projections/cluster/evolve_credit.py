"""How credits change the cluster: documents, what operators ask, and every entry of every account."""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from events.accounts import AccountsSet
from events.base import Recorded, run_id_of
from events.credit import (
    AccountClosed,
    AdjustCause,
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
from events.period import PeriodClosed
from events.policy import Bearer
from events.prices import PricesSet
from events.teller import AdjustmentAsked, GrantAsked
from projections.cluster.credit.book import Bill, Book
from projections.cluster.credit.keep import drop_bill, put_bill
from projections.cluster.credit.payers import Payers
from projections.cluster.credit.state import Entry
from projections.cluster.job import JobState
from projections.cluster.state import Cluster


def _accounts_set(cluster: Cluster, e: AccountsSet, recorded: Recorded) -> None:
    cluster.credits.payers, cluster.credits.payers_position = Payers(e), recorded.position
    for account in e.accounts:
        if account.name not in cluster.credits.books:
            cluster.credits.books[account.name] = Book(account=account.name)


def _prices_set(cluster: Cluster, e: PricesSet, recorded: Recorded) -> None:
    cluster.credits.prices, cluster.credits.prices_position = e, recorded.position


def _asked(cluster: Cluster, e: GrantAsked | AdjustmentAsked, recorded: Recorded) -> None:
    book = cluster.credits.books.get(e.account)
    if book is not None and not book.closed:  # else the gate saw an account that is closed by now
        cluster.credits.asked[e.ask_id] = e


def _opened(cluster: Cluster, e: CreditEvent) -> Book:
    """The account that an entry is of, which it is the next of. Nothing is entered in one that is closed."""
    book = cluster.credits.books[e.account]
    assert not book.closed
    assert e.entry == book.entry + 1
    return book


def _bill_of(cluster: Cluster, e: CreditCommitted | CreditRefunded | CreditRenewed | UsageRecorded) -> Bill:
    """The bill that an entry is about, of the same account and job."""
    bill = cluster.credits.bills[e.run_id]
    assert (bill.account, bill.job_id) == (e.account, e.job_id)
    return bill


def _granted(cluster: Cluster, e: CreditGranted, recorded: Recorded) -> None:
    book = _opened(cluster, e)
    cluster.credits.asked.pop(e.ask_id)
    cluster.credits.books[e.account] = replace(book, entry=e.entry, granted=book.granted + e.amount_micro)


def _adjusted(cluster: Cluster, e: CreditAdjusted, recorded: Recorded) -> None:
    book, entry = _opened(cluster, e), Entry(e.account, e.of_entry)
    if e.cause is AdjustCause.UNCOVERED:
        owed = cluster.credits.debts[entry] + e.amount_micro
        assert owed >= 0 > e.amount_micro
        if owed:
            cluster.credits.debts[entry] = owed
        else:
            del cluster.credits.debts[entry]
    else:
        cluster.credits.asked.pop(e.ask_id)
    if e.cause is AdjustCause.REFUND:
        cluster.credits.given_back[entry] = cluster.credits.given_back.get(entry, 0) + e.amount_micro
    cluster.credits.books[e.account] = replace(book, entry=e.entry, adjusted=book.adjusted + e.amount_micro)


def _ask_refused(cluster: Cluster, e: AskRefused, recorded: Recorded) -> None:
    book = _opened(cluster, e)
    cluster.credits.asked.pop(e.ask_id)
    cluster.credits.books[e.account] = replace(book, entry=e.entry)


def _reserved(cluster: Cluster, e: CreditReserved, recorded: Recorded) -> None:
    book, job = _opened(cluster, e), cluster.jobs[e.job_id]
    assert job.state is JobState.ADMITTED
    assert (e.team, e.run_id) == (job.team, run_id_of(job.job_id, job.attempt + 1))
    assert e.run_id not in cluster.credits.bills
    assert e.rates
    cluster.credits.books[e.account] = replace(
        book, entry=e.entry, reserved=book.reserved + e.amount_micro, reservations=book.reservations + 1
    )
    put_bill(
        cluster,
        Bill(
            run_id=e.run_id,
            job_id=e.job_id,
            team=e.team,
            account=e.account,
            reservation=e.entry,
            reserved_at=recorded.at,
            reserved_micro=e.amount_micro,
            age=job.submitted,
            gpus=e.gpus,
            covers_s=e.covers_s,
            declared=e.declared,
            rates=e.rates,
            step_s=e.step_s,
            charge_from=e.charge_from,
            prices=e.prices,
            effective_from=e.effective_from,
        ),
    )


def _renewed(cluster: Cluster, e: CreditRenewed, recorded: Recorded) -> None:
    book, bill = _opened(cluster, e), _bill_of(cluster, e)
    assert (bill.reservation, bill.end) == (e.reservation, None)
    cluster.credits.books[e.account] = replace(book, entry=e.entry, reserved=book.reserved + e.amount_micro)
    put_bill(
        cluster,
        replace(
            bill,
            reserved_micro=bill.reserved_micro + e.amount_micro,
            covers_s=bill.covers_s + e.covers_s,
            running_out=None,
        ),
    )


def _running_out(cluster: Cluster, e: CreditsRunningOut, recorded: Recorded) -> None:
    book, bill = _opened(cluster, e), cluster.credits.bills[e.run_id]
    cluster.credits.books[e.account] = replace(book, entry=e.entry)
    put_bill(cluster, replace(bill, running_out=e.until))


def _committed(cluster: Cluster, e: CreditCommitted, recorded: Recorded) -> None:
    book, bill = _opened(cluster, e), _bill_of(cluster, e)
    assert bill.end is not None
    assert (bill.reservation, bill.committed) == (e.reservation, False)
    assert e.amount_micro <= bill.reserved_micro
    cluster.credits.books[e.account] = replace(
        book, entry=e.entry, committed=book.committed + e.amount_micro, reserved=book.reserved - e.amount_micro
    )
    _resolve(cluster, replace(bill, reserved_micro=bill.reserved_micro - e.amount_micro, committed=True))


def _refunded(cluster: Cluster, e: CreditRefunded, recorded: Recorded) -> None:
    book, bill = _opened(cluster, e), _bill_of(cluster, e)
    assert bill.reservation == e.reservation
    assert e.amount_micro <= bill.reserved_micro
    cluster.credits.books[e.account] = replace(book, entry=e.entry, reserved=book.reserved - e.amount_micro)
    _resolve(cluster, replace(bill, reserved_micro=bill.reserved_micro - e.amount_micro))


def _resolve(cluster: Cluster, bill: Bill) -> None:
    """The bill is as it is now; one that is over, and of which nothing is reserved any more, is settled."""
    if bill.end is None or bill.reserved_micro:
        put_bill(cluster, bill)
        return
    drop_bill(cluster, bill.run_id)
    book = cluster.credits.books[bill.account]
    cluster.credits.books[bill.account] = replace(book, reservations=book.reservations - 1)


def _uncovered(cluster: Cluster, e: UsageUncovered, recorded: Recorded) -> None:
    book = _opened(cluster, e)
    assert e.run_id in cluster.credits.bills
    cluster.credits.books[e.account] = replace(book, entry=e.entry)
    if e.bearer is Bearer.ACCOUNT and e.amount_micro:
        cluster.credits.debts[Entry(e.account, e.entry)] = e.amount_micro


def _usage_recorded(cluster: Cluster, e: UsageRecorded, recorded: Recorded) -> None:
    book, bill = _opened(cluster, e), _bill_of(cluster, e)
    cluster.credits.books[e.account] = replace(book, entry=e.entry)
    put_bill(
        cluster,
        replace(
            bill,
            recorded_us=bill.recorded_us + e.gpu_us,
            recorded_micro=bill.recorded_micro + e.amount_micro,
            recorded_until=bill.recorded_until if e.corrects else e.ended,
            records=bill.records + 1,
        ),
    )


def _account_closed(cluster: Cluster, e: AccountClosed, recorded: Recorded) -> None:
    book = _opened(cluster, e)
    assert not book.reservations
    cluster.credits.books[e.account] = replace(book, entry=e.entry, closed=True)


def _period_closed(cluster: Cluster, e: PeriodClosed, recorded: Recorded) -> None:
    assert e.month > cluster.credits.month_closed
    cluster.credits.month_closed = e.month


CREDIT_CHANGES: Final[dict[type, Callable[[Cluster, Any, Recorded], None]]] = {
    AccountsSet: _accounts_set,
    PricesSet: _prices_set,
    GrantAsked: _asked,
    AdjustmentAsked: _asked,
    CreditGranted: _granted,
    CreditAdjusted: _adjusted,
    AskRefused: _ask_refused,
    CreditReserved: _reserved,
    CreditRenewed: _renewed,
    CreditsRunningOut: _running_out,
    CreditCommitted: _committed,
    CreditRefunded: _refunded,
    UsageUncovered: _uncovered,
    UsageRecorded: _usage_recorded,
    AccountClosed: _account_closed,
    PeriodClosed: _period_closed,
}
