"""Reservations of runs that are over are resolved: what was used is committed, the rest is refunded, to the unit."""

from heapq import nsmallest
from typing import Final, NamedTuple, TypedDict

from events.base import JobId, RunId
from events.credit import (
    CreditCommitted,
    CreditRefunded,
    EndedAs,
    RefundCause,
    UsageUncovered,
)
from events.policy import Bearer, PolicySet, Waived
from projections.cluster.credit.book import Bill, End
from projections.cluster.credit.price import cost_micro
from services.ledger.entries import Entries
from services.ledger.usage import record_rest

SETTLED_MAX: Final = 1_000  # reservations in one round; the rest is the next round's
EVENTS_MAX: Final = 5_000  # events after which no more are begun: a round is one append
WAIVED: Final = {
    EndedAs.INTERRUPTED: RefundCause.INTERRUPTED,
    EndedAs.PREEMPTED: RefundCause.PREEMPTED,
    EndedAs.CONSOLIDATED: RefundCause.PREEMPTED,
    EndedAs.QUEUE_HELD: RefundCause.PREEMPTED,
}  # ends through no fault of the user, and what is said of the refund


class OfBill(TypedDict):
    """What every entry about a reservation says."""

    reservation: int
    run_id: RunId
    job_id: JobId


class Charge(NamedTuple):
    """What becomes of a reservation whose run was placed."""

    gpu_us: int  # charged
    committed: int  # of what is reserved
    uncovered: int  # beyond it
    payable: int  # what usage records add up to: the commit, and what is uncovered where the account bears it
    waived: int  # of the rest: what it would have cost besides, had nothing been waived
    bearer: Bearer


def settle(entries: Entries) -> None:
    """Reservations whose run, or the wait for one, is over are resolved, in order of run id."""
    ledger = entries.cluster.credits
    for run_id in nsmallest(SETTLED_MAX, ledger.settling):
        if len(entries.events) >= EVENTS_MAX:
            return
        bill = ledger.bills[run_id]
        assert bill.end is not None
        if bill.end.outcome is EndedAs.NEVER_PLACED:
            _refund(entries, bill, bill.reserved_micro, RefundCause.NEVER_PLACED)
        elif bill.committed:  # no round stops there, but what an administrator writes may
            _refund(entries, bill, bill.reserved_micro, RefundCause.UNUSED)
        else:
            _resolve(entries, bill, bill.end)


def trim(entries: Entries) -> None:
    """What is reserved beyond what runs on the GPUs that they got can use is refunded."""
    ledger = entries.cluster.credits
    for run_id in nsmallest(SETTLED_MAX, ledger.trimming):
        bill = ledger.bills[run_id]
        _refund(entries, bill, bill.reserved_micro - bill.needs_micro, RefundCause.TRIMMED)


def charge_of(bill: Bill, end: End, policy: PolicySet) -> Charge:
    """What a run that was placed is charged, by the policy of now. Nothing is rounded but the cost of all it used."""
    nano = bill.rate.nano_per_gpu_hour
    charged_us = _charged_us(end, policy)
    cost = cost_micro(charged_us, nano)
    committed = min(cost, bill.reserved_micro)
    uncovered = cost - committed
    bearer = policy.uncovered
    without = cost_micro(end.used_us, nano) if end.used_us != charged_us else cost
    waived = min(bill.reserved_micro - committed, without - cost)
    payable = cost if bearer is Bearer.ACCOUNT else committed
    return Charge(charged_us, committed, uncovered, payable, waived, bearer)


def _charged_us(end: End, policy: PolicySet) -> int:
    """Of what was used, what is charged: all, but for what is waived because of how it ended."""
    cause = WAIVED.get(end.outcome)
    if cause is None:
        return end.used_us
    match policy.waived_failed if cause is RefundCause.INTERRUPTED else policy.waived_preempted:
        case Waived.ALL:
            return 0
        case Waived.LOST:
            return min(end.saved_us, end.used_us)
        case Waived.NONE:
            return end.used_us


def _resolve(entries: Entries, bill: Bill, end: End) -> None:
    """The use is recorded, paid for as far as it is covered, and what is left given back."""
    charge = charge_of(bill, end, entries.cluster.policy)
    cause = WAIVED.get(end.outcome, RefundCause.UNUSED)
    if not record_rest(entries, bill, gpu_us=charge.gpu_us, micro=charge.payable, cause=cause):
        return  # so many hours are left that they are written first
    if charge.uncovered:
        entries.write(
            UsageUncovered(
                at=entries.tick.at,
                **entries.next(bill.account),
                **_of(bill),
                amount_micro=charge.uncovered,
                bearer=charge.bearer,
            )
        )
    entries.write(
        CreditCommitted(
            at=entries.tick.at,
            **entries.next(bill.account),
            **_of(bill),
            team=bill.team,
            amount_micro=charge.committed,
            gpu_us=charge.gpu_us,
            gpu_type=bill.gpu_type,
            nano_per_gpu_hour=bill.rate.nano_per_gpu_hour,
            began=end.began or end.ended,
            ended=end.ended,
            outcome=end.outcome,
        )
    )
    if charge.waived:
        _refund(entries, bill, charge.waived, cause, gpu_us=end.used_us - charge.gpu_us)
    if unused := bill.reserved_micro - charge.committed - charge.waived:
        _refund(entries, bill, unused, RefundCause.UNUSED)


def _refund(entries: Entries, bill: Bill, amount: int, cause: RefundCause, *, gpu_us: int = 0) -> None:
    evidence = bill.end.evidence if gpu_us and bill.end is not None else ()
    entries.write(
        CreditRefunded(
            at=entries.tick.at,
            **entries.next(bill.account),
            **_of(bill),
            amount_micro=amount,
            cause=cause,
            gpu_us=gpu_us,
            evidence=evidence,
        )
    )


def _of(bill: Bill) -> OfBill:
    return OfBill(reservation=bill.reservation, run_id=bill.run_id, job_id=bill.job_id)
