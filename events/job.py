"""The job family: what users ask of a job (`intake.<team>.<job>`) and what becomes of it (`job.<team>.<job>`)."""

from enum import StrEnum
from typing import ClassVar

import msgspec

from events.base import (
    INTAKE,
    JOB,
    Code,
    Count,
    Event,
    Family,
    JobId,
    Moment,
    NodeEpoch,
    NodeId,
    RunId,
    SlotMask,
    TeamId,
)


class Priority(StrEnum):
    """Priority classes, from the least to the most urgent."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
    URGENT = "urgent"


class Ranks(StrEnum):
    """How many processes a share starts: one a GPU, or one a node that sees all GPUs of the share."""

    PER_GPU = "per_gpu"
    PER_NODE = "per_node"


class OnLost(StrEnum):
    """What becomes of a run whose node is lost: started elsewhere, or kept until the node is known to be clean."""

    RESTART = "restart"
    WAIT = "wait"


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """How a job is told to save its progress before it is stopped."""

    signal: str = "SIGUSR2"  # NCCL uses SIGUSR1
    grace_s: Count = 30  # from the signal to SIGTERM
    directory: str = ""  # MUSTER_CHECKPOINT_DIR; empty: one of the job's own under the agent's data directory


class Domain(StrEnum):
    """A part of the network, from the smallest to the largest."""

    RACK = "rack"
    SPINE = "spine"


class Topology(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """How close together the shares of a gang must be, or should."""

    within: Domain
    required: bool = True  # False: as few of them as hold the gang


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What a user wants to run, checked: every field is within its limits."""

    name: str
    command: tuple[str, ...]
    gpus: Count  # of the whole gang
    nodes: Count = 0  # with gpus_per_node: the shape asked for; 0: derived, 8 and more take whole nodes
    gpus_per_node: Count = 0
    gpu_types: tuple[str, ...] = ()  # accepted, in order of preference; empty: any
    env: dict[str, str] = {}
    workdir: str = ""  # empty: a fresh directory of the run's
    priority: Priority = Priority.NORMAL
    ranks: Ranks = Ranks.PER_GPU
    max_runtime_s: Count = 0  # from the start of all ranks; 0: no limit
    stop_grace_s: Count = 10  # from SIGTERM to SIGKILL
    preemptible: bool = True
    checkpoint: Checkpoint | None = None
    retries_application: Count = 0  # after a rank exited with another code than 0
    retries_infrastructure: Count = 3  # after a failure of ours: node lost or rebooted, ranks that could not be started
    on_lost: OnLost = OnLost.RESTART
    min_gpus: Count = 0  # an elastic gang starts with so many at the least; 0: with all
    topology: Topology | None = None
    labels: dict[str, str] = {}  # that its nodes must have
    tolerates: tuple[str, ...] = ()  # taints of nodes that it may go to all the same
    account: str = ""  # of its team's, the one that pays; empty: the first
    start_within_s: Count = 0  # from its placement until all ranks have started; 0: as the policy says


