"""The auditor's own count of what charged runs use: from what is said of runs, shares and nodes, and from nothing else."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from events.base import JobId, NodeId, Recorded
from events.credit import EndedAs
from events.fleet import NodeLost, NodeRecovered, NodeSuspected
from events.job import (
    AdmissionWithdrawn,
    GpusEarmarked,
    JobCancelled,
    JobFailed,
    JobPlaced,
    JobRejected,
    JobRequeued,
    JobSucceeded,
    JobTimedOut,
    RunStopping,
    StopCause,
)
from events.node import CheckpointSaved, GpusReleased, NodeJoined, ShareEnded, ShareStarted
from events.policy import ChargeFrom, Overrun, PolicySet
from projections.cluster.audit.books import Books
from projections.cluster.audit.purses import Charge, CreditBooks, Loss, Over

SILENCE_MAX: Final = timedelta(days=366)
ENDED_AS: Final = {
    StopCause.CANCEL: EndedAs.CANCELLED,
    StopCause.TIME_LIMIT: EndedAs.TIME_LIMIT,
    StopCause.RANK_FAILED: EndedAs.FAILED,
    StopCause.CREDITS: EndedAs.CREDITS,
    StopCause.PREEMPTED: EndedAs.PREEMPTED,
    StopCause.CONSOLIDATED: EndedAs.CONSOLIDATED,
    StopCause.QUEUE_HELD: EndedAs.QUEUE_HELD,
}  # by any other: through a node, a GPU, or us


def _policy_set(books: Books, recorded: Recorded, e: PolicySet) -> None:
    books.credit.policies.put(recorded.position, e)


def _placed(books: Books, recorded: Recorded, e: JobPlaced) -> None:
    credit = books.credit
    charge = credit.charges.get(e.run_id)
    if charge is None or charge.over is not None or charge.placed:
        return
    credit.waiting.pop(e.job_id, None)
    node = books.nodes.get(e.shares[0].node_id) if e.shares else None
    charge.placed = True
    charge.gpu_type = node.gpu_type if node is not None else ""
    charge.gpus = sum(share.slots.bit_count() for share in e.shares)
    extends = credit.policies.at(recorded.position).overrun is Overrun.EXTEND
    charge.renews = extends or not charge.reserved.declared
    charge.shares = {share.node_id: share.node_epoch for share in e.shares}
    charge.to_start = set(charge.shares)
    for share in e.shares:
        if credit.lives.get(share.node_id) == share.node_epoch:  # any other is dead on arrival
            credit.here.setdefault(share.node_id, {})[e.run_id] = share.slots
            charge.counting += share.slots.bit_count()
        else:
            charge.witnesses.add(recorded.id)
    if charge.reserved.charge_from is ChargeFrom.PLACED:
        charge.since = recorded.at


def _of(charge: Charge | None, e: ShareStarted | ShareEnded | CheckpointSaved) -> Charge | None:
    """The charge, where the report is of the life that a share of its run belongs to."""
    if charge is None or charge.over is not None or charge.shares.get(e.node_id) != e.node_epoch:
        return None
    return charge


def _share_started(books: Books, recorded: Recorded, e: ShareStarted) -> None:
    charge = _of(books.credit.charges.get(e.run_id), e)
    if charge is None:
        return
    charge.to_start.discard(e.node_id)
    if not charge.to_start and charge.since is None:
        charge.since = recorded.at


def _share_ended(books: Books, recorded: Recorded, e: ShareEnded) -> None:
    if (charge := _of(books.credit.charges.get(e.run_id), e)) is not None:
        charge.witnesses.add(recorded.id)


def _saved(books: Books, recorded: Recorded, e: CheckpointSaved) -> None:
    charge = _of(books.credit.charges.get(e.run_id), e)
    if charge is not None and e.number > charge.saved:
        charge.saved, charge.saved_us = e.number, charge.used_us(recorded.at)


def _released(books: Books, recorded: Recorded, e: GpusReleased) -> None:
    credit = books.credit
    there = credit.here.get(e.node_id, {})
    if credit.lives.get(e.node_id) != e.node_epoch or e.run_id not in there:
        return
    freed = there[e.run_id] & e.slots
    there[e.run_id] &= ~e.slots
    if not there[e.run_id]:
        del there[e.run_id]
    if (charge := credit.charges.get(e.run_id)) is not None:
        charge.leave(freed.bit_count(), recorded.at, recorded)
        charge.witnesses.add(recorded.id)


def _joined(books: Books, recorded: Recorded, e: NodeJoined) -> None:
    _gone(books.credit, recorded, e.node_id, books.credit.silent.get(e.node_id, recorded.at))
    books.credit.lives[e.node_id] = recorded.position  # type: ignore[assignment]  # an epoch is that position


def _lost(books: Books, recorded: Recorded, e: NodeLost) -> None:
    books.credit.lost[e.node_id] = Loss(e.node_epoch, books.decided_at)
    if books.credit.lives.get(e.node_id) == e.node_epoch:
        heard = _heard(recorded, e.silent_s)
        _gone(books.credit, recorded, e.node_id, min(heard, books.credit.silent.get(e.node_id, heard)))


def _gone(credit: CreditBooks, recorded: Recorded, node_id: NodeId, heard: datetime) -> None:
    """A life of the node is over: what ran there counted until it was heard last."""
    credit.lives.pop(node_id, None)
    credit.silent.pop(node_id, None)
    for run_id, slots in credit.here.pop(node_id, {}).items():
        if (charge := credit.charges.get(run_id)) is not None:
            charge.leave(slots.bit_count(), heard, recorded)
            charge.witnesses.add(recorded.id)


def _heard(recorded: Recorded, silent_s: float) -> datetime:
    return recorded.at - min(SILENCE_MAX, timedelta(seconds=max(0.0, min(silent_s, SILENCE_MAX.total_seconds()))))


def _suspected(books: Books, recorded: Recorded, e: NodeSuspected) -> None:
    if books.credit.lives.get(e.node_id) == e.node_epoch:
        books.credit.silent.setdefault(e.node_id, _heard(recorded, e.silent_s))


def _recovered(books: Books, _recorded: Recorded, e: NodeRecovered) -> None:
    if books.credit.lives.get(e.node_id) == e.node_epoch:
        books.credit.silent.pop(e.node_id, None)


def _stopping(books: Books, recorded: Recorded, e: RunStopping) -> None:
    charge = books.credit.charges.get(e.run_id)
    if charge is not None and charge.placed and charge.over is None:
        charge.stopping = e.cause
        charge.witnesses.add(recorded.id)


def _earmarked(books: Books, recorded: Recorded, e: GpusEarmarked) -> None:
    """Whose end is wanted for another, or to be moved."""
    for run_id in e.victims:
        if (charge := books.credit.charges.get(run_id)) is not None and charge.placed and charge.over is None:
            charge.witnesses.add(recorded.id)


def _run_over(
    books: Books, recorded: Recorded, e: JobRequeued | JobSucceeded | JobFailed | JobCancelled | JobTimedOut
) -> None:
    if not e.run_id:
        _never_placed(books.credit, recorded, e.job_id)
        return
    charge = books.credit.charges.get(e.run_id)
    if charge is None or not charge.placed or charge.over is not None:
        return
    charge.leave(charge.counting, recorded.at, recorded)  # in a good log none is left
    ended = max((one.until for one in charge.gone), default=recorded.at)
    charge.over = Over(_outcome(charge, e), charge.used_us(recorded.at), charge.since, ended)


def _outcome(charge: Charge, e: JobRequeued | JobSucceeded | JobFailed | JobCancelled | JobTimedOut) -> EndedAs:
    match e:
        case JobSucceeded():
            return EndedAs.SUCCEEDED
        case JobTimedOut():
            return EndedAs.TIME_LIMIT
        case JobRequeued(cause=cause) | JobFailed(cause=cause):
            return ENDED_AS.get(cause, EndedAs.INTERRUPTED)
        case JobCancelled():
            return ENDED_AS.get(charge.stopping or StopCause.CANCEL, EndedAs.INTERRUPTED)


def _unplaced(books: Books, recorded: Recorded, e: AdmissionWithdrawn | JobRejected) -> None:
    _never_placed(books.credit, recorded, e.job_id)


def _never_placed(credit: CreditBooks, recorded: Recorded, job_id: JobId) -> None:
    run_id = credit.waiting.pop(job_id, None)
    charge = credit.charges.get(run_id) if run_id is not None else None
    if charge is not None and charge.over is None:
        charge.over = Over(EndedAs.NEVER_PLACED, 0, None, recorded.at)


USAGE_READERS: Final[dict[Any, Callable[[Books, Recorded, Any], None]]] = {
    PolicySet: _policy_set,
    JobPlaced: _placed,
    ShareStarted: _share_started,
    ShareEnded: _share_ended,
    CheckpointSaved: _saved,
    GpusReleased: _released,
    NodeJoined: _joined,
    NodeLost: _lost,
    NodeSuspected: _suspected,
    NodeRecovered: _recovered,
    RunStopping: _stopping,
    GpusEarmarked: _earmarked,
    (JobRequeued, JobSucceeded, JobFailed, JobCancelled, JobTimedOut): _run_over,
    (AdmissionWithdrawn, JobRejected): _unplaced,
}
