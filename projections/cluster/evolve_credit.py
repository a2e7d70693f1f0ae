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
    EndedAs,
    UsageRecorded,
    UsageUncovered,
)
from events.period import PeriodClosed
from events.policy import Bearer
from events.prices import PricesSet
from events.teller import AdjustmentAsked, GrantAsked
from projections.cluster.credit.book import Bill, Book
from projections.cluster.credit.keep import drop_bill, put_bill, put_debt
from projections.cluster.credit.months import is_month, month_after
from projections.cluster.credit.payers import Payers
from projections.cluster.credit.state import Entry
from projections.cluster.job import JobState
from projections.cluster.state import Cluster


def _accounts_set(cluster: Cluster, e: AccountsSet, recorded: Recorded) -> None:
    """An account that is closed stays so, though the document may say otherwise."""
    books = cluster.credits.books
    for account in e.accounts:
        if account.name not in books:
            books[account.name] = Book(account=account.name)
    closed = {account.name for account in e.accounts if books[account.name].closed}
    cluster.credits.payers, cluster.credits.payers_position = Payers(e, closed=closed), recorded.position


def _prices_set(cluster: Cluster, e: PricesSet, recorded: Recorded) -> None:
    before = cluster.credits.prices
    since = dict(zip(before.lists, cluster.credits.prices_since, strict=True)) if before is not None else {}
    cluster.credits.prices = e
    cluster.credits.prices_since = tuple(since.get(one, recorded.position) for one in e.lists)


def _asked(cluster: Cluster, e: GrantAsked | AdjustmentAsked, recorded: Recorded) -> None:
    book = cluster.credits.books.get(e.account)
    if book is None or book.closed or e.ask_id in cluster.credits.asked:
        return  # the gate saw an account that is closed by now; or an administrator wrote it twice
    cluster.credits.asked[e.ask_id] = e


def _opened(cluster: Cluster, e: CreditEvent) -> Book:
    """The account that an entry is of, which it is the next of. Nothing is entered in one that is closed."""
    book = cluster.credits.books[e.account]
    assert not book.closed
    assert e.entry == book.entry + 1
    return book


def _bill_of(
    cluster: Cluster,
    e: CreditCommitted | CreditRefunded | CreditRenewed | CreditsRunningOut | UsageRecorded | UsageUncovered,
) -> Bill:
    """The bill that an entry is about, of the same account and job."""
    bill = cluster.credits.bills[e.run_id]
    assert (bill.account, bill.job_id) == (e.account, e.job_id)
    if not isinstance(e, UsageRecorded):
        assert bill.reservation == e.reservation
    return bill


def _ask_of(cluster: Cluster, e: CreditGranted | CreditAdjusted | AskRefused) -> GrantAsked | AdjustmentAsked:
    """The ask that an entry answers, of the same account."""
    ask = cluster.credits.asked[e.ask_id]
    assert ask.account == e.account
    return ask


def _granted(cluster: Cluster, e: CreditGranted, recorded: Recorded) -> None:
    book, ask = _opened(cluster, e), _ask_of(cluster, e)
    assert isinstance(ask, GrantAsked)
    assert e.amount_micro == ask.amount_micro
    del cluster.credits.asked[e.ask_id]
    cluster.credits.books[e.account] = replace(book, entry=e.entry, granted=book.granted + e.amount_micro)


def _adjusted(cluster: Cluster, e: CreditAdjusted, recorded: Recorded) -> None:
    book, of = _opened(cluster, e), Entry(e.account, e.of_entry)
    owed = book.owed
    if e.cause is AdjustCause.UNCOVERED:
        owed += _pay(cluster, of, e.amount_micro)
    else:
        ask = _ask_of(cluster, e)
        assert isinstance(ask, AdjustmentAsked)
        assert e.amount_micro == ask.amount_micro
        if e.cause is AdjustCause.REFUND:
            _give_back(cluster, of, ask)
        del cluster.credits.asked[e.ask_id]
    cluster.credits.books[e.account] = replace(book, entry=e.entry, adjusted=book.adjusted + e.amount_micro, owed=owed)


def _pay(cluster: Cluster, of: Entry, amount: int) -> int:
    """A debt is smaller by what was taken from its account, or gone. Returns what was, less than 0."""
    left = cluster.credits.debts[of] + amount
    assert left >= 0 > amount
    put_debt(cluster, of, left)
    return amount


def _give_back(cluster: Cluster, of: Entry, ask: AdjustmentAsked) -> None:
    """Of what an entry committed so much more was given back, and never more than all."""
    assert of.entry == ask.refunds_entry
    back = cluster.credits.given_back.get(of, 0) + ask.amount_micro
    assert back <= ask.refunds_micro
    cluster.credits.given_back[of] = back


