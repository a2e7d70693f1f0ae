"""One event of every type with every field set: what tests/golden/ holds the bytes of."""

from datetime import UTC, datetime
from typing import Any, Final

from events.base import START, Event, GpuUuid, JobId, NodeEpoch, NodeId, RunId, SlotMask, TeamId, position_of
from events.codec import Stamp
from events.fleet import NodeLost, NodeRecovered, NodeSuspected
from events.head import LeadershipTaken, LogFounded, PassedOver, RoundDecided
from events.job import (
    AdmissionWithdrawn,
    Checkpoint,
    ConsolidationProposed,
    Domain,
    EarmarkCause,
    EarmarkDropped,
    GpusEarmarked,
    HoldCode,
    JobAdmitted,
    JobCancelled,
    JobCancelRequested,
    JobFailed,
    JobHeld,
    JobPlaced,
    JobRejected,
    JobRequeued,
    JobSpec,
    JobSubmitted,
    JobSucceeded,
    JobTimedOut,
    Move,
    NodeShare,
    OnLost,
    Priority,
    PromiseCause,
    PromiseDropped,
    PromiseMoved,
    Ranks,
    RunStarted,
    RunStopping,
    StartPromised,
    StopCause,
    Topology,
)
from events.node import (
    CheckpointSaved,
    EndReason,
    GpusFoundClean,
    GpusReleased,
    NodeDescribed,
    NodeJoined,
    ShareEnded,
    ShareStarted,
)
from events.operator import NodeCordoned, NodeUncordoned
from events.policy import Bearer, ChargeFrom, Consolidation, JobOrder, Overrun, PlacePolicy, PolicySet, Waived
from events.queues import Bounds, Queue, QueueOrder, QueuesSet
from tests.events.credit_examples import CREDIT_EXAMPLES

STAMP: Final = Stamp(id="01JDX3Q7M8-42", source="musterbook/gate", cause="01JDX3Q7M8-41")

JOB: Final = JobId("jab2c3d4e5f6g7")
RUN: Final = RunId("jab2c3d4e5f6g7-2")
EPOCH: Final = NodeEpoch(position_of(1, 17))
GPUS: Final = (GpuUuid("GPU-5a0c9bd4-0000-4000-8000-000000000000"), GpuUuid("GPU-5a0c9bd4-0000-4000-8000-000000000001"))
SAID: Final[dict[str, Any]] = {
    "at": datetime(2026, 3, 14, 15, 9, 26, 535897, tzinfo=UTC),
    "by": "ask.vision",
    "trace": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
}
OF_JOB: Final[dict[str, Any]] = {**SAID, "team": TeamId("vision"), "job_id": JOB}
OF_NODE: Final[dict[str, Any]] = {**SAID, "node_id": NodeId("rack1-n04")}
OF_SHARE: Final[dict[str, Any]] = {**OF_NODE, "node_epoch": EPOCH, "run_id": RUN}

SPEC: Final = JobSpec(
    name="resnet-50",
    command=("python", "train.py", "--epochs=90", "Überschrift"),
    gpus=16,
    nodes=2,
    gpus_per_node=8,
    gpu_types=("h100", "a100"),
    env={"NCCL_DEBUG": "WARN"},
    workdir="/data/resnet",
    priority=Priority.HIGH,
    ranks=Ranks.PER_NODE,
    max_runtime_s=86_400,
    stop_grace_s=20,
    preemptible=False,
    checkpoint=Checkpoint(signal="SIGUSR1", grace_s=60, directory="/data/resnet/checkpoints"),
    retries_application=2,
    retries_infrastructure=5,
    on_lost=OnLost.WAIT,
    min_gpus=8,
    topology=Topology(within=Domain.RACK, required=False),
    labels={"fabric": "ib"},
    tolerates=("maintenance",),
    account="vision-2026",
)
SHARES: Final = (
    NodeShare(NodeId("rack1-n04"), EPOCH, SlotMask(0b1111_1111)),
    NodeShare(NodeId("rack1-n05"), NodeEpoch(position_of(1, 18)), SlotMask(0b1_0111_1111)),
)

