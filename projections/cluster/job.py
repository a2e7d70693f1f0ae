"""A job that has not ended, what it needs, its run, and what is set aside or promised for it."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from events.base import (
    JobId,
    NodeEpoch,
    NodeId,
    Position,
    RunId,
    TeamId,
)
from events.job import IMPOSSIBLE, UNPAID, HoldCode, JobSpec, NodeShare, OnLost, Priority, StopCause
from events.node import EndReason
from events.policy import JobOrder

PRIORITY_RANK: Final = {Priority.URGENT: 0, Priority.HIGH: 1, Priority.NORMAL: 2, Priority.LOW: 3}

WANT_NOTHING: Final = (
    IMPOSSIBLE | UNPAID | {HoldCode.FAILED_TOO_OFTEN}
)  # what waits so takes part in nothing until something else is said of it

INTERRUPTED: Final = frozenset(
    {StopCause.NODE_LOST, StopCause.GPU, StopCause.START_FAILED, StopCause.START_DEADLINE, StopCause.DRAIN}
)  # through no fault of the job, and for nobody else

EVIDENCE_MAX: Final = 8  # ids of records that say how a run ended


BACK_OFF_MAX: Final = timedelta(seconds=300)


NO_END_S: Final = 1 << 40  # in place of a runtime that nobody declared


RUNTIME_MAX_S: Final = (
    10 * 366 * 86_400
)  # more counts as this: many such, one after the other, end before the year 9999


OrderKey = tuple[float, ...]


class JobState(StrEnum):
    """Where a job that has not ended stands."""

    QUEUED = "queued"
    ADMITTED = "admitted"
    PLACED = "placed"  # its run has GPUs; whether all ranks have started, and whether it is stopping, the run knows


class Shape(NamedTuple):
    """What a gang needs: jobs of one shape fit, or do not fit, alike. `nodes` 0: derived, see `place`."""

    gpus: int
    nodes: int = 0
    gpus_per_node: int = 0
    gpu_types: tuple[str, ...] = ()
    min_gpus: int = 0  # 0: all of them
    within: str = ""  # a `Domain`; empty: anywhere
    required: bool = False
    labels: tuple[tuple[str, str], ...] = ()  # sorted
    tolerates: tuple[str, ...] = ()
    avoid: tuple[NodeId, ...] = ()  # nodes that failed it, sorted: none of them, where others could hold it

    def __str__(self) -> str:
        least = f"{self.min_gpus} to " if self.min_gpus else ""
        gpus = f"{least}{self.gpus} GPU{'s' if self.gpus != 1 else ''}"
        shape = f" ({self.nodes} nodes x {self.gpus_per_node})" if self.nodes else ""
        types = f" on {' or '.join(self.gpu_types)}" if self.gpu_types else ""
        within = f" within a {self.within}" if self.within and self.required else ""
        labels = f" labelled {', '.join(f'{key}={value}' for key, value in self.labels)}" if self.labels else ""
        return gpus + shape + types + within + labels


def shape_of(spec: JobSpec) -> Shape:
    """The shape that a spec asks for. One half of nodes and GPUs on each says nothing: admission rejects the job."""
    shared = bool(spec.nodes and spec.gpus_per_node)
    return Shape(
        gpus=spec.gpus,
        nodes=spec.nodes if shared else 0,
        gpus_per_node=spec.gpus_per_node if shared else 0,
        gpu_types=spec.gpu_types,
        min_gpus=spec.min_gpus if spec.min_gpus < spec.gpus else 0,
        within=spec.topology.within.value if spec.topology is not None else "",
        required=spec.topology is not None and spec.topology.required,
        labels=tuple(sorted(spec.labels.items())) if spec.labels else (),
        tolerates=tuple(sorted(spec.tolerates)) if spec.tolerates else (),
    )


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job that has not ended."""

    job_id: JobId
    team: TeamId
    spec: JobSpec
    shape: Shape
    submitted: Position  # its age
    state: JobState = JobState.QUEUED
    borrowing: bool = False  # admitted beyond what its team was entitled to
    admitted_at: datetime | None = None  # when it was admitted last
    attempt: int = 0  # runs so far
    hold: HoldCode = HoldCode.NOT_EVALUATED
    held_at: datetime | None = None  # when the hold code last changed
    not_before: datetime | None = None  # back-off
    cancel: bool = False  # a user asked for its end
    failures_application: int = 0
    failures_infrastructure: int = 0
    evictions: int = 0  # runs of it that were stopped for another job, or moved
    evicted_at: datetime | None = None  # when it was last decided
    evicted_for: tuple[JobId, ...] = ()  # the jobs it was stopped for: it never takes anything from these
    avoid: dict[NodeId, datetime] = {}  # nodes that failed it, and until when it keeps away; the last is the newest
    proposed_at: datetime | None = None  # when moves that make room for it were proposed last

    @property
    def rank(self) -> int:
        """Its priority class, 0 for the most urgent."""
        return PRIORITY_RANK[self.spec.priority]

    def key(self, order: JobOrder) -> OrderKey:
        """Its place in a line. Under `FAIR`, lines of several teams are merged by what their teams have: see the scheduler."""
        match order:
            case JobOrder.FAIR | JobOrder.PRIORITY:
                return (self.rank, self.submitted)
            case JobOrder.FIFO:
                return (self.submitted,)
            case JobOrder.SJF:
                return (self.spec.max_runtime_s or NO_END_S, self.submitted)


