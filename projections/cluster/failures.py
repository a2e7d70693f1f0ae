"""Whose failure the end of a run was: what is evidence of what, in one table, and what a job may do about it."""

from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import Final, NamedTuple, TypedDict

from events.base import NodeId
from events.job import FailureCategory, StopCause
from events.node import EndReason
from projections.cluster.fitness import STOPS
from projections.cluster.job import BACK_OFF_MAX, Failure, Job, Run
from projections.cluster.state import Cluster

BACK_OFF_S: Final = 1.0  # before the second attempt, doubled with each further one
DOUBLED_MAX: Final = 16  # times; more would be beyond what is waited at the most
NO_NODE: Final = NodeId("")


class Budget(Enum):
    """Which of a job's retries a failure takes."""

    NONE = "none"  # nobody's failure: the job waits again as if it had not run
    APPLICATION = "application"
    INFRASTRUCTURE = "infrastructure"


APPLICATION_CAUSES: Final = frozenset({StopCause.RANK_FAILED, StopCause.TIME_LIMIT})
MADE_WAY: Final = frozenset({StopCause.PREEMPTED, StopCause.CONSOLIDATED, StopCause.QUEUE_HELD})
BLAMELESS_CAUSES: Final = MADE_WAY | {StopCause.CREDITS, StopCause.DRAIN}


def budget_of(cause: StopCause) -> Budget:
    """Which retries an end by this cause takes."""
    if cause in BLAMELESS_CAUSES:
        return Budget.NONE
    return Budget.APPLICATION if cause in APPLICATION_CAUSES else Budget.INFRASTRUCTURE


class Seen(NamedTuple):
    """What is known of a run that ends, and the node of a GPU of it that was judged during its life."""

    run: Run
    gpu_node: NodeId = NO_NODE

    def ended_by(self, *reasons: EndReason) -> bool:
        """Whether that is how the share ended whose word weighs most."""
        return self.run.failure is not None and self.run.failure.reason in reasons

    @property
    def failed_on(self) -> NodeId:
        """The node of that share."""
        return self.run.failure.node_id if self.run.failure is not None else NO_NODE

    @property
    def broken_on(self) -> NodeId:
        """The first node that was lost, or began another life, with a share that had not ended."""
        return node_at(self.run, self.run.broken) or self.failed_on


class Row(NamedTuple):
    """A line of the table."""

    holds: Callable[[Seen], bool]
    cause: StopCause
    category: FailureCategory
    node: Callable[[Seen], NodeId]
    why: str


class Told(TypedDict):
    """What every event says that ends a run badly."""

    cause: StopCause
    category: FailureCategory
    node_id: NodeId
    exit_code: int


class Verdict(NamedTuple):
    """What ended a run."""

    cause: StopCause
    category: FailureCategory
    node_id: NodeId = NO_NODE  # whose failure it was, for causes that have one
    exit_code: int = 0  # that the share which failed reported

    def told(self) -> Told:
        """What the event that ends the run says of it."""
        return Told(cause=self.cause, category=self.category, node_id=self.node_id, exit_code=self.exit_code)

    @property
    def avoid(self) -> tuple[NodeId, ...]:
        """Nodes that the next attempt keeps away from: none for what a job would do anywhere."""
        return (self.node_id,) if self.node_id and budget_of(self.cause) is Budget.INFRASTRUCTURE else ()


