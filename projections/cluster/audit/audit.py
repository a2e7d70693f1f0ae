"""An independent reading of the log that trusts no fold and no decider: what must never be, with the place where it is.

It keeps books of its own from the events alone. `muster verify`, the demo and every integration test run it.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

from events.base import (
    ALARMS,
    CREDIT,
    FLEET,
    HEAD,
    JOB,
    PERIOD,
    SLOTS_MAX,
    START,
    NodeId,
    Recorded,
    RunId,
    SlotMask,
    Unreadable,
    sequence_of,
    spelled,
)
from events.chain import follows
from events.chapter import ChapterOpened
from events.fleet import NodeLost, NodeRetired
from events.head import LeadershipTaken, LogFounded, RoundDecided
from events.job import (
    AdmissionWithdrawn,
    JobAdmitted,
    JobCancelled,
    JobEvent,
    JobFailed,
    JobPlaced,
    JobRejected,
    JobRequeued,
    JobResumeAsked,
    JobSubmitted,
    JobSucceeded,
    JobTimedOut,
    OnLost,
)
from events.node import GpusFoundClean, GpusReleased, NodeDescribed, NodeJoined
from projections.cluster.audit.aside import ASIDE_READERS
from projections.cluster.audit.books import Books, Finding, Gpu, JobBook, NodeBook, slots_of
from projections.cluster.audit.chapters import read_chapters
from projections.cluster.audit.credit import CREDIT_READERS
from projections.cluster.audit.gangs import gang_faults
from projections.cluster.audit.reserving import RESERVING_READERS, before_reading
from projections.cluster.audit.settling import SETTLING_READERS
from projections.cluster.audit.sick import SICK_READERS
from projections.cluster.audit.usage import USAGE_READERS

__all__ = ["Finding", "audit", "read"]

ENDS: Final = (JobRejected, JobSucceeded, JobFailed, JobCancelled, JobTimedOut)
CONTROL: Final = (JOB, FLEET, HEAD, CREDIT, PERIOD, ALARMS)


def audit(records: Iterable[Recorded]) -> list[Finding]:
    """All that is wrong with a log, read from its first record; empty for a good one."""
    books = Books()
    for recorded in records:
        read(books, recorded)
    if not books.to_come:  # else the log was read into the middle of a batch
        before_reading(books, None)
    return books.findings


def read(books: Books, recorded: Recorded) -> None:
    """The next record is in the books, with what is wrong with it."""
    before_reading(books, recorded)
    _order(books, recorded)
    read_chapters(books, recorded)
    _leadership(books, recorded)
    for reader in _readers(type(recorded.event)):
        reader(books, recorded, recorded.event)
    books.position, books.at = recorded.position, recorded.at


@cache
def _readers(kind: type) -> tuple[Callable[[Books, Recorded, Any], None], ...]:
    return tuple(reader for kinds, reader in ALL_READERS if issubclass(kind, kinds))


def _order(books: Books, recorded: Recorded) -> None:
    """Positions are contiguous from the founding on, and the server's time never goes back."""
    before, here = books.position, recorded.position
    if before == START:
        if sequence_of(here) != 1 or not isinstance(recorded.event, LogFounded):
            books.find(
                recorded, "contiguous", f"the log begins at {sequence_of(here)} with {type(recorded.event).__name__}"
            )
    elif not follows(before, recorded):
        books.find(recorded, "contiguous", f"{spelled(here)} follows {spelled(before)}")
    if books.at is not None and recorded.at < books.at:
        books.find(recorded, "time", f"{recorded.at} after {books.at}")


def _leadership(books: Books, recorded: Recorded) -> None:
    """Every word of the control plane stands in a batch of the leader of the time."""
    match recorded.event:
        case LeadershipTaken():
            _batch_closed(books, recorded)
            books.epoch = recorded.position
        case RoundDecided() as e:
            _batch_closed(books, recorded)
            if e.epoch != books.epoch:
                books.find(recorded, "one leader", f"decided in epoch {e.epoch}, but {books.epoch} leads")
            if e.decided_at >= recorded.position:
                books.find(recorded, "one leader", f"decided at {e.decided_at}, which is not before it")
            books.to_come, books.decided_at = e.events, e.decided_at
        case event if getattr(type(event), "family", None) in CONTROL and not isinstance(
            event, LogFounded | ChapterOpened
        ):
            if not books.to_come:
                books.find(recorded, "one leader", f"{type(event).__name__} stands in no decision's batch")
            books.to_come = max(0, books.to_come - 1)
        case _:
            _batch_closed(books, recorded)


def _batch_closed(books: Books, recorded: Recorded) -> None:
    if books.to_come:
        books.find(recorded, "one append", f"{books.to_come} events of the decision before it are missing")
        books.to_come = 0


