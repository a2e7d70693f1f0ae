"""What the log adds up to: nodes, waiting jobs and runs, with the indexes that deciders look through.

The things are frozen; the maps change in place, have one owner, and are forked before anything is tried on them.
"""

from collections.abc import MutableMapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from events.base import (
    SLOTS_MAX,
    START,
    GpuUuid,
    JobId,
    NodeEpoch,
    NodeId,
    Position,
    RunId,
    TeamId,
)
from events.job import HoldCode, JobSpec, NodeShare, OnLost, Priority, StopCause
from events.node import EndReason
from events.policy import PolicySet
from projections.cluster.overlay import Buckets, Lines, fork_map

FOLD_VERSION: Final = 1  # of what a snapshot holds: another version is thrown away
PRIORITY_RANK: Final = {Priority.URGENT: 0, Priority.HIGH: 1, Priority.NORMAL: 2, Priority.LOW: 3}
NO_POLICY: Final = PolicySet(at=datetime.fromisoformat("1970-01-01T00:00:00+00:00"))

BACK_OFF_MAX: Final = timedelta(seconds=300)

OrderKey = tuple[float, ...]
Slots = int  # bit n is slot n; 0 is none, which no message may carry


class NodeState(StrEnum):
    """Whether a node's agent is heard."""

    UP = "up"
    SUSPECT = "suspect"
    LOST = "lost"


class JobState(StrEnum):
    """Where a job that has not ended stands."""

    QUEUED = "queued"
    ADMITTED = "admitted"
    PLACED = "placed"  # its run has GPUs; whether all ranks have started, and whether it is stopping, the run knows


class Pool(NamedTuple):
    """Nodes that are alike for placement. `free` GPUs are clean, in the pool, and no run's."""

    gpu_type: str
    size: int  # GPUs that the node has
    free: int  # never 0


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One node in its present life."""

    node_id: NodeId
    epoch: NodeEpoch = NodeEpoch(0)
    state: NodeState = NodeState.UP
    instance: str = ""
    boot_id: str = ""
    gpu_type: str = ""
    address: str = ""
    port_base: int = 0
    uuids: tuple[GpuUuid, ...] = ()  # slot n has uuids[n], for ever
    present: Slots = 0  # slots whose GPU the present life has
    pool: Slots = 0  # of those, found clean in this life
    free: Slots = 0  # of those, held by no run: what may be given away
    held: dict[RunId, Slots] = {}  # by runs of this life; never changed in place
    owed: dict[RunId, Slots] = {}  # slots of runs of earlier lives that were not found clean yet; likewise

    @property
    def size(self) -> int:
        """GPUs that the node has."""
        return self.present.bit_count()

    def numbered(self, uuids: tuple[GpuUuid, ...]) -> tuple[GpuUuid, ...]:
        """The GPUs by slot once these are in the node: a known one keeps its own, a new one gets the next never used.

        When all are used up, as where each boot brings other GPUs, it gets that of one that is gone.
        """
        slots, known = list(self.uuids), set(self.uuids)
        gone = (slot for slot, uuid in enumerate(self.uuids) if uuid not in uuids)
        for uuid in dict.fromkeys(uuids):
            if uuid in known:
                continue
            if len(slots) < SLOTS_MAX:
                slots.append(uuid)
            elif (slot := next(gone, None)) is not None:
                slots[slot] = uuid
        return tuple(slots)

    def mask(self, uuids: tuple[GpuUuid, ...]) -> Slots:
        """The slots of some GPUs; those never seen here have none."""
        slots = {uuid: slot for slot, uuid in enumerate(self.uuids)}
        return sum(1 << slots[uuid] for uuid in set(uuids) if uuid in slots)

    def losing(self) -> "Node":
        """The node without its runs and its GPUs."""
        owed = {**self.owed, **self.held}
        return msgspec.structs.replace(self, state=NodeState.LOST, pool=0, free=0, held={}, owed=owed)

    def pooling(self, slots: Slots) -> "Node":
        """The node with some slots in the pool: those that no run holds are free."""
        pool = self.pool | (slots & self.present)
        unclean = self.present & ~pool  # a GPU that the node has no more holds nothing
        owed = {run_id: mask for run_id, mask in self.owed.items() if mask & unclean}
        taken = sum(self.held.values())  # disjoint
        return msgspec.structs.replace(self, pool=pool, free=pool & ~taken, owed=owed)

    def taking(self, run_id: RunId, slots: Slots) -> "Node":
        """The node with `slots`, which are free, held by a run."""
        held = {**self.held, run_id: slots}
        return msgspec.structs.replace(self, held=held, free=self.free & ~slots)

    def freeing(self, run_id: RunId, slots: Slots) -> "Node":
        """The node with those of `slots` free that the run holds, and no others."""
        freed = self.held.get(run_id, 0) & slots
        held = dict(self.held)
        if not (kept := held.pop(run_id, 0) & ~slots):
            return msgspec.structs.replace(self, held=held, free=self.free | freed)
        held[run_id] = kept
        return msgspec.structs.replace(self, held=held, free=self.free | freed)


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has not ended."""

    job_id: JobId
    team: TeamId
    spec: JobSpec
    submitted: Position  # its age
    state: JobState = JobState.QUEUED
    attempt: int = 0  # runs so far
    hold: HoldCode = HoldCode.NOT_EVALUATED
    held_at: datetime | None = None  # when the hold code last changed
    not_before: datetime | None = None  # back-off
    cancel: bool = False  # a user asked for its end
    failures_application: int = 0
    failures_infrastructure: int = 0

    @property
    def key(self) -> OrderKey:
        """Its place in the order: priority class, then age."""
        return (PRIORITY_RANK[self.spec.priority], self.submitted)

    @property
    def shape(self) -> "Shape":
        """What it needs: jobs of one shape fit, or do not fit, alike."""
        spec = self.spec
        return Shape(spec.gpus, spec.nodes, spec.gpus_per_node, spec.gpu_types)


