"""The auditor's reading of what runs are charged: by its own count of their use, once, and to the unit."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from events.base import Recorded
from events.credit import (
    CreditCommitted,
    CreditEvent,
    CreditRefunded,
    EndedAs,
    RefundCause,
    UsageRecorded,
    UsageUncovered,
)
from events.policy import Bearer, Waived
from projections.cluster.audit.books import Books
from projections.cluster.audit.purses import Charge, Debt, Loss, Over, cost, name_of

FOR_US: Final = RefundCause.INTERRUPTED
FOR_OTHERS: Final = RefundCause.PREEMPTED
WAIVED: Final = {
    EndedAs.INTERRUPTED: FOR_US,
    EndedAs.PREEMPTED: FOR_OTHERS,
    EndedAs.CONSOLIDATED: FOR_OTHERS,
    EndedAs.QUEUE_HELD: FOR_OTHERS,
}
NO_BOUND: Final = 1 << 62
Entry = CreditCommitted | CreditRefunded | UsageUncovered | UsageRecorded


def _charge_of(books: Books, recorded: Recorded, e: Entry) -> Charge | None:
    charge = books.credit.charges.get(e.run_id)
    if charge is not None and charge.is_of(e):
        return charge
    books.find(recorded, "of an open reservation", f"{name_of(e)}: none is open for it")
    return None


def _due_us(books: Books, charge: Charge, over: Over) -> int:
    """GPU-microseconds that are charged for a run that ended so, by the policy that was decided on."""
    policy, cause = books.credit.policies.at(books.decided_at), WAIVED.get(over.outcome)
    how = {FOR_US: policy.waived_failed, FOR_OTHERS: policy.waived_preempted, None: Waived.NONE}[cause]
    return {Waived.ALL: 0, Waived.LOST: min(over.used_us, charge.saved_us), Waived.NONE: over.used_us}[how]


def _recorded(books: Books, recorded: Recorded, e: UsageRecorded) -> None:
    """Each record goes on where the one before it ended, and says what had been used by then."""
    if (charge := _charge_of(books, recorded, e)) is None:
        return
    charge.records += 1
    faults = [
        *_name_faults(charge, e),
        *(_correction_faults(charge, e) if e.corrects else _window_faults(books, charge, e)),
    ]
    for message in faults:
        books.find(recorded, "recorded as used", f"{name_of(e)}: {message}")
    charge.recorded_us += e.gpu_us
    charge.recorded_micro += e.amount_micro
    if not e.corrects:
        charge.recorded_until = e.ended


def _name_faults(charge: Charge, e: UsageRecorded) -> Iterator[str]:
    said = (e.usage_id, e.team, e.gpu_type, e.nano_per_gpu_hour, e.prices)
    reserved = charge.reserved
    due = (f"{e.run_id}-{charge.records}", reserved.team, charge.gpu_type, charge.nano, reserved.prices)
    if said != due:
        yield f"said is {said}, it is {due}"


def _correction_faults(charge: Charge, e: UsageRecorded) -> Iterator[str]:
    if charge.over is None or charge.committed_micro >= 0 or charge.corrected:
        yield "it is corrected once, when it is settled"
    if e.gpu_us > 0 or e.amount_micro > 0 or not e.cause:
        yield f"a correction by {e.gpu_us} and {e.amount_micro} for {e.cause or 'no cause'}"
    charge.corrected = True


def _window_faults(books: Books, charge: Charge, e: UsageRecorded) -> Iterator[str]:
    """Of one part of its time: that follows, ends with the hour, and holds what was used in it, as was known then."""
    began = charge.recorded_until or charge.since
    if began is None or e.began != began or e.ended < began:
        yield f"from {e.began} to {e.ended}, the last ended {began}"
    if charge.corrected or charge.committed_micro >= 0:
        yield "it is settled"
    due_us = _due_us(books, charge, charge.over) if charge.over is not None else NO_BOUND
    bears = books.credit.policies.at(books.decided_at).uncovered is Bearer.ACCOUNT
    used = 0 if _lost_meanwhile(books, charge) else min(charge.used_us(e.ended), due_us)
    least = max(charge.recorded_us, used)
    most = max(charge.recorded_us, min(charge.used_us(e.ended, decided_at=books.decided_at), due_us))
    after_us, after = charge.recorded_us + e.gpu_us, charge.recorded_micro + e.amount_micro
    if not least <= after_us <= most:
        yield f"{after_us} GPU-microseconds until {e.ended}, counted are {least if least == most else (least, most)}"
    cap = cost(due_us, charge.nano) if bears else min(cost(due_us, charge.nano), charge.rest)
    low, high = (max(charge.recorded_micro, min(cost(us, charge.nano), cap)) for us in (used, most))
    if not low <= after <= high:
        yield f"{after} until {e.ended}, so much costs {low if low == high else (low, high)}"


def _lost_meanwhile(books: Books, charge: Charge) -> bool:
    """Whether the same round declared a node lost that the run is on.

    How long it had been silent was counted on the round's clock, which is not the log's; and by the time that was written
    the node may have said that the run had ended, or joined anew. What is recorded too little is in the next record.
    """
    lost, round_of = books.credit.lost, books.decided_at
    return any(lost.get(node_id) == Loss(epoch, round_of) for node_id, epoch in charge.shares.items())


def _uncovered(books: Books, recorded: Recorded, e: UsageUncovered) -> None:
    if (charge := _charge_of(books, recorded, e)) is None:
        return
    bearer = books.credit.policies.at(books.decided_at).uncovered
    if charge.over is None or charge.committed_micro >= 0 or charge.uncovered_micro or e.bearer is not bearer:
        books.find(recorded, "uncovered once", f"{name_of(e)}: over {charge.over}, borne by {e.bearer} for {bearer}")
    charge.uncovered_micro += e.amount_micro
    charge.uncovered_here = e.bearer is Bearer.ACCOUNT
    if charge.uncovered_here and e.amount_micro:
        books.credit.debts[Debt(e.account, e.entry)] = e.amount_micro


def _committed(books: Books, recorded: Recorded, e: CreditCommitted) -> None:
    purse = books.credit.purses[e.account]
    purse.committed += e.amount_micro
    purse.reserved -= e.amount_micro
    books.credit.commits[Debt(e.account, e.entry)] = e.amount_micro
    if (charge := _charge_of(books, recorded, e)) is None:
        return
    if e.amount_micro > charge.rest:
        message = f"{name_of(e)}: {e.amount_micro} of {charge.rest}"
        books.find(recorded, "no more than was reserved", message)
    if charge.committed_micro >= 0 or charge.over is None or not charge.placed:
        books.find(recorded, "resolved once", f"{name_of(e)}: committed {charge.committed_micro}, over {charge.over}")
        return
    for message in _commit_faults(books, charge, charge.over, e):
        books.find(recorded, "charged as used", f"{name_of(e)}: {message}")
    charge.committed_micro, charge.charged_us = e.amount_micro, _due_us(books, charge, charge.over)
    _resolve(books, recorded, charge)


def _commit_faults(books: Books, charge: Charge, over: Over, e: CreditCommitted) -> Iterator[str]:
    due_us = _due_us(books, charge, over)
    if e.gpu_us != due_us:
        yield f"{e.gpu_us} GPU-microseconds of {over.used_us} used, due are {due_us}"
    due = cost(due_us, charge.nano)
    if e.amount_micro != min(due, charge.rest):
        yield f"{e.amount_micro}, so much use costs {due}, reserved are {charge.rest}"
    if charge.uncovered_micro != due - min(due, charge.rest):
        yield f"{charge.uncovered_micro} uncovered, not {due - min(due, charge.rest)}"
    said, known = (e.outcome, e.gpu_type, e.nano_per_gpu_hour), (over.outcome, charge.gpu_type, charge.nano)
    told = (e.began, e.ended) == (
        over.began,
        over.ended,
    ) or not charge.gone  # none of its GPUs ever counted: at no time
    if said != known or not told:
        yield f"{said} from {e.began} to {e.ended}; it was {known} from {over.began} to {over.ended}"


def _refunded(books: Books, recorded: Recorded, e: CreditRefunded) -> None:
    books.credit.purses[e.account].reserved -= e.amount_micro
    if (charge := _charge_of(books, recorded, e)) is None:
        return
    if e.amount_micro > charge.rest:
        message = f"{name_of(e)}: {e.amount_micro} of {charge.rest}"
        books.find(recorded, "no more than was reserved", message)
    for law, message in _refund_faults(charge, e):
        books.find(recorded, law, f"{name_of(e)}: {message}")
    charge.refunded[e.cause] += e.amount_micro
    _resolve(books, recorded, charge)


def _refund_faults(charge: Charge, e: CreditRefunded) -> Iterator[tuple[str, str]]:
    over = charge.over
    match e.cause:
        case RefundCause.TRIMMED:
            needs = charge.needs_micro if charge.placed and over is None else charge.rest
            if e.amount_micro != charge.rest - needs:
                yield "refunded with cause", f"{e.amount_micro}, what it has needs {needs} of {charge.rest}"
        case RefundCause.NEVER_PLACED:
            if over is None or charge.placed or e.amount_micro != charge.rest:
                yield "refunded with cause", f"{e.amount_micro} of {charge.rest}, placed: {charge.placed}, over: {over}"
        case RefundCause.UNUSED:
            if charge.committed_micro < 0:
                yield "refunded with cause", "nothing was committed yet"
        case _:
            if over is None or charge.committed_micro < 0 or WAIVED.get(over.outcome) is not e.cause:
                yield "waived with cause", f"it ended as {over.outcome if over is not None else 'nothing yet'}"
            elif e.gpu_us != over.used_us - charge.charged_us:
                yield "waived with cause", f"{e.gpu_us} GPU-microseconds, {over.used_us - charge.charged_us} are"
            if not e.evidence or not charge.witnesses.issuperset(e.evidence):
                yield "waived with evidence", f"{e.evidence or 'none'}, which no record of its end has as its id"


def _resolve(books: Books, recorded: Recorded, charge: Charge) -> None:
    """Once all that was reserved is committed or given back, the reservation is resolved: then its sums have to be right."""
    if charge.over is None or charge.rest:
        return
    run_id = charge.reserved.run_id
    if charge.placed and charge.committed_micro < 0:
        books.find(recorded, "resolved once", f"{run_id} was given back whole, and had been placed")
    del books.credit.charges[run_id]
    books.credit.purses[charge.reserved.account].reservations -= 1
    if not charge.placed:
        return
    said = max(0, charge.committed_micro) + (charge.uncovered_micro if charge.uncovered_here else 0)
    if (charge.recorded_us, charge.recorded_micro) != (charge.charged_us, said):
        recorded_sums = f"{charge.recorded_us} GPU-microseconds and {charge.recorded_micro}"
        message = f"{run_id} of {charge.reserved.account}: recorded are {recorded_sums}, charged {charge.charged_us} and {said}"
        books.find(recorded, "records add up to what is charged", message)
    waived = cost(charge.over.used_us, charge.nano) - cost(charge.charged_us, charge.nano)
    most = charge.amount_micro - charge.refunded[RefundCause.TRIMMED] - max(0, charge.committed_micro)
    given = charge.refunded[FOR_US] + charge.refunded[FOR_OTHERS]
    if given != min(waived, most):
        message = f"{run_id} of {charge.reserved.account}: {given} waived, not {min(waived, most)}"
        books.find(recorded, "waived as the policy says", message)


def _tallied(books: Books, _recorded: Recorded, e: CreditEvent) -> None:
    books.credit.purses[e.account].tally(e)


SETTLING_READERS: Final[dict[Any, Callable[[Books, Recorded, Any], None]]] = {
    UsageRecorded: _recorded,
    UsageUncovered: _uncovered,
    CreditCommitted: _committed,
    CreditRefunded: _refunded,
    CreditEvent: _tallied,  # last of all
}
