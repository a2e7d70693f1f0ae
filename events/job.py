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


class Checkpoint(msgspec.Struct, frozen=True):
    """How a job is told to save its progress before it is stopped."""

    signal: str = "SIGUSR2"  # NCCL uses SIGUSR1
    grace_s: Count = 30  # from the signal to SIGTERM
    directory: str = ""  # MUSTER_CHECKPOINT_DIR; empty: one of the job's own under the agent's data directory


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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


class NodeShare(msgspec.Struct, frozen=True, array_like=True):
    """The part of a run that one node carries."""

    node_id: NodeId
    node_epoch: NodeEpoch  # which life of the node is meant; in a later one the share is dead
    slots: SlotMask  # bit n is slot n; never 0


class HoldCode(StrEnum):
    """Why a job waits. Stable: programs compare them. The numbers are computed when asked."""

    NOT_EVALUATED = "not_evaluated"  # no round has looked at it yet
    BACKING_OFF = "backing_off"  # requeued, and its not_before has not come
    NO_SUCH_GPU = "no_such_gpu"  # no node has, or ever had, a GPU of an accepted type
    EXCEEDS_CLUSTER = "exceeds_cluster"  # larger than all that the cluster has, free or not
    NO_ROOM = "no_room"  # fits the cluster, not what is free now
    NODES_UNWELL = "nodes_unwell"  # would fit if suspect or lost nodes were well


class StopCause(StrEnum):
    """Why the control plane told a run to stop."""

    CANCEL = "cancel"
    TIME_LIMIT = "time_limit"
    RANK_FAILED = "rank_failed"  # a rank exited with another code than 0
    START_FAILED = "start_failed"  # a node could not start its ranks
    NODE_LOST = "node_lost"  # a node was declared lost, rebooted, or joined anew


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
    shares: tuple[NodeShare, ...]  # one per node, ordered by node_id; node ranks follow this order


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


class JobSucceeded(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.succeeded.v1"):
    """Every rank of the run exited with 0 and every GPU was given back. Terminal."""

    run_id: RunId


class JobFailed(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.failed.v1"):
    """The run failed and no retry is left. Terminal."""

    run_id: RunId
    cause: StopCause
    exit_code: Code = 0  # of the first rank that failed; 128 + n after signal n
    node_id: NodeId = NodeId("")


class JobCancelled(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.cancelled.v1"):
    """The job ended because a user asked for it; nothing of it runs any more. Terminal."""

    run_id: RunId = RunId("")  # empty when it never had GPUs


class JobTimedOut(JobEvent, kw_only=True, frozen=True, tag="musterbook.job.timed_out.v1"):
    """The run reached its time limit and was stopped. Terminal."""

    run_id: RunId