def _ask_refused(cluster: Cluster, e: AskRefused, recorded: Recorded) -> None:
    book = _opened(cluster, e)
    _ask_of(cluster, e)
    del cluster.credits.asked[e.ask_id]
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
            named=job.spec.account,
            accepts=job.spec.gpu_types,
        ),
    )


def _renewed(cluster: Cluster, e: CreditRenewed, recorded: Recorded) -> None:
    book, bill = _opened(cluster, e), _bill_of(cluster, e)
    assert bill.end is None
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
    book, bill = _opened(cluster, e), _bill_of(cluster, e)
    assert bill.end is None
    cluster.credits.books[e.account] = replace(book, entry=e.entry)
    put_bill(cluster, replace(bill, running_out=e.until))


def _committed(cluster: Cluster, e: CreditCommitted, recorded: Recorded) -> None:
    book, bill = _opened(cluster, e), _bill_of(cluster, e)
    _assert_unpaid(bill)
    assert e.amount_micro <= bill.reserved_micro
    settled = _resolve(cluster, replace(bill, reserved_micro=bill.reserved_micro - e.amount_micro, committed=True))
    cluster.credits.books[e.account] = replace(
        book,
        entry=e.entry,
        committed=book.committed + e.amount_micro,
        reserved=book.reserved - e.amount_micro,
        reservations=book.reservations - settled,
    )


def _assert_unpaid(bill: Bill) -> None:
    """Its run was placed and is over, and what that used is not committed yet."""
    assert bill.end is not None
    assert bill.end.outcome is not EndedAs.NEVER_PLACED
    assert not bill.committed


def _refunded(cluster: Cluster, e: CreditRefunded, recorded: Recorded) -> None:
    book, bill = _opened(cluster, e), _bill_of(cluster, e)
    if bill.end is None:  # too much for the GPUs that it got
        assert e.amount_micro <= bill.reserved_micro - bill.needs_micro
    else:  # what is left, once all else is said
        assert bill.committed or bill.end.outcome is EndedAs.NEVER_PLACED
        assert e.amount_micro <= bill.reserved_micro
    settled = _resolve(cluster, replace(bill, reserved_micro=bill.reserved_micro - e.amount_micro))
    cluster.credits.books[e.account] = replace(
        book, entry=e.entry, reserved=book.reserved - e.amount_micro, reservations=book.reservations - settled
    )


def _resolve(cluster: Cluster, bill: Bill) -> bool:
    """The bill is as it is now. Returns whether it is settled: over, and nothing is reserved for it any more."""
    settled = bill.end is not None and not bill.reserved_micro
    if settled:
        drop_bill(cluster, bill.run_id)
    else:
        put_bill(cluster, bill)
    return settled


def _uncovered(cluster: Cluster, e: UsageUncovered, recorded: Recorded) -> None:
    book, bill = _opened(cluster, e), _bill_of(cluster, e)
    _assert_unpaid(bill)
    owed = e.amount_micro if e.bearer is Bearer.ACCOUNT else 0
    cluster.credits.books[e.account] = replace(book, entry=e.entry, owed=book.owed + owed)
    if owed:
        put_debt(cluster, Entry(e.account, e.entry), owed)


def _usage_recorded(cluster: Cluster, e: UsageRecorded, recorded: Recorded) -> None:
    book, bill = _opened(cluster, e), _bill_of(cluster, e)
    assert not bill.committed
    assert e.usage_id == f"{e.run_id}-{bill.records + 1}"
    assert e.corrects or min(e.gpu_us, e.amount_micro) >= 0
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
    """What the gate let an operator ask while this was decided comes too late, as what is asked after it does."""
    book = _opened(cluster, e)
    assert not book.reservations
    assert not book.owed
    for ask_id in [ask_id for ask_id, ask in cluster.credits.asked.items() if ask.account == e.account]:
        del cluster.credits.asked[ask_id]
    cluster.credits.books[e.account] = replace(book, entry=e.entry, closed=True)
    payers = cluster.credits.payers
    listed = payers.by_name.get(e.account)
    if payers.document is not None and listed is not None and not listed.closed:
        closed = {name for name in payers.by_name if cluster.credits.books[name].closed}
        cluster.credits.payers = Payers(payers.document, closed=closed)


def _period_closed(cluster: Cluster, e: PeriodClosed, recorded: Recorded) -> None:
    assert is_month(e.month)
    before = cluster.credits.month_closed
    assert not before or e.month == month_after(before)
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