EXAMPLES: Final[tuple[Event, ...]] = (
    JobSubmitted(**OF_JOB, spec=SPEC, key="nightly-2026-03-14", request_hash="9f86d081884c7d65"),
    JobCancelRequested(**OF_JOB, reason="wrong data set"),
    JobRejected(**OF_JOB, code="exceeds_cluster", message="16 GPUs asked for, the cluster has 8"),
    JobAdmitted(**OF_JOB, borrowing=True),
    JobHeld(**OF_JOB, code=HoldCode.NO_ROOM),
    JobPlaced(**OF_JOB, run_id=RUN, attempt=2, shares=SHARES, ranks=(1, 0)),
    RunStarted(**OF_JOB, run_id=RUN),
    RunStopping(**OF_JOB, run_id=RUN, cause=StopCause.RANK_FAILED, node_id=NodeId("rack1-n05"), exit_code=139),
    JobRequeued(
        **OF_JOB, run_id=RUN, cause=StopCause.NODE_LOST, not_before=datetime(2026, 3, 14, 15, 10, 26, tzinfo=UTC)
    ),
    JobSucceeded(**OF_JOB, run_id=RUN),
    JobFailed(**OF_JOB, run_id=RUN, cause=StopCause.RANK_FAILED, exit_code=1, node_id=NodeId("rack1-n05")),
    JobCancelled(**OF_JOB, run_id=RUN),
    JobTimedOut(**OF_JOB, run_id=RUN),
    NodeJoined(
        **OF_NODE,
        boot_id="7c0d1c5e-9a3b-4f0e-8f6d-2f8f0d8f4c11",
        instance="i-3f9a",
        gpu_type="h100",
        gpu_uuids=GPUS,
        address="10.0.4.4",
        port_base=20_000,
        agent_version="0.1.0",
        labels={"rack": "r1", "spine": "s1"},
        taints=("maintenance",),
    ),
    NodeDescribed(**OF_NODE, node_epoch=EPOCH, labels={"rack": "r2"}, taints=("maintenance",)),
    GpusFoundClean(**OF_NODE, node_epoch=EPOCH, gpu_uuids=GPUS),
    ShareStarted(**OF_SHARE),
    ShareEnded(**OF_SHARE, reason=EndReason.EXITED, exit_code=139, rank=11, message="rank 11: segmentation fault"),
    GpusReleased(**OF_SHARE, slots=SlotMask(0b1111_1111)),
    NodeSuspected(**OF_NODE, node_epoch=EPOCH, silent_s=30.25),
    NodeRecovered(**OF_NODE, node_epoch=EPOCH),
    NodeLost(**OF_NODE, node_epoch=EPOCH, silent_s=90.5),
    LogFounded(**SAID, log_id="01JDX3Q7M8ZK4T", cell="main"),
    LeadershipTaken(**SAID, instance="control-1", version="0.1.0"),
    RoundDecided(
        **SAID,
        epoch=position_of(1, 2),
        decided_at=position_of(1, 40),
        events=3,
        passed_over=(PassedOver(shape="16 GPUs on h100", jobs=2, code=HoldCode.NO_ROOM),),
        version="0.1.0",
    ),
    PolicySet(
        **SAID,
        replaces=position_of(1, 9),
        suspect_after_s=20.0,
        lost_after_s=60.0,
        placement=PlacePolicy.SPREAD,
        order=JobOrder.SJF,
        blocking=True,
        promises=4,
        overrun=Overrun.EXTEND,
        preemption=False,
        min_runtime_s=600,
        evictions_max=5,
        cool_down_s=900,
        consolidation=Consolidation.DO,
        half_life_s=604_800,
        admitted_ahead=500,
        charge_from=ChargeFrom.PLACED,
        instalment_s=600,
        waived_failed=Waived.ALL,
        waived_preempted=Waived.NONE,
        uncovered=Bearer.PROVIDER,
    ),
    AdmissionWithdrawn(**OF_JOB),
    GpusEarmarked(**OF_JOB, shares=SHARES, victims=(RunId("j2-1"),), ranks=(1, 0), moved=True),
    EarmarkDropped(**OF_JOB, cause=EarmarkCause.NODE),
    StartPromised(**OF_JOB, shares=SHARES, start=SAID["at"]),
    PromiseMoved(**OF_JOB, shares=SHARES, start=None, cause=PromiseCause.OVERRUN),
    PromiseDropped(**OF_JOB, cause=PromiseCause.CHANGED),
    ConsolidationProposed(**OF_JOB, shares=SHARES, moves=(Move(RunId("j2-1"), SHARES[:1]),)),
    CheckpointSaved(**OF_SHARE, number=7),
    NodeCordoned(**OF_NODE, reason="fan"),
    NodeUncordoned(**OF_NODE, reason="replaced"),
    QueuesSet(
        **SAID,
        replaces=START,
        queues=(
            Queue(name=TeamId("org"), bounds=(Bounds(limit=512), Bounds(gpu_type="h100", floor=128, lending_limit=64))),
            Queue(name=TeamId("vision"), parent="org", weight=3, order=QueueOrder.STRICT, running_max=10),
        ),
    ),
    *CREDIT_EXAMPLES,
)
