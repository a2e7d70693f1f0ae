"""Which reason holds for a waiting job now: the gravest that does, by the same rules as the deciders go by."""

from collections import Counter
from datetime import datetime
from typing import Final, NamedTuple

from events.ask import Tier
from events.base import JobId
from events.job import IMPOSSIBLE, HoldCode
from projections.cluster.entitlement import Block, Standing
from projections.cluster.index import line_of
from projections.cluster.job import Job, JobState
from projections.cluster.misfit import ANY_STATE, could_hold, misfit
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
    block: Block | None = None  # whose bound it is, for the codes of queues
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
    counted = standing if job.state is JobState.ADMITTED else _with_claims(cluster, at)
    gpus, firm = job.shape.min_gpus or job.shape.gpus, not job.spec.preemptible
    block = counted.blocked(job.team, job.shape.gpu_types, gpus, preemptible=not firm)
    if block is not None and block.code is HoldCode.QUEUE_PAUSED:
        return Reason(block.code, block)
    if job.state is JobState.QUEUED and job.not_before is not None and job.not_before > at:
        return Reason(HoldCode.BACKING_OFF)
    if not could_hold(cluster, job.shape, ANY_STATE):
        return Reason(misfit(Room(cluster), job.shape).code)
    if job.state is JobState.ADMITTED and job.job_id in cluster.earmarks:
        return Reason(HoldCode.WAITS_FOR_PREEMPTED)
    if block is not None:
        return Reason(block.code, block)
    return _of_queued(cluster, job, counted) if job.state is JobState.QUEUED else _of_admitted(cluster, job)


def _with_claims(cluster: Cluster, at: datetime) -> Standing:
    """Where the teams stand for admission: what admitted jobs wait for counts as theirs."""
    standing = Standing(cluster, at)
    if standing.sole:
        return standing
    earmarked = Counter(line_of(cluster.jobs[job_id]) for job_id in cluster.earmarks)
    for line in sorted(cluster.admitted.groups()):
        jobs = cluster.admitted.count(line) - earmarked[line]
        gpu_type = standing.wants(line.shape.gpu_types)
        if jobs > 0 and gpu_type:
            gpus = jobs * (line.shape.min_gpus or line.shape.gpus)
            standing.take(line.team, gpu_type, gpus, rank=line.rank, preemptible=not line.firm, jobs=jobs)
    return standing


def _of_queued(cluster: Cluster, job: Job, standing: Standing) -> Reason:
    """Of a job that is not admitted: its queue's order, and what its team is entitled to."""
    spec, shape = job.spec, job.shape
    gpus = shape.min_gpus or shape.gpus
    types = standing.open_types(job.team, shape.gpu_types, gpus, preemptible=spec.preemptible)
    gpu_type = standing.wants(types or shape.gpu_types)
    if standing.strict(job.team) and (head := _head(cluster, job, standing, gpu_type)) is not None:
        return Reason(HoldCode.BEHIND, behind=head)
    if standing.sole or standing.entitles(job.team, gpu_type, gpus, rank=job.rank):
        return Reason(HoldCode.NOT_EVALUATED)
    enough = _borrowing(cluster, job) >= cluster.policy.admitted_ahead
    return Reason(HoldCode.OVER_ENTITLEMENT if enough else HoldCode.NOT_EVALUATED)


def _borrowing(cluster: Cluster, job: Job) -> int:
    """How many jobs of its team and shape are admitted beyond the entitlement, and wait."""
    alike = (line for line in cluster.admitted.groups() if line.borrowing and line.team == job.team)
    return sum(cluster.admitted.count(line) for line in alike if line.shape == job.shape)


def _head(cluster: Cluster, job: Job, standing: Standing, gpu_type: str) -> JobId | None:
    """The first job of its team that is not admitted, waits before it, and wants the same type; None for none."""
    key, found = cluster.key(job), []
    for line in cluster.queue.groups():
        if _holds_up(line, job) and standing.wants(line.shape.gpu_types) == gpu_type:
            entry = next(cluster.queue.line(line))
            found += [entry] if entry[0] < key else []
    return min(found)[1] if found else None


def _holds_up(line: Line, job: Job) -> bool:
    return line.team == job.team and line.hold not in IMPOSSIBLE


def _of_admitted(cluster: Cluster, job: Job) -> Reason:
    """Of a job that waits for GPUs only."""
    if job.job_id in cluster.promises:
        return Reason(HoldCode.PROMISED)
    placed = place(Room(cluster), job.shape)
    if isinstance(placed, Misfit):
        return Reason(placed.code)
    if job.hold is HoldCode.RESERVED and (holder := _promised_before(cluster, job)) is not None:
        return Reason(HoldCode.RESERVED, behind=holder)
    if job.hold is HoldCode.BEHIND and (first := _admitted_before(cluster, job)) is not None:
        return Reason(HoldCode.BEHIND, behind=first)
    return Reason(HoldCode.NOT_EVALUATED)


def _promised_before(cluster: Cluster, job: Job) -> JobId | None:
    """The first that holds a promise on GPUs that the job could use."""
    others = (cluster.jobs[job_id] for job_id in cluster.promises if job_id != job.job_id)
    return next((other.job_id for other in others if shares_a_type(other.shape, job.shape)), None)


def _admitted_before(cluster: Cluster, job: Job) -> JobId | None:
    """The first of the jobs before it that wait for some of the same GPUs: of all teams where the policy is blocking."""
    key, found = cluster.key(job), []
    for line in cluster.admitted.groups():
        if (cluster.policy.blocking or line.team == job.team) and shares_a_type(line.shape, job.shape):
            entry = next(cluster.admitted.line(line))
            found += [entry] if entry[0] < key else []
    return min(found)[1] if found else None