class Shape(NamedTuple):
    """What a gang needs. `nodes` 0: derived, see the scheduler."""

    gpus: int
    nodes: int
    gpus_per_node: int
    gpu_types: tuple[str, ...]

    def __str__(self) -> str:
        gpus = f"{self.gpus} GPU{'s' if self.gpus != 1 else ''}"
        shape = f" ({self.nodes} nodes x {self.gpus_per_node})" if self.nodes else ""
        return gpus + shape + (f" on {' or '.join(self.gpu_types)}" if self.gpu_types else "")


class Failure(msgspec.Struct, frozen=True):
    """The first share of a run that did not end well."""

    node_id: NodeId
    reason: EndReason
    exit_code: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a job. Masks have a bit a share, in the order of `shares`."""

    run_id: RunId
    job_id: JobId
    attempt: int
    shares: tuple[NodeShare, ...]
    placed_at: datetime
    placed: Position
    on_lost: OnLost = OnLost.RESTART
    started_at: datetime | None = None
    started: int = 0
    ended: int = 0
    released: int = 0
    dead: int = 0  # their node was lost or began another life
    clean: int = 0  # dead, and their GPUs were found clean in a later life
    stopping: StopCause | None = None
    failure: Failure | None = None

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


class Waiting(NamedTuple):
    """The line of the admitted jobs that need the same, and of which the log says the same."""

    shape: Shape
    hold: HoldCode


class Queued(StrEnum):
    """The lines of jobs that wait for admission."""

    NOW = "now"  # in order
    LATER = "later"  # by the end of their back-off


class Cluster:
    """The fold. Whoever folds owns it; others look at it, and fork it before they try anything."""

    def __init__(self) -> None:
        self.log_id = ""
        self.position: Position = START  # of the last record folded
        self.at: datetime | None = None  # when that was stored
        self.head: Position = START  # the last record on `head`
        self.epoch: Position = START  # the last `LeadershipTaken`
        self.leader = ""  # its instance
        self.policy: PolicySet = NO_POLICY
        self.unread: Position = START  # the first record of the control plane that could not be read; 0: none
        self.nodes: MutableMapping[NodeId, Node] = {}
        self.jobs: MutableMapping[JobId, Job] = {}
        self.runs: MutableMapping[RunId, Run] = {}
        self.queue: Lines[Queued, JobId] = Lines()
        self.admitted: Lines[Waiting, JobId] = Lines()
        self.attention: MutableMapping[RunId, None] = {}  # runs that lifecycle has something to say about
        self.unwanted: MutableMapping[JobId, None] = {}  # cancelled jobs that have no GPUs
        self.suspects: MutableMapping[NodeId, None] = {}
        self.pools: Buckets[Pool] = Buckets()  # nodes that are up and have free GPUs
        self.sizes: MutableMapping[tuple[NodeState, str, int], int] = {}  # (state, gpu type, size) -> nodes

    def fork(self) -> "Cluster":
        """A cluster that starts as this one and can be changed without changing it."""
        fork = object.__new__(Cluster)
        fork.__dict__.update(self.__dict__)
        for name in ("nodes", "jobs", "runs", "attention", "unwanted", "suspects", "sizes"):
            setattr(fork, name, fork_map(getattr(self, name)))
        fork.queue = self.queue.fork()
        fork.admitted = self.admitted.fork()
        fork.pools = self.pools.fork()
        return fork

    def node(self, node_id: NodeId) -> Node:
        """The node, or one that never joined."""
        return self.nodes.get(node_id) or Node(node_id=node_id)