def _unreadable(books: Books, recorded: Recorded, e: Unreadable) -> None:
    books.find(recorded, "readable", f"{e.subject}: {e.reason}")


def _submitted(books: Books, recorded: Recorded, e: JobSubmitted) -> None:
    if e.job_id in books.jobs:
        books.find(recorded, "submitted once", f"{e.job_id} was submitted before")
    books.jobs[e.job_id] = JobBook(e.spec)


def _of_job(books: Books, recorded: Recorded, e: JobEvent) -> None:
    job = books.jobs.get(e.job_id)
    if job is None:
        books.find(recorded, "submitted first", f"{type(e).__name__} of {e.job_id}, which nobody asked for")
    elif job.ended:
        books.find(recorded, "nothing after the end", f"{type(e).__name__} of {e.job_id}, which is {job.ended}")


def _admitted(books: Books, recorded: Recorded, e: JobAdmitted) -> None:
    if (job := books.jobs.get(e.job_id)) is not None:
        if job.admitted or job.run_id is not None:
            books.find(recorded, "admitted once", f"{e.job_id} was admitted already")
        if job.held:
            books.find(recorded, "held until resumed", f"{e.job_id} failed too often, and nobody has resumed it")
        job.admitted = True


def _requeued(books: Books, _recorded: Recorded, e: JobRequeued) -> None:
    if (job := books.jobs.get(e.job_id)) is not None:
        job.held = e.held


def _resumed(books: Books, _recorded: Recorded, e: JobResumeAsked) -> None:
    if (job := books.jobs.get(e.job_id)) is not None:
        job.held = False


def _withdrawn(books: Books, recorded: Recorded, e: AdmissionWithdrawn) -> None:
    if (job := books.jobs.get(e.job_id)) is not None:
        if not job.admitted:
            books.find(recorded, "admitted once", f"{e.job_id} is not admitted, and cannot be withdrawn")
        job.admitted = False


def _placed(books: Books, recorded: Recorded, e: JobPlaced) -> None:
    job = books.jobs.get(e.job_id)
    if job is None:
        return
    if not job.admitted or job.run_id is not None:
        books.find(recorded, "placed when admitted", f"{e.job_id} runs as {job.run_id}, admitted: {job.admitted}")
    if e.attempt != job.attempts + 1 or e.run_id != f"{e.job_id}-{e.attempt}":
        books.find(recorded, "attempts in order", f"{e.run_id} is attempt {e.attempt} after {job.attempts}")
    job.admitted, job.run_id, job.attempts = False, e.run_id, e.attempt
    as_of = job.aside_at if job.aside else books.decided_at
    for message in gang_faults(books, job.spec, e.shares, e.ranks, as_of):
        books.find(recorded, "whole gang", f"{e.run_id}: {message}")
    books.owed[e.run_id] = set()
    books.haunted[e.run_id] = set()
    for share in e.shares:
        _take(books, recorded, e.run_id, Gpu(share.node_id, share.node_epoch, 0), share.slots)


def _take(books: Books, recorded: Recorded, run_id: RunId, share: Gpu, slots: SlotMask) -> None:
    """A share owns its GPUs, unless its node's life was over when it was written down: then it is dead on arrival."""
    node = books.nodes.get(share.node_id)
    if node is None or not node.alive or node.epoch != share.epoch:
        return
    for slot in slots_of(slots):
        gpu = share._replace(slot=slot)
        if not node.pool >> slot & 1:
            books.find(recorded, "from the pool", f"{run_id} got {gpu}, which was not found clean")
        if (owner := books.owners.get(gpu)) is not None:
            books.find(recorded, "no GPU twice", f"{run_id} got {gpu}, which is {owner}'s")
        books.owners[gpu] = run_id
        books.owed[run_id].add(gpu)


def _released(books: Books, _recorded: Recorded, e: GpusReleased) -> None:
    """Frees what the run holds in this life of the node, and nothing of another's."""
    for slot in slots_of(e.slots):
        gpu = Gpu(e.node_id, e.node_epoch, slot)
        if books.owners.get(gpu) == e.run_id:
            del books.owners[gpu]
            books.owed.get(e.run_id, set()).discard(gpu)


