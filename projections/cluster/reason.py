"""Which reason holds for a waiting job now: the gravest that does, by the same rules as the deciders go by."""

from datetime import datetime
from typing import Final, NamedTuple

from events.ask import Tier
from events.base import JobId
from events.job import IMPOSSIBLE, HoldCode
from projections.cluster.entitlement import Block, Standing
from projections.cluster.holds import gravest
from projections.cluster.job import Job, JobState
from projections.cluster.place import Misfit, Room, place
from projections.cluster.state import Cluster, Line
from projections.cluster.turn import shares_a_type

HELD: Final = frozenset({HoldCode.QUEUE_PAUSED, HoldCode.BACKING_OFF})
ROOM: Final = frozenset(
    {
        HoldCode.NODES_UNWELL,
        HoldCode.NO_ROOM,
        HoldCode.SCATTERED,
        HoldCode.RESERVED,
        HoldCode.WAITS_FOR_PREEMPTED,
        HoldCode.PROMISED,
    }
)


class Reason(NamedTuple):
    """Why a job waits."""

    code: HoldCode
    block: Block | None = None  # whose bound it is, for the codes of quotas
    behind: JobId | None = None  # who holds it up, for `BEHIND` and `RESERVED`


def tier_of(code: HoldCode) -> Tier:
    """What kind of reason a code is."""
    if code is HoldCode.NOT_EVALUATED:
        return Tier.NOT_EVALUATED
    if code in HELD:
        return Tier.HELD
    if code in IMPOSSIBLE:
        return Tier.IMPOSSIBLE
    return Tier.ROOM if code in ROOM else Tier.OVER_QUOTA


def reason_of(cluster: Cluster, job: Job, standing: Standing, *, at: datetime) -> Reason:
    """The gravest of the reasons that hold at `at`; `NOT_EVALUATED` when nothing stands against the job."""
    spec, shape = job.spec, job.shape
    block = standing.blocked(job.team, shape.gpu_types, shape.min_gpus or shape.gpus, preemptible=spec.preemptible)
    placed = place(Room(cluster), shape)
    codes = [block.code] if block is not None else []
    if isinstance(placed, Misfit) and placed.code in IMPOSSIBLE:
        codes.append(placed.code)
    if job.state is JobState.QUEUED:
        if job.not_before is not None and job.not_before > at:
            codes.append(HoldCode.BACKING_OFF)
        reason = _of_queued(cluster, job, standing)
    else:
        reason = _of_admitted(cluster, job, placed.code if isinstance(placed, Misfit) else None)
    if codes:
        code = gravest(codes)
        if code in HELD | IMPOSSIBLE or tier_of(reason.code) in {Tier.ROOM, Tier.NOT_EVALUATED}:
            return Reason(code, block if block is not None and block.code is code else None)
    return reason


def _of_queued(cluster: Cluster, job: Job, standing: Standing) -> Reason:
    """Of a job that is not admitted: its queue's order, and what its team is entitled to."""
    if standing.strict(job.team) and (head := _head(cluster, job)) is not None:
        return Reason(HoldCode.BEHIND, behind=head)
    gpu_type = standing.wants(job.shape.gpu_types)
    if not standing.within(job.team, gpu_type, job.shape.min_gpus or job.shape.gpus, rank=job.rank):
        lines = (Line(job.team, job.shape, hold, borrowing=True) for hold in HoldCode)
        if sum(map(cluster.admitted.count, lines)) >= cluster.policy.admitted_ahead:  # enough wait to borrow
            return Reason(HoldCode.OVER_ENTITLEMENT)
    return Reason(HoldCode.NOT_EVALUATED)


def _head(cluster: Cluster, job: Job) -> JobId | None:
    """The first of the jobs of its team that wait before it and want some of the same GPUs; None for no such job."""
    key, first = cluster.key(job), None
    for line in cluster.queue.groups():
        if line.team == job.team and line.hold not in IMPOSSIBLE and shares_a_type(line.shape, job.shape):
            entry = next(cluster.queue.line(line))
            first = entry if entry[0] < key and (first is None or entry < first) else first
    return first[1] if first is not None else None


def _of_admitted(cluster: Cluster, job: Job, misfit: HoldCode | None) -> Reason:
    """Of a job that waits for GPUs only."""
    if job.job_id in cluster.earmarks:
        return Reason(HoldCode.WAITS_FOR_PREEMPTED)
    if job.job_id in cluster.promises:
        return Reason(HoldCode.PROMISED)
    if misfit is not None:
        return Reason(misfit)
    if job.hold is HoldCode.RESERVED and (holder := _promised_before(cluster, job)) is not None:
        return Reason(HoldCode.RESERVED, behind=holder)
    if job.hold is HoldCode.BEHIND:
        return Reason(HoldCode.BEHIND)
    return Reason(HoldCode.NOT_EVALUATED)


def _promised_before(cluster: Cluster, job: Job) -> JobId | None:
    """The first that holds a promise on GPUs that the job could use."""
    return next(
        (
            job_id
            for job_id in cluster.promises
            if job_id != job.job_id and shares_a_type(cluster.jobs[job_id].shape, job.shape)
        ),
        None,
    )
