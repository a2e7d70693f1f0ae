"""An independent reading of the log that trusts no fold and no decider: what must never be, with the place where it is.

It keeps books of its own from the events alone. `muster verify`, the demo and every integration test run it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from events.base import (
    FLEET,
    HEAD,
    JOB,
    SLOTS_MAX,
    START,
    JobId,
    NodeId,
    Position,
    Recorded,
    RunId,
    SlotMask,
    Unreadable,
    chapter_of,
    sequence_of,
)
from events.fleet import NodeLost
from events.head import LeadershipTaken, LogFounded, RoundDecided
from events.job import (
    JobAdmitted,
    JobCancelled,
    JobEvent,
    JobFailed,
    JobPlaced,
    JobRejected,
    JobRequeued,
    JobSpec,
    JobSubmitted,
    JobSucceeded,
    JobTimedOut,
    OnLost,
)
from events.node import GpusFoundClean, GpusReleased, NodeJoined

ENDS: Final = (JobRejected, JobSucceeded, JobFailed, JobCancelled, JobTimedOut)
CONTROL: Final = (JOB, FLEET, HEAD)


class Finding(NamedTuple):
    """Something in the log that must not be."""

    position: Position
    law: str
    message: str


class Gpu(NamedTuple):
    """One GPU in one life of its node."""

    node_id: NodeId
    epoch: int
    slot: int


@dataclass
class _Job:
    spec: JobSpec
    admitted: bool = False
    run_id: RunId | None = None
    attempts: int = 0
    ended: str = ""


@dataclass
class _Node:
    epoch: int = 0
    alive: bool = False
    uuids: list[str] = field(default_factory=list)
    gpu_type: str = ""
    pool: int = 0  # slots found clean in this life


@dataclass
class Books:
    """What the events so far add up to, kept by the auditor alone."""

    findings: list[Finding] = field(default_factory=list)
    position: Position = START
    at: datetime | None = None
    epoch: Position = START  # of the last leader
    to_come: int = 0  # events that the last decision record announced
    jobs: dict[JobId, _Job] = field(default_factory=dict)
    nodes: dict[NodeId, _Node] = field(default_factory=dict)
    owners: dict[Gpu, RunId] = field(default_factory=dict)
    owed: dict[RunId, set[Gpu]] = field(default_factory=dict)  # GPUs of a run that were neither released nor lost
    haunted: dict[RunId, set[tuple[NodeId, int]]] = field(
        default_factory=dict
    )  # lost with the node, not found clean yet

    def find(self, recorded: Recorded, law: str, message: str) -> None:
        """Note what must not be."""
        self.findings.append(Finding(recorded.position, law, message))


def audit(records: Iterable[Recorded]) -> list[Finding]:
    """All that is wrong with a log, read from its first record; empty for a good one."""
    books = Books()
    for recorded in records:
        _order(books, recorded)
        _leadership(books, recorded)
        for kind, read in READERS.items():
            if isinstance(recorded.event, kind):
                read(books, recorded, recorded.event)
        books.position, books.at = recorded.position, recorded.at
    return books.findings


def _order(books: Books, recorded: Recorded) -> None:
    """Positions are contiguous from the founding on, and the server's time never goes back."""
    before, here = books.position, recorded.position
    if before == START:
        if sequence_of(here) != 1 or not isinstance(recorded.event, LogFounded):
            books.find(
                recorded, "contiguous", f"the log begins at {sequence_of(here)} with {type(recorded.event).__name__}"
            )
    elif chapter_of(here) == chapter_of(before) and here != before + 1:
        books.find(recorded, "contiguous", f"{sequence_of(here)} follows {sequence_of(before)}")
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
            books.to_come = e.events
        case event if getattr(type(event), "family", None) in CONTROL and not isinstance(event, LogFounded):
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
    books.jobs[e.job_id] = _Job(e.spec)


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
        job.admitted = True


def _placed(books: Books, recorded: Recorded, e: JobPlaced) -> None:
    job = books.jobs.get(e.job_id)
    if job is None:
        return
    if not job.admitted or job.run_id is not None:
        books.find(recorded, "placed when admitted", f"{e.job_id} runs as {job.run_id}, admitted: {job.admitted}")
    if e.attempt != job.attempts + 1 or e.run_id != f"{e.job_id}-{e.attempt}":
        books.find(recorded, "attempts in order", f"{e.run_id} is attempt {e.attempt} after {job.attempts}")
    job.admitted, job.run_id, job.attempts = False, e.run_id, e.attempt
    for message in _gang_faults(books, job.spec, e):
        books.find(recorded, "whole gang", f"{e.run_id}: {message}")
    books.owed[e.run_id] = set()
    books.haunted[e.run_id] = set()
    for share in e.shares:
        _take(books, recorded, e.run_id, Gpu(share.node_id, share.node_epoch, 0), share.slots)