def _run_over(
    books: Books, recorded: Recorded, e: JobRequeued | JobSucceeded | JobFailed | JobCancelled | JobTimedOut
) -> None:
    """A run is over only when each of its GPUs was released, or went with its node."""
    job = books.jobs.get(e.job_id)
    if job is None:
        return
    if e.run_id and e.run_id != job.run_id:
        books.find(recorded, "ends what runs", f"{type(e).__name__} of {e.run_id}, but {job.run_id} runs")
    if job.run_id is not None:
        if owed := books.owed.get(job.run_id):
            books.find(recorded, "every GPU released", f"{job.run_id} is over and holds {sorted(owed)[:3]}")
        if job.spec.on_lost is OnLost.WAIT and (haunted := books.haunted.get(job.run_id)):
            books.find(recorded, "waits for lost nodes", f"{job.run_id} is over; not clean: {sorted(haunted)[:3]}")
        books.owed.pop(job.run_id, None)
        books.haunted.pop(job.run_id, None)
    job.run_id = None


def _ended(books: Books, _recorded: Recorded, e: JobEvent) -> None:
    if (job := books.jobs.get(e.job_id)) is not None:
        job.ended = job.ended or type(e).__name__


def _joined(books: Books, recorded: Recorded, e: NodeJoined) -> None:
    node = books.nodes.setdefault(e.node_id, NodeBook())
    _forget_life(books, e.node_id, node)
    node.epoch, node.alive, node.gpu_type, node.pool = recorded.position, True, e.gpu_type, 0
    node.labels, node.taints, node.described = e.labels, e.taints, START
    reused = [slot for slot, uuid in enumerate(node.uuids) if uuid not in e.gpu_uuids]
    for uuid in [uuid for uuid in dict.fromkeys(e.gpu_uuids) if uuid not in node.uuids]:
        if len(node.uuids) < SLOTS_MAX:
            node.uuids.append(uuid)
        elif reused:
            node.uuids[reused.pop(0)] = uuid
    gone = {(e.node_id, slot) for slot, uuid in enumerate(node.uuids) if uuid not in e.gpu_uuids}
    for slots in books.haunted.values():
        slots.difference_update(gone)  # a GPU that the node has no more holds nothing


def _described(books: Books, recorded: Recorded, e: NodeDescribed) -> None:
    node = books.nodes.get(e.node_id)
    if node is not None and node.epoch == e.node_epoch:
        node.labels, node.taints, node.described = e.labels, e.taints, recorded.position


def _lost(books: Books, _recorded: Recorded, e: NodeLost) -> None:
    node = books.nodes.get(e.node_id)
    if node is not None and node.epoch == e.node_epoch and node.alive:
        _forget_life(books, e.node_id, node)
        node.alive, node.pool = False, 0


def _forget_life(books: Books, node_id: NodeId, node: NodeBook) -> None:
    for gpu in [gpu for gpu in books.owners if gpu.node_id == node_id and gpu.epoch == node.epoch]:
        run_id = books.owners.pop(gpu)
        books.owed.get(run_id, set()).discard(gpu)  # a run may be over and hold GPUs, in a bad log
        books.haunted.setdefault(run_id, set()).add((node_id, gpu.slot))
    for gpu in [gpu for gpu in books.marks if gpu.node_id == node_id and gpu.epoch == node.epoch]:
        del books.marks[gpu]


def _found_clean(books: Books, _recorded: Recorded, e: GpusFoundClean) -> None:
    node = books.nodes.get(e.node_id)
    if node is None or node.epoch != e.node_epoch or not node.alive:
        return
    for slot, uuid in enumerate(node.uuids):
        if uuid in e.gpu_uuids:
            node.pool |= 1 << slot
            for slots in books.haunted.values():
                slots.discard((e.node_id, slot))


def _retired(books: Books, _recorded: Recorded, e: NodeRetired) -> None:
    node = books.nodes.get(e.node_id)
    if node is not None and node.epoch == e.node_epoch:
        for slots in books.haunted.values():
            slots -= {gpu for gpu in slots if gpu[0] == e.node_id}  # somebody answers for it that nothing runs there


READERS: Final[dict[Any, Callable[[Books, Recorded, Any], None]]] = {  # in this order, each that fits
    Unreadable: _unreadable,
    JobSubmitted: _submitted,
    JobEvent: _of_job,
    JobAdmitted: _admitted,
    AdmissionWithdrawn: _withdrawn,
    JobRequeued: _requeued,
    JobResumeAsked: _resumed,
    JobPlaced: _placed,
    GpusReleased: _released,
    (JobRequeued, JobSucceeded, JobFailed, JobCancelled, JobTimedOut): _run_over,
    ENDS: _ended,
    NodeJoined: _joined,
    NodeDescribed: _described,
    NodeLost: _lost,
    GpusFoundClean: _found_clean,
    NodeRetired: _retired,
}
ALL_READERS: Final = [
    pair
    for readers in (
        READERS,
        ASIDE_READERS,
        SICK_READERS,
        CREDIT_READERS,
        RESERVING_READERS,
        USAGE_READERS,
        SETTLING_READERS,
    )
    for pair in readers.items()
]