TABLE: Final = (  # the first line that holds
    Row(
        lambda seen: seen.ended_by(EndReason.TIME_LIMIT) or seen.run.stopping is StopCause.TIME_LIMIT,
        StopCause.TIME_LIMIT,
        FailureCategory.TIME_LIMIT,
        lambda seen: seen.failed_on,
        "a node saw the limit pass before it was told anything else: the run has had all it asked for",
    ),
    Row(
        lambda seen: seen.run.failure is not None and seen.run.failure.isolated,
        StopCause.NODE_LOST,
        FailureCategory.CONTROL_PLANE,
        lambda seen: seen.failed_on,
        "the ranks were well and their node too: it was cut off, and ended them so that they could start elsewhere",
    ),
    Row(
        lambda seen: bool(seen.gpu_node) and seen.run.stopping is not StopCause.NODE_LOST,
        StopCause.GPU,
        FailureCategory.GPU,
        lambda seen: seen.gpu_node,
        "a GPU was judged during the run: ranks that exit, and a node that goes, follow from that",
    ),
    Row(
        lambda seen: bool(seen.run.broken) or seen.ended_by(EndReason.NODE_REBOOTED),
        StopCause.NODE_LOST,
        FailureCategory.NODE,
        lambda seen: seen.broken_on,
        "a node went: what exits on the others, before its silence is noticed or after, follows from that",
    ),
    Row(
        lambda seen: (
            seen.ended_by(EndReason.STOPPED, EndReason.NEVER_STARTED)
            and seen.run.stopping in {None, StopCause.NODE_LOST}
        ),
        StopCause.NODE_LOST,
        FailureCategory.CONTROL_PLANE,
        lambda seen: seen.failed_on,
        "its agent ended it and nobody had told it to: agents do so when they are cut off",
    ),
    Row(
        lambda seen: seen.ended_by(EndReason.START_FAILED),
        StopCause.START_FAILED,
        FailureCategory.NODE,
        lambda seen: seen.failed_on,
        "a program that is not there exits as in a shell: what could not be started is the node's failure",
    ),
    Row(
        lambda seen: seen.run.stopping is StopCause.START_DEADLINE,
        StopCause.START_DEADLINE,
        FailureCategory.NODE,
        lambda seen: seen.run.blamed,
        "the gang was never whole: what its ranks did alone says nothing",
    ),
    Row(
        lambda seen: seen.run.failure is not None and seen.run.failure.out_of_memory,
        StopCause.RANK_FAILED,
        FailureCategory.OUT_OF_MEMORY,
        lambda seen: seen.failed_on,
        "the kernel said so: the signal alone could be anybody's",
    ),
    Row(
        lambda seen: seen.ended_by(EndReason.EXITED),
        StopCause.RANK_FAILED,
        FailureCategory.USER,
        lambda seen: seen.failed_on,
        "nothing else is known of: it would exit so anywhere",
    ),
)
UNSAID: Final = Verdict(StopCause.NODE_LOST, FailureCategory.NODE)  # its GPUs came back without a word how it ended


def verdict_on(run: Run, *, gpu_node: NodeId = NO_NODE) -> Verdict | None:
    """What its evidence says ended the run; None while there is none. `gpu_node`: where a GPU of it was judged."""
    seen = Seen(run, run.hurt or gpu_node)
    for row in TABLE:
        if row.holds(seen):
            by_itself = seen.ended_by(EndReason.EXITED, EndReason.START_FAILED)  # else it was told to, or not asked
            exit_code = run.failure.exit_code if run.failure is not None and by_itself else 0
            return Verdict(row.cause, row.category, row.node(seen), exit_code)
    return None


def made_way(cause: StopCause, node_id: NodeId) -> Verdict:
    """What is said of a run that was stopped for no failure, whatever its ranks did then."""
    return Verdict(cause, FailureCategory.PREEMPTED if cause in MADE_WAY else FailureCategory.NONE, node_id)


def node_at(run: Run, mask: int) -> NodeId:
    """The node of the first share of a mask; none for an empty one."""
    return run.shares[(mask & -mask).bit_length() - 1].node_id if mask else NO_NODE


def outweighs(failure: Failure, before: Failure | None) -> bool:
    """Whether the word of a share that ended badly counts instead of what an earlier one said.

    An exit code may follow from anything that went wrong elsewhere in the gang; all else speaks for itself.
    """
    if before is None:
        return True
    return _speaks_for_itself(failure) and not _speaks_for_itself(before)


def _speaks_for_itself(failure: Failure) -> bool:
    told = failure.reason in {EndReason.EXITED, EndReason.STOPPED, EndReason.NEVER_STARTED}
    return failure.out_of_memory or failure.isolated or not told


def gpu_judged(cluster: Cluster, run: Run) -> NodeId:
    """The first node of the run on which a verdict since its placement was on a GPU of it; none where none was.

    Of a share that has been released too: the driver's word may come after the rank's.
    """
    for share in run.shares:
        node = cluster.nodes.get(share.node_id)
        if node is None:
            continue
        for fault in node.fitness.history:
            if fault.at >= run.placed_at and fault.action in STOPS and node.mask((fault.gpu_uuid,)) & share.slots:
                return share.node_id
    return NO_NODE


def back_off(failures: int) -> timedelta:
    """How long a job waits that has failed so often before, of one kind."""
    return min(timedelta(seconds=BACK_OFF_S * 2 ** min(failures, DOUBLED_MAX)), BACK_OFF_MAX)


def retried(job: Job, budget: Budget) -> tuple[int, int]:
    """How often the job has failed before so that it took this budget, and how often it may."""
    if budget is Budget.APPLICATION:
        return job.failures_application, job.spec.retries_application
    return job.failures_infrastructure, job.spec.retries_infrastructure