def _gang_faults(books: Books, spec: JobSpec, e: JobPlaced) -> Iterator[str]:
    """What is wrong with the shares as an answer to the spec."""
    sizes = [share.slots.bit_count() for share in e.shares]
    if sum(sizes) != spec.gpus or not all(sizes):
        yield f"{sum(sizes)} GPUs in shares of {sizes}, asked were {spec.gpus}"
    names = [share.node_id for share in e.shares]
    if names != sorted(set(names)):
        yield f"nodes {names} are not in order, or twice"
    if spec.nodes and sizes != [spec.gpus_per_node] * spec.nodes:
        yield f"shares of {sizes}, asked were {spec.nodes} x {spec.gpus_per_node}"
    types = {books.nodes[name].gpu_type for name in names if name in books.nodes}
    if len(types) > 1 or (spec.gpu_types and not types <= set(spec.gpu_types)):
        yield f"on GPUs of {sorted(types)}, accepted were {spec.gpu_types or 'any, of one type'}"


def _take(books: Books, recorded: Recorded, run_id: RunId, share: Gpu, slots: SlotMask) -> None:
    """A share owns its GPUs, unless its node's life was over when it was written down: then it is dead on arrival."""
    node = books.nodes.get(share.node_id)
    if node is None or not node.alive or node.epoch != share.epoch:
        return
    for slot in _slots(slots):
        gpu = share._replace(slot=slot)
        if not node.pool >> slot & 1:
            books.find(recorded, "from the pool", f"{run_id} got {gpu}, which was not found clean")
        if (owner := books.owners.get(gpu)) is not None:
            books.find(recorded, "no GPU twice", f"{run_id} got {gpu}, which is {owner}'s")
        books.owners[gpu] = run_id
        books.owed[run_id].add(gpu)


def _released(books: Books, _recorded: Recorded, e: GpusReleased) -> None:
    """Frees what the run holds in this life of the node, and nothing of another's."""
    for slot in _slots(e.slots):
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
    node = books.nodes.setdefault(e.node_id, _Node())
    _forget_life(books, e.node_id, node)
    node.epoch, node.alive, node.gpu_type, node.pool = recorded.position, True, e.gpu_type, 0
    reused = [slot for slot, uuid in enumerate(node.uuids) if uuid not in e.gpu_uuids]
    for uuid in [uuid for uuid in dict.fromkeys(e.gpu_uuids) if uuid not in node.uuids]:
        if len(node.uuids) < SLOTS_MAX:
            node.uuids.append(uuid)
        elif reused:
            node.uuids[reused.pop(0)] = uuid
    gone = {(e.node_id, slot) for slot, uuid in enumerate(node.uuids) if uuid not in e.gpu_uuids}
    for slots in books.haunted.values():
        slots.difference_update(gone)  # a GPU that the node has no more holds nothing


def _lost(books: Books, _recorded: Recorded, e: NodeLost) -> None:
    node = books.nodes.get(e.node_id)
    if node is not None and node.epoch == e.node_epoch and node.alive:
        _forget_life(books, e.node_id, node)
        node.alive, node.pool = False, 0


def _forget_life(books: Books, node_id: NodeId, node: _Node) -> None:
    for gpu in [gpu for gpu in books.owners if gpu.node_id == node_id and gpu.epoch == node.epoch]:
        run_id = books.owners.pop(gpu)
        books.owed.get(run_id, set()).discard(gpu)  # a run may be over and hold GPUs, in a bad log
        books.haunted.setdefault(run_id, set()).add((node_id, gpu.slot))


def _found_clean(books: Books, _recorded: Recorded, e: GpusFoundClean) -> None:
    node = books.nodes.get(e.node_id)
    if node is None or node.epoch != e.node_epoch or not node.alive:
        return
    for slot, uuid in enumerate(node.uuids):
        if uuid in e.gpu_uuids:
            node.pool |= 1 << slot
            for slots in books.haunted.values():
                slots.discard((e.node_id, slot))


def _slots(mask: int) -> Iterator[int]:
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


READERS: Final[dict[Any, Callable[[Books, Recorded, Any], None]]] = {  # in this order, each that fits
    Unreadable: _unreadable,
    JobSubmitted: _submitted,
    JobEvent: _of_job,
    JobAdmitted: _admitted,
    JobPlaced: _placed,
    GpusReleased: _released,
    (JobRequeued, JobSucceeded, JobFailed, JobCancelled, JobTimedOut): _run_over,
    ENDS: _ended,
    NodeJoined: _joined,
    NodeLost: _lost,
    GpusFoundClean: _found_clean,
}