class Mark(NamedTuple):
    """What a run had used at an hour of the clock."""

    at: datetime
    gpu_us: int


class Failure(msgspec.Struct, frozen=True, gc=False):
    """The share of a run that did not end well whose word weighs most, and of those the first."""

    node_id: NodeId
    reason: EndReason
    exit_code: int
    out_of_memory: bool = False  # as the kernel said
    isolated: bool = False  # its agent had no contact, and ended it


class Run(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt of a job. Masks have a bit a share, in the order of `shares`."""

    run_id: RunId
    job_id: JobId
    attempt: int
    shares: tuple[NodeShare, ...]
    placed_at: datetime
    placed: Position
    gpus: int
    gpu_type: str
    team: TeamId
    rank: int  # priority class, 0 for the most urgent
    preemptible: bool = True
    max_runtime_s: int = 0  # declared; 0: not
    extends: bool = False  # it may go on beyond that, as the policy was when it was placed
    ranks: tuple[int, ...] = ()  # node rank n is shares[ranks[n]]; empty: in order of shares
    on_lost: OnLost = OnLost.RESTART
    started_at: datetime | None = None
    saved_at: datetime | None = None  # its last checkpoint
    saved: int = -1  # the number of that
    end: datetime | None = None  # when it has ended at the latest, as declared or told; None: nobody said
    evicted_for: JobId = JobId("")  # the job that it is to end for
    moved: bool = False  # it has a new place set aside: see `GpusEarmarked.moved`
    hurt: NodeId = NodeId("")  # where a GPU of it is, of which a verdict says that the run is to be stopped
    starts_by: datetime | None = None  # when all its shares are to have started; None: nobody said
    started: int = 0
    ended: int = 0
    released: int = 0
    dead: int = 0  # their node was lost or began another life
    clean: int = 0  # dead, and their GPUs were found clean in a later life
    stopping: StopCause | None = None
    stopped_at: datetime | None = None  # when it was told to
    blamed: NodeId = NodeId("")  # the node for which it was told to stop, for causes that have one
    failure: Failure | None = None
    evidence: tuple[str, ...] = ()  # CloudEvents ids of what ended it, the first few
    # Its use, as `credit.meter` counts it.
    metered_from: datetime | None = None
    metering: int = 0  # GPUs that count still, or will
    metered_us: int = 0  # GPU-microseconds of those that no longer do
    metered_until: datetime | None = None  # when the last of those stopped
    saved_us: int = 0  # of all, up to its last checkpoint
    marks: tuple[Mark, ...] = ()  # at hours of the clock at which it changed since; not recorded yet, if it is charged

    @property
    def all(self) -> int:
        """The mask of all shares."""
        return (1 << len(self.shares)) - 1

    @property
    def over(self) -> bool:
        """Whether nothing of it can run any more anywhere, as far as its `on_lost` asks for proof."""
        return self.released | (self.clean if self.on_lost is OnLost.WAIT else self.dead) == self.all

    @property
    def broken(self) -> int:
        """The shares that died before they ended."""
        return self.dead & ~self.ended

    @property
    def recovers(self) -> bool:
        """Whether it was told to stop since it lost a member, or its node is drained: its job goes on elsewhere."""
        return self.stopping in INTERRUPTED or (self.stopping is StopCause.RANK_FAILED and self.broken != 0)

    @property
    def absent(self) -> int:
        """The shares that have not come up."""
        return self.all & ~(self.started | self.ended | self.dead)

    @property
    def due(self) -> datetime | None:
        """When it is to be stopped unless it is complete by then; None for one that was said to be, or is stopped already."""
        return self.starts_by if self.started_at is None and self.stopping is None else None

    def bit(self, node_id: NodeId) -> int:
        """The mask of the share on a node; 0 for none. Shares are ordered by node."""
        low, high = 0, len(self.shares)
        while low < high:
            middle = (low + high) // 2
            if self.shares[middle].node_id < node_id:
                low = middle + 1
            else:
                high = middle
        return 1 << low if low < len(self.shares) and self.shares[low].node_id == node_id else 0

    def epoch_on(self, node_id: NodeId) -> NodeEpoch:
        """The life of the node that the share there belongs to; 0 for none."""
        bit = self.bit(node_id)
        return self.shares[bit.bit_length() - 1].node_epoch if bit else NodeEpoch(0)


def lasts(spec: JobSpec) -> timedelta | None:
    """How long a run of the job holds its GPUs at the most, with the graces of its stop; None: nobody said."""
    return timedelta(seconds=min(spec.max_runtime_s, RUNTIME_MAX_S)) + grace(spec) if spec.max_runtime_s else None


def grace(spec: JobSpec) -> timedelta:
    """How long a run may take to end once it is told to."""
    saves_s = spec.checkpoint.grace_s if spec.checkpoint is not None else 0
    return timedelta(seconds=min(spec.stop_grace_s + saves_s, RUNTIME_MAX_S))


class Earmark(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is set aside for a job."""

    job_id: JobId
    shares: tuple[NodeShare, ...]
    ranks: tuple[int, ...] = ()
    victims: tuple[RunId, ...] = ()
    until: datetime | None = None  # of what is kept for a gang that lost a member, whole or a part of it; None: whole
    at: datetime
    position: Position


class Promise(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What drains towards a job, and when it is to start."""

    job_id: JobId
    shares: tuple[NodeShare, ...]
    start: datetime | None
    first: datetime | None  # the start that was promised first
    at: datetime  # when it was promised, or moved last
    position: Position  # likewise
    moves: int = 0
