"""The auditor's reading of what is set aside, promised and stopped for others: whose it is, and that it never goes in turn."""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from events.base import JobId, Recorded, RunId, job_id_of
from events.job import (
    ConsolidationProposed,
    EarmarkCause,
    EarmarkDropped,
    GpusEarmarked,
    JobCancelled,
    JobFailed,
    JobPlaced,
    JobRejected,
    JobRequeued,
    JobSucceeded,
    JobTimedOut,
    PromiseDropped,
    PromiseMoved,
    RunStopping,
    StartPromised,
    StopCause,
)
from events.node import ShareEnded
from projections.cluster.audit.books import Books, gpus_of
from projections.cluster.audit.gangs import gang_faults

RUN_ENDS: Final = (JobRequeued, JobSucceeded, JobFailed, JobCancelled, JobTimedOut)
FOR_OTHERS: Final = {StopCause.PREEMPTED: False, StopCause.CONSOLIDATED: True}  # whether the run was to be moved


def _earmarked(books: Books, recorded: Recorded, e: GpusEarmarked) -> None:
    job = books.jobs.get(e.job_id)
    if job is None:
        return
    if job.aside:
        books.find(recorded, "set aside once", f"{e.job_id} has an earmark already")
    leaves = books.ending if e.until is not None else books.moves
    if job.run_id is not None and job.run_id not in leaves:
        books.find(recorded, "set aside for who waits", f"{e.job_id} runs as {job.run_id}")
    elif job.run_id is None and not job.admitted and not (e.until is not None and job.attempts):
        books.find(recorded, "set aside for who waits", f"{e.job_id} is not admitted")
    if e.until is not None and e.victims:
        books.find(recorded, "kept, not taken", f"{e.victims} are to end for what {e.job_id} had")
    asked = job.spec if e.until is None else replace(job.spec, min_gpus=1)  # of what is kept, a part will do
    for message in gang_faults(books, asked, e.shares, e.ranks, books.decided_at):
        books.find(recorded, "whole gang", f"earmark of {e.job_id}: {message}")
    for run_id in e.victims:
        _claim(books, recorded, e, run_id)
    for gpu in gpus_of(e.shares):
        node = books.nodes.get(gpu.node_id)
        if node is None or node.epoch != gpu.epoch or not node.alive:
            continue
        if (other := books.marks.get(gpu)) is not None:
            books.find(recorded, "set aside once", f"{gpu} is set aside for {other} and for {e.job_id}")
        if (owner := books.owners.get(gpu)) is not None and not _ends(books, owner):
            books.find(recorded, "counts on what ends", f"{gpu} is {owner}'s, which is not to end")
        books.marks[gpu] = e.job_id
    job.aside, job.aside_at, job.aside_until = e.shares, books.decided_at, e.until


def _claim(books: Books, recorded: Recorded, e: GpusEarmarked, run_id: RunId) -> None:
    """A victim is a run that lives, may be stopped, and ends for one job; and never takes turns with it."""
    victim_id = job_id_of(run_id)
    victim = books.jobs.get(victim_id)
    if victim is None or victim.run_id != run_id or victim_id == e.job_id:
        books.find(recorded, "victims run", f"{run_id} is to end for {e.job_id}, and does not run")
        return
    if (other := books.claims.get(run_id)) is not None:
        books.find(recorded, "claimed once", f"{run_id} is to end for {other} and for {e.job_id}")
    if not victim.spec.preemptible:
        books.find(recorded, "preemptible only", f"{run_id} cannot be preempted, and is to end for {e.job_id}")
    if (taker := books.jobs.get(e.job_id)) is not None and victim_id in taker.stopped_for:
        books.find(recorded, "never in turn", f"{run_id} is to end for {e.job_id}, which was stopped for it")
    victim.stopped_for.add(e.job_id)
    books.claims[run_id] = e.job_id
    if e.moved:
        books.moves.add(run_id)


def _ends(books: Books, run_id: RunId) -> bool:
    """Whether a run was to end, or its ranks have: its GPUs come back without anything more."""
    held = {gpu.node_id for gpu in books.owed.get(run_id, ())}
    return run_id in books.claims or run_id in books.ending or held <= books.quiet.get(run_id, set())


