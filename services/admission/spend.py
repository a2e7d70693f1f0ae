"""What accounts pay before any new job: debts, what operators take from them, and more for runs that go on."""

from datetime import timedelta
from itertools import islice
from typing import Final, TypedDict

from events.amounts import spelled_credits
from events.base import Event, JobId, RunId
from events.credit import AdjustCause, AskRefused, CreditAdjusted, CreditRenewed, CreditsRunningOut
from events.policy import PolicySet
from events.teller import AdjustmentAsked
from projections.cluster.credit.book import Bill
from projections.cluster.job import RUNTIME_MAX_S
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.admission.till import Till

PAID_MAX: Final = 1_000  # debts, and asks, in one round; the rest is the next round's
RENEWED_MAX: Final = 1_000  # runs, likewise
LOOKED_AT_MAX: Final = 1_000  # runs for which one account is asked, some in vain
LEAD_MAX_S: Final = 600  # so long before a run would be told to stop, more is reserved for it


class OfRun(TypedDict):
    """Which reservation a record is about."""

    reservation: int
    run_id: RunId
    job_id: JobId


def spend(cluster: Cluster, tick: Tick, till: Till) -> list[Event]:
    """Admission's first part of a round: what was used or promised before comes before what is new."""
    if not cluster.credits.books:
        return []
    return [*_debts(cluster, till), *_adjustments(cluster, till), *_renewals(cluster, tick, till)]


def _debts(cluster: Cluster, till: Till) -> list[Event]:
    """What accounts bear beyond what was reserved, in order of their entries, as far as they can pay."""
    events: list[Event] = []
    owing = cluster.credits.owing
    for account in sorted(owing.groups()):
        for _, owed in islice(owing.line(account), PAID_MAX - len(events)):
            if (paid := min(cluster.credits.debts[owed], till.headroom(account))) <= 0:
                break  # one that has nothing keeps no other from paying
            taken = till.enter(account, paid)
            events.append(CreditAdjusted(**taken, amount_micro=-paid, cause=AdjustCause.UNCOVERED, of_entry=owed.entry))
    return events


def _adjustments(cluster: Cluster, till: Till) -> list[Event]:
    """What operators take from accounts: done where it is covered, else refused for good."""
    downward = [
        ask for ask in cluster.credits.asked.values() if isinstance(ask, AdjustmentAsked) and ask.amount_micro < 0
    ]
    events: list[Event] = []
    for ask in sorted(downward, key=lambda ask: ask.ask_id)[:PAID_MAX]:
        headroom = till.headroom(ask.account)
        if not till.covers(ask.account, -ask.amount_micro):
            message = f"it can pay {spelled_credits(max(0, headroom))}, not {spelled_credits(-ask.amount_micro)}"
            entered = till.enter(ask.account)
            events.append(AskRefused(**entered, ask_id=ask.ask_id, code="not_covered", message=message))
            continue
        events.append(
            CreditAdjusted(
                **till.enter(ask.account, -ask.amount_micro),
                amount_micro=ask.amount_micro,
                cause=AdjustCause.OPERATOR,
                ask_id=ask.ask_id,
                reason=ask.reason,
            )
        )
    return events


# Runs that go on


def instalment_s(policy: PolicySet) -> int:
    """For so long more is reserved for a run at a time."""
    return min(max(1, policy.instalment_s), RUNTIME_MAX_S)


def lead_s(policy: PolicySet) -> int:
    """So long before a run without a declared runtime would be told to stop, more is reserved for it."""
    return max(1, min(instalment_s(policy) // 4, LEAD_MAX_S))


def _renewals(cluster: Cluster, tick: Tick, till: Till) -> list[Event]:
    """More for runs that may soon need it, the first to need it first; a word about those that cannot have it.

    A run beyond its declared runtime is asked about when that is over, since it may well end by then. Of those that
    were told of, the first stands for all of its account where that has nothing; else a smaller one may be paid for.
    """
    events: list[Event] = []
    runs = 0
    by_the_log = (cluster.at or tick.at).timestamp()  # our own clock may be far ahead
    for cover in sorted(cluster.credits.covered.groups()):
        lead = 0 if cover.declared else lead_s(cluster.policy)
        for (stop, *_), run_id in islice(cluster.credits.covered.line(cover), LOOKED_AT_MAX):
            if stop - lead > tick.at.timestamp() or runs == RENEWED_MAX:
                break
            late_s = by_the_log - (stop - lead)
            said = _renewed(cluster.credits.bills[run_id], cluster.policy, till, late_s=late_s)
            if cover.short and not said and till.headroom(cover.short) <= 0:
                break
            events += said
            runs += bool(said)
    return events


def _renewed(bill: Bill, policy: PolicySet, till: Till, *, late_s: float) -> list[Event]:
    """One more instalment; or what the account can pay of it, and that it is running out.

    Where nobody decided for long, as many as it takes to be in time for the next: what was used meanwhile is paid for.
    """
    whole_s = min(instalment_s(policy) * (1 + max(0, int(late_s // instalment_s(policy)))), RUNTIME_MAX_S)
    least_s = min(whole_s, lead_s(policy))
    if bill.running_out is not None and not till.covers(bill.account, _more_micro(bill, least_s)):
        return []  # it was told, and what came since is not worth a record
    more_s = _payable_s(bill, whole_s, till)
    events: list[Event] = []
    of_run = OfRun(reservation=bill.reservation, run_id=bill.run_id, job_id=bill.job_id)
    if more_s:
        micro = _more_micro(bill, more_s)
        events.append(CreditRenewed(**till.enter(bill.account, micro), **of_run, amount_micro=micro, covers_s=more_s))
    if more_s < whole_s:
        assert bill.covered_until is not None
        until = bill.covered_until + timedelta(seconds=more_s)
        events.append(CreditsRunningOut(**till.enter(bill.account), **of_run, until=until))
    return events


def _payable_s(bill: Bill, most_s: int, till: Till) -> int:
    """For how many more whole seconds, at the most so many, the account can pay."""
    if till.covers(bill.account, _more_micro(bill, most_s)):
        return most_s
    low, high = 0, most_s  # it can pay for `low`, and not for `high`
    while high - low > 1:
        middle = (low + high) // 2
        if till.covers(bill.account, _more_micro(bill, middle)):
            low = middle
        else:
            high = middle
    return low


def _more_micro(bill: Bill, more_s: int) -> int:
    """What so many more seconds cost: the difference of what is reserved for all, so that no rounding adds up."""
    return bill.costs_micro(bill.covers_s + more_s) - bill.costs_micro(bill.covers_s)