class NodeShare(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The part of a run that one node carries."""

    node_id: NodeId
    node_epoch: NodeEpoch  # which life of the node is meant; in a later one the share is dead
    slots: SlotMask  # bit n is slot n; never 0


class HoldCode(StrEnum):
    """Why a job waits. Stable: programs compare them. The numbers are computed when asked."""

    NOT_EVALUATED = "not_evaluated"  # no round has looked at it yet
    # Held
    QUEUE_PAUSED = "queue_paused"  # its queue, or one above it, is paused or on hold
    BACKING_OFF = "backing_off"  # requeued, and its not_before has not come
    FAILED_TOO_OFTEN = (
        "failed_too_often"  # failures that are not its own have used up its budget: a person looks, then resumes it
    )
    # Impossible with the numbers of now
    NO_SUCH_GPU = "no_such_gpu"  # no node has, or ever had, a GPU of an accepted type
    NO_SUCH_NODE = "no_such_node"  # nodes with such GPUs lack its labels, or have taints that it does not tolerate
    EXCEEDS_CLUSTER = "exceeds_cluster"  # larger than all that the cluster has, free or not
    EXCEEDS_DOMAIN = "exceeds_domain"  # larger than any one rack, or spine, that it must stay within
    EXCEEDS_LIMIT = "exceeds_limit"  # larger than the limit of its queue, or of one above it
    EXCEEDS_FLOOR = "exceeds_floor"  # cannot be preempted, and is larger than what its team has for sure
    # Over quota
    OVER_LIMIT = "over_limit"  # its queue, or one above it, is at its limit
    OVER_FLOOR = "over_floor"  # cannot be preempted, and what its team has for sure is in use by others of that kind
    OVER_ENTITLEMENT = "over_entitlement"  # beyond what its team is entitled to, and enough of its jobs wait to borrow
    RUNNING_MAX = "running_max"  # its queue runs as many jobs as it may
    NO_ACCOUNT = "no_account"  # it names an account that is closed, or that its team may not charge
    NO_PRICE = "no_price"  # a GPU type that it may get has no price
    CREDITS = "credits"  # its account cannot pay for the whole of it
    BEHIND = "behind"  # another holds up its queue, which is strict
    # Room
    NODES_UNWELL = "nodes_unwell"  # would fit if suspect, lost, cordoned or drained nodes were well
    NO_ROOM = "no_room"  # fits the cluster, not what is free now
    SCATTERED = "scattered"  # as many GPUs are free as it needs, in pieces that do not hold it
    RESERVED = "reserved"  # what is free is promised to a gang before it, or kept for maintenance, which it would delay
    WAITS_FOR_PREEMPTED = "waits_for_preempted"  # others are being stopped for it
    PROMISED = "promised"  # nodes drain towards it


IMPOSSIBLE = frozenset(
    {
        HoldCode.NO_SUCH_GPU,
        HoldCode.NO_SUCH_NODE,
        HoldCode.EXCEEDS_CLUSTER,
        HoldCode.EXCEEDS_DOMAIN,
        HoldCode.EXCEEDS_LIMIT,
        HoldCode.EXCEEDS_FLOOR,
    }
)  # what waits so takes part in nothing until something else is said of it

UNPAID = frozenset({HoldCode.NO_ACCOUNT, HoldCode.NO_PRICE, HoldCode.CREDITS})  # likewise, until it can be paid for


class PromiseCause(StrEnum):
    """Why a promise was moved or dropped."""

    OVERTAKEN = "overtaken"  # a job before it in the order took what was promised
    OVERRUN = "overrun"  # a run that was to have ended goes on
    NODE = "node"  # a node of it is gone, unwell, cordoned, or lost a GPU
    EARLIER = "earlier"  # what ended early lets it start sooner
    POLICY = "policy"  # fewer gangs may hold promises, or it is no longer among the first
    CHANGED = "changed"  # the job is cancelled, or is no longer admitted, or can no longer be held
    PREEMPTION = "preemption"  # others are stopped for it instead


class EarmarkCause(StrEnum):
    """Why what was set aside for a job no longer is."""

    NODE = "node"  # a node of it is gone, unwell, or lost a GPU
    CHANGED = "changed"  # the job is cancelled, or is no longer admitted
    EXPIRED = "expired"  # it was kept for as long as the policy says


class StopCause(StrEnum):
    """Why the control plane told a run to stop."""

    CANCEL = "cancel"
    TIME_LIMIT = "time_limit"
    RANK_FAILED = "rank_failed"  # a rank exited with another code than 0
    START_FAILED = "start_failed"  # a node could not start its ranks
    NODE_LOST = "node_lost"  # a node was declared lost, rebooted, or joined anew
    PREEMPTED = "preempted"  # for a more urgent job, or one of a team that has less than its share
    CONSOLIDATED = "consolidated"  # moved, so that a gang finds whole nodes
    QUEUE_HELD = "queue_held"  # its queue, or one above it, was put on hold
    CREDITS = "credits"  # what is reserved for it is used up, and its account has no more
    DRAIN = "drain"  # its node is drained, and the deadline has come
    GPU = "gpu"  # a GPU of it failed
    START_DEADLINE = "start_deadline"  # a share did not come up in time


class FailureCategory(StrEnum):
    """Whose failure the end of a run was, from evidence."""

    NONE = ""  # it was none: stopped for others, or by somebody's word
    USER = "user"  # a rank exited by itself with another code than 0
    OUT_OF_MEMORY = "out_of_memory"  # the kernel killed a rank for want of memory
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"  # stopped for others, moved, or with its queue
    NODE = "node"  # lost, rebooted, or could not start its ranks
    GPU = "gpu"
    CONTROL_PLANE = "control_plane"  # a node was cut off from it, and ended what ran there by itself


class IntakeEvent(Event, kw_only=True, frozen=True):
    """What a user asked of a job. Written by the gate."""

    family: ClassVar[Family] = INTAKE

    team: TeamId
    job_id: JobId


class JobSubmitted(IntakeEvent, kw_only=True, frozen=True, tag="musterbook.job.submitted.v1"):
    """A user asked for a job. The first record of its subject, for ever: a key is never taken twice."""

    spec: JobSpec
    key: str  # idempotency key, chosen by the client; the job's id is derived from it
    request_hash: str  # of the spec as checked: tells a repeat from another ask under the same key


class JobCancelRequested(IntakeEvent, kw_only=True, frozen=True, tag="musterbook.job.cancel_requested.v1"):
    """A user no longer wants a job. Without effect on one that has ended."""

    reason: str = ""


class JobResumeAsked(IntakeEvent, kw_only=True, frozen=True, tag="musterbook.job.resume_asked.v1"):
    """Somebody looked at a job that had failed too often: it may try again, with its budgets as they were at first."""

    reason: str = ""


class JobEvent(Event, kw_only=True, frozen=True):
    """What became of a job. Written by the control plane."""

    family: ClassVar[Family] = JOB

    team: TeamId
    job_id: JobId


class JobRejected(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.rejected.v1"):
    """The job will never run. Terminal."""

    code: str
    message: str


class JobAdmitted(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.admitted.v1"):
    """The job may run, whole: it waits for GPUs only."""

    borrowing: bool = False  # beyond what its team is entitled to now: it goes behind those that are within


class AdmissionWithdrawn(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.admission_withdrawn.v1"):
    """The job is queued again, at its old age: its queue was stopped, its limits were lowered, or it can no longer fit."""


class JobHeld(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.held.v1"):
    """The reason code of a waiting job changed. Numbers are computed from the log when asked."""

    code: HoldCode


class JobPlaced(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.placed.v1"):
    """The scheduler gave a job its GPUs: the whole gang in one event, so all of it or none.

    They are the run's until its `GpusReleased` or the end of the node's epoch, whatever becomes
    of the run and of its agents.
    """

    run_id: RunId  # "<job>-<attempt>": deciding again gives the same id
    attempt: Count  # 1 for the first
    shares: tuple[NodeShare, ...]  # one per node, ordered by node_id
    ranks: tuple[
        Count, ...
    ] = ()  # node rank n is shares[ranks[n]]: neighbours in the network; empty: in order of shares


class GpusEarmarked(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.gpus_earmarked.v1"):
    """These GPUs are set aside for the job, whole gang, and runs that hold some of them are to end for it.

    One decision: victims and destination. Until `JobPlaced` or `EarmarkDropped` they are given to no other job, whether
    they are free by now or not.
    """

    shares: tuple[NodeShare, ...]  # one per node, ordered by node_id; those not free are the victims'
    victims: tuple[RunId, ...] = ()  # whole gangs, in order; none where a moved job's new place is set aside
    ranks: tuple[Count, ...] = ()  # as in `JobPlaced`
    moved: bool = False  # the victims are moved, so that whole nodes come free: each has an earmark of its own
    until: Moment | None = None  # of what is kept for a gang that lost a member, or a part of that: then it is anyone's


class EarmarkDropped(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.earmark_dropped.v1"):
    """What was set aside for the job is anyone's again. Victims that were told to end do so."""

    cause: EarmarkCause


class StartPromised(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.start_promised.v1"):
    """These GPUs drain towards the job: whatever starts there before it ends before `start`."""

    shares: tuple[NodeShare, ...]  # one per node, ordered by node_id
    start: Moment | None  # when all of them are free, by declared runtimes; None: one that runs there has none


class PromiseMoved(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.promise_moved.v1"):
    """The promise is another one now."""

    shares: tuple[NodeShare, ...]
    start: Moment | None
    cause: PromiseCause


class PromiseDropped(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.promise_dropped.v1"):
    """The job has no promise any more."""

    cause: PromiseCause


class Move(msgspec.Struct, frozen=True):
    """A run that would go elsewhere, and where."""

    run_id: RunId
    shares: tuple[NodeShare, ...]


class ConsolidationProposed(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.consolidation_proposed.v1"):
    """The job would have room if these moves were made: each moved job has a new place. Nothing is done about it."""

    shares: tuple[NodeShare, ...]  # where the job would be
    moves: tuple[Move, ...]


class RunStarted(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.run_started.v1"):
    """Every share of the run has started all its ranks: the gang is complete."""

    run_id: RunId


class RunStopping(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.run_stopping.v1"):
    """The run was told to end on all its nodes. Its GPUs are still its own."""

    run_id: RunId
    cause: StopCause
    node_id: NodeId = NodeId("")  # whose failure it was, for causes that have one
    exit_code: Code = 0  # of the rank that failed; 128 + n after signal n


class JobRequeued(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.requeued.v1"):
    """The run is over on every node and the job waits again, at its old priority and age."""

    run_id: RunId  # the run that ended
    cause: StopCause
    not_before: Moment  # back-off
    category: FailureCategory = FailureCategory.NONE
    node_id: NodeId = NodeId("")  # whose failure it was, for causes that have one
    exit_code: Code = 0  # of the first rank that failed; 128 + n after signal n
    avoid: tuple[NodeId, ...] = ()  # nodes that the job keeps away from for a while
    held: bool = False  # its budget for failures of this kind is used up: it waits until somebody resumes it


class JobSucceeded(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.succeeded.v1"):
    """Every rank of the run exited with 0 and every GPU was given back. Terminal."""

    run_id: RunId


class JobFailed(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.failed.v1"):
    """The run failed and no retry is left. Terminal."""

    run_id: RunId
    cause: StopCause
    exit_code: Code = 0  # of the first rank that failed; 128 + n after signal n
    node_id: NodeId = NodeId("")
    category: FailureCategory = FailureCategory.NONE


class JobCancelled(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.cancelled.v1"):
    """The job ended because a user asked for it; nothing of it runs any more. Terminal."""

    run_id: RunId = RunId("")  # empty when it never had GPUs


class JobTimedOut(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.timed_out.v1"):
    """The run reached its time limit and was stopped. Terminal."""

    run_id: RunId