def _placed(books: Books, recorded: Recorded, e: JobPlaced) -> None:
    """What was set aside for another is not given; what was for this job is its own now."""
    for gpu in gpus_of(e.shares):
        if books.marks.get(gpu, e.job_id) != e.job_id:
            books.find(recorded, "set aside", f"{e.run_id} got {gpu}, which is set aside for {books.marks[gpu]}")
    _forget(books, e.job_id)
    if (job := books.jobs.get(e.job_id)) is not None:
        job.promised = False


def _dropped(books: Books, recorded: Recorded, e: EarmarkDropped) -> None:
    job = books.jobs.get(e.job_id)
    if job is not None and not job.aside:
        books.find(recorded, "dropped once", f"{e.job_id} has no earmark")
    elif job is not None and e.cause is EarmarkCause.EXPIRED and (job.aside_until is None or e.at < job.aside_until):
        books.find(recorded, "kept until then", f"what is kept for {e.job_id} expires before {job.aside_until}")
    _forget(books, e.job_id)


def _forget(books: Books, job_id: JobId) -> None:
    job = books.jobs.get(job_id)
    if job is not None and job.aside:
        for gpu in gpus_of(job.aside):
            if books.marks.get(gpu) == job_id:
                del books.marks[gpu]
        job.aside = ()


def _stopping(books: Books, recorded: Recorded, e: RunStopping) -> None:
    if e.cause in FOR_OTHERS:
        moved = e.run_id in books.moves
        if e.run_id not in books.claims or moved is not FOR_OTHERS[e.cause]:
            books.find(recorded, "stopped for a job", f"{e.run_id} stops as {e.cause}, and ends for nobody so")
    books.ending.add(e.run_id)


def _share_ended(books: Books, _recorded: Recorded, e: ShareEnded) -> None:
    if (node := books.nodes.get(e.node_id)) is not None and node.epoch == e.node_epoch:
        books.quiet.setdefault(e.run_id, set()).add(e.node_id)


def _promised(books: Books, recorded: Recorded, e: StartPromised) -> None:
    job = books.jobs.get(e.job_id)
    if job is None:
        return
    if job.promised or not job.admitted or job.run_id is not None:
        books.find(recorded, "promised while it waits", f"{e.job_id}: promised {job.promised}, admitted {job.admitted}")
    job.promised = True


def _repromised(books: Books, recorded: Recorded, e: PromiseMoved | PromiseDropped) -> None:
    job = books.jobs.get(e.job_id)
    if job is None:
        return
    if not job.promised:
        books.find(recorded, "promised while it waits", f"{type(e).__name__} of {e.job_id}, which has no promise")
    job.promised = isinstance(e, PromiseMoved)


def _proposed(books: Books, recorded: Recorded, e: ConsolidationProposed) -> None:
    job = books.jobs.get(e.job_id)
    for message in gang_faults(books, job.spec, e.shares, (), books.decided_at) if job is not None else ():
        books.find(recorded, "whole gang", f"proposal for {e.job_id}: {message}")


def _run_over(
    books: Books, _recorded: Recorded, e: JobRequeued | JobSucceeded | JobFailed | JobCancelled | JobTimedOut
) -> None:
    books.claims.pop(e.run_id, None)
    books.quiet.pop(e.run_id, None)
    books.ending.discard(e.run_id)
    books.moves.discard(e.run_id)


def _job_over(
    books: Books, _recorded: Recorded, e: JobSucceeded | JobFailed | JobCancelled | JobTimedOut | JobRejected
) -> None:
    _forget(books, e.job_id)
    if (job := books.jobs.get(e.job_id)) is not None:
        job.promised = False


ASIDE_READERS: Final[dict[Any, Callable[[Books, Recorded, Any], None]]] = {
    GpusEarmarked: _earmarked,
    JobPlaced: _placed,
    EarmarkDropped: _dropped,
    RunStopping: _stopping,
    ShareEnded: _share_ended,
    StartPromised: _promised,
    (PromiseMoved, PromiseDropped): _repromised,
    ConsolidationProposed: _proposed,
    RUN_ENDS: _run_over,
    (JobSucceeded, JobFailed, JobCancelled, JobTimedOut, JobRejected): _job_over,
}
