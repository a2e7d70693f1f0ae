"""What the log adds up to: nodes, waiting jobs and runs, with the indexes that deciders look through.

The things are frozen; the maps change in place, have one owner, and are forked before anything is tried on them.
"""

from collections.abc import MutableMapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from events.alarm import AlarmCode
from events.base import (
    START,
    JobId,
    NodeId,
    Position,
    RunId,
    TeamId,
)
from events.job import HoldCode
from events.policy import PolicySet
from events.queues import Queue
from projections.cluster.credit.state import Credits
from projections.cluster.job import Earmark, Job, OrderKey, Promise, Run, Shape
from projections.cluster.node import Kind, Node, Place, Pool, Spare, Whole
from projections.cluster.overlay import Buckets, Lines, fork_map
from projections.cluster.quota.tree import Tree

FOLD_VERSION: Final = 6  # of what a snapshot holds: another version is thrown away
NO_POLICY: Final = PolicySet(at=datetime.fromisoformat("1970-01-01T00:00:00+00:00"))


class Line(NamedTuple):
    """A line of jobs of one team that need the same, and of which the log says the same."""

    team: TeamId
    shape: Shape
    hold: HoldCode
    borrowing: bool = False
    rank: int = 0  # priority class, 0 for the most urgent
    firm: bool = False  # cannot be preempted


class Purse(NamedTuple):
    """Jobs of a line that cannot be paid for, and of which the longer costs more."""

    line: Line
    account: str  # that they name
    declared: bool  # a runtime; without one, all cost the same


class Use(NamedTuple):
    """Whose GPUs are counted: those of placed runs."""

    team: TeamId
    gpu_type: str
    rank: int  # priority class, 0 for the most urgent
    preemptible: bool


class Want(NamedTuple):
    """Whose GPUs are counted: those that waiting jobs ask for."""

    team: TeamId
    gpu_types: tuple[str, ...]  # as the jobs accept them


class Tally(NamedTuple):
    """How many jobs a team has."""

    waiting: int = 0
    placed: int = 0


class Alarm(msgspec.Struct, frozen=True):
    """Something that needs a person."""

    code: AlarmCode
    at: datetime
    position: Position
    message: str
    hint: str = ""
    node_ids: tuple[NodeId, ...] = ()
    count: int = 0


class Past(msgspec.Struct, frozen=True):
    """What a team used, each GPU-second halved for every half-life since."""

    gpu_s: float
    at: datetime  # up to when that counts


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
        self.queues: MutableMapping[TeamId, Queue] = {}  # as last set; replaced whole
        self.tree = Tree({})  # what they make; likewise
        self.queues_position: Position = START  # of that document
        self.policy_position: Position = START
        self.nodes: MutableMapping[NodeId, Node] = {}
        self.jobs: MutableMapping[JobId, Job] = {}
        self.runs: MutableMapping[RunId, Run] = {}
        self.earmarks: MutableMapping[JobId, Earmark] = {}
        self.promises: MutableMapping[JobId, Promise] = {}
        self.alarms: MutableMapping[AlarmCode, Alarm] = {}  # that are raised
        self.credits = Credits()
        self.past: MutableMapping[TeamId, Past] = {}  # empty while the policy has no half-life
        # What follows is made from the above, and kept by `index`.
        self.queue: Lines[Line, JobId] = Lines()  # jobs that may be admitted
        self.unpaid: Lines[Purse, JobId] = Lines()  # those of `queue` that cannot be paid for, the cheapest first
        self.later: Lines[None, JobId] = Lines()  # jobs in their back-off, by its end
        self.admitted: Lines[Line, JobId] = Lines()
        self.shortest: Lines[Shape, JobId] = Lines()  # admitted jobs that declare a runtime, the shortest first
        self.ends: Lines[str, RunId] = Lines()  # gpu type -> runs whose end is known, the first to end first
        self.starting: Lines[None, RunId] = Lines()  # runs of which shares have not started, by when they are to have
        self.attention: MutableMapping[RunId, None] = {}  # runs that lifecycle has something to say about
        self.unwanted: MutableMapping[JobId, None] = {}  # cancelled jobs that have no GPUs
        self.avoiding: Lines[None, JobId] = Lines()  # waiting jobs that avoid nodes, by when the first is forgiven
        self.recovering: MutableMapping[RunId, None] = {}  # runs that were told to stop since they lost a member
        self.suspects: MutableMapping[NodeId, None] = {}
        self.cases: MutableMapping[NodeId, None] = {}  # nodes of which health may have something to say
        self.windows: Lines[None, NodeId] = Lines()  # nodes with maintenance planned, by when that next asks for a word
        self.deadlines: Lines[None, NodeId] = Lines()  # drained nodes that hold runs, by when these are to be gone
        self.pools: Buckets[Pool] = Buckets()  # nodes that are up and have spare GPUs
        self.whole: Buckets[Whole] = Buckets()  # of those, the ones with nothing on them
        self.spares: MutableMapping[Spare, int] = {}  # GPUs of those that say where they stand
        self.places: Buckets[Place] = Buckets()  # all nodes, by where they stand
        self.sizes: MutableMapping[Kind, int] = {}  # nodes
        self.could: dict[object, bool] = {}  # what `could_hold` answered about these sizes; a new one when they change
        self.capacity: MutableMapping[str, int] = {}  # gpu type -> GPUs in the pool, or held where nothing new comes
        self.usage: MutableMapping[Use, int] = {}  # GPUs, of all runs
        self.leaving: MutableMapping[Use, int] = {}  # GPUs, of runs that are to end for another job
        self.staying: MutableMapping[Use, int] = {}  # runs that are not
        self.wanted: MutableMapping[Want, int] = {}  # GPUs
        self.teams: MutableMapping[TeamId, int] = {}  # GPUs of all runs of a team: `usage`, summed
        self.tallies: MutableMapping[TeamId, Tally] = {}

    def fork(self) -> "Cluster":
        """A cluster that starts as this one and can be changed without changing it."""
        fork = object.__new__(Cluster)
        fork.__dict__.update(self.__dict__)
        for name in FORKED:
            setattr(fork, name, fork_map(getattr(self, name)))
        fork.queue = self.queue.fork()
        fork.unpaid = self.unpaid.fork()
        fork.later = self.later.fork()
        fork.avoiding = self.avoiding.fork()
        fork.admitted = self.admitted.fork()
        fork.shortest = self.shortest.fork()
        fork.ends = self.ends.fork()
        fork.starting = self.starting.fork()
        fork.windows = self.windows.fork()
        fork.deadlines = self.deadlines.fork()
        fork.pools = self.pools.fork()
        fork.whole = self.whole.fork()
        fork.places = self.places.fork()
        fork.credits = self.credits.fork()
        return fork

    def key(self, job: Job) -> OrderKey:
        """The place of a job in its line."""
        return job.key(self.policy.order)

    def node(self, node_id: NodeId) -> Node:
        """The node, or one that never joined."""
        return self.nodes.get(node_id) or Node(node_id=node_id)


FORKED: Final = (
    "nodes",
    "jobs",
    "runs",
    "earmarks",
    "promises",
    "past",
    "attention",
    "unwanted",
    "recovering",
    "suspects",
    "cases",
    "alarms",
    "spares",
    "sizes",
    "capacity",
    "usage",
    "leaving",
    "staying",
    "wanted",
    "teams",
    "tallies",
)
