"""Which reason holds for a waiting job now: the gravest that does, by the same rules as the deciders go by."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from events.ask import Tier
from events.base import JobId
from events.job import IMPOSSIBLE, UNPAID, HoldCode
from projections.cluster.explain.charge import quoted_for, unpaid
from projections.cluster.explain.turn import shares_a_type, shut_for, types_of
from projections.cluster.index import line_of
from projections.cluster.job import WANT_NOTHING, Job, JobState, Shape, lasts
from projections.cluster.placing.misfit import ANY_STATE, could_hold, misfit
from projections.cluster.placing.place import Misfit, Room, place
from projections.cluster.placing.windows import Windows
from projections.cluster.quota.bounds import Block, Request, request_of
from projections.cluster.quota.entitlement import Standing
from projections.cluster.state import Cluster, Line

HELD: Final = frozenset({HoldCode.QUEUE_PAUSED, HoldCode.BACKING_OFF, HoldCode.FAILED_TOO_OFTEN})
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
PASSES: Final = frozenset({HoldCode.NO_ROOM, HoldCode.SCATTERED})  # by waiting for runs to end


class Reason(NamedTuple):
    """Why a job waits."""

    code: HoldCode
    block: Block | None = None  # whose bound it is, for the codes of queues
    behind: JobId | None = None  # who holds it up, for `BEHIND` and `RESERVED`; of the latter None: maintenance


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
    if job.hold is HoldCode.FAILED_TOO_OFTEN:  # the one code that the log keeps until somebody asks otherwise
        return Reason(job.hold)
    queued = job.state is JobState.QUEUED
    counted = _with_claims(cluster, at) if queued else standing
    gpus, firm = job.shape.min_gpus or job.shape.gpus, not job.spec.preemptible
    rank = job.rank if queued else None
    block = counted.blocked(Request(job.team, job.shape.gpu_types, gpus, preemptible=not firm, rank=rank))
    if block is not None and block.code is HoldCode.QUEUE_PAUSED:
        return Reason(block.code, block)
    if queued and job.not_before is not None and job.not_before > at:
        return Reason(HoldCode.BACKING_OFF)
    if not could_hold(cluster, job.shape, ANY_STATE):
        return Reason(misfit(Room(cluster), job.shape).code)
    if not queued and job.job_id in cluster.earmarks:
        return Reason(HoldCode.WAITS_FOR_PREEMPTED)
    if queued:
        return Reason(block.code, block) if block is not None else _of_queued(cluster, job, counted, at)
    return _of_admitted(cluster, job, standing, block=block, at=at)


def _with_claims(cluster: Cluster, at: datetime) -> Standing:
    """Where the teams stand for admission: what admitted jobs wait for counts as theirs."""
    standing = Standing(cluster, at)
    if standing.sole:
        return standing
    kept = (cluster.jobs[job_id] for job_id in cluster.earmarks)
    earmarked = Counter(line_of(job) for job in kept if job.state is JobState.ADMITTED)
    for line in sorted(cluster.admitted.groups()):
        if jobs := cluster.admitted.count(line) - earmarked[line]:
            standing.claim(line, jobs)
    return standing


def _of_queued(cluster: Cluster, job: Job, standing: Standing, at: datetime) -> Reason:
    """Of a job that is not admitted, and that no bound is against: its queue's order, what its team may claim, who pays.

    Of one that could not be paid for when it was last looked at, nothing else is asked while that is so.
    """
    code = unpaid(cluster, quoted_for(cluster, job, at))
    if code is None:
        return _in_turn(cluster, job, standing)
    if job.hold in UNPAID and (code is not HoldCode.CREDITS or not standing.strict(job.team)):
        return Reason(code)
    before = _in_turn(cluster, job, standing)
    return before if before.code is not HoldCode.NOT_EVALUATED else Reason(code)


def _in_turn(cluster: Cluster, job: Job, standing: Standing) -> Reason:
    """Its queue's order, and what its team is entitled to."""
    gpus, gpu_type = job.shape.min_gpus or job.shape.gpus, standing.wants(job.shape.gpu_types)
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
    """The first job of its team that is not admitted, is tried before it, and wants the same type; None for none.

    Jobs that are alike are judged by the first of them, so those never stand behind each other; but one that cannot be
    paid for stands for itself.
    """
    first, before = cluster.key(job), []
    for line in cluster.queue.groups():
        if line.team != job.team or (line.hold in WANT_NOTHING and line.hold is not HoldCode.CREDITS):
            continue
        entry = next(cluster.queue.line(line))
        if line.hold is not HoldCode.CREDITS and _alike(line) == _alike(line_of(job)):
            first = min(first, entry[0])
        elif standing.wants(line.shape.gpu_types) == gpu_type and not standing.stuck(request_of(line)):
            before.append(entry)
    return min((entry for entry in before if entry[0] < first), default=(first, None))[1]


def _alike(line: Line) -> Line:
    return line._replace(hold=HoldCode.NOT_EVALUATED)


def _of_admitted(cluster: Cluster, job: Job, standing: Standing, *, block: Block | None, at: datetime) -> Reason:
    """Of a job that waits for GPUs only: of the types that no bound and no job before it closes."""
    shut, wanted = shut_for(cluster, job, standing), types_of(cluster, job.shape)
    if shut and all(gpu_type in shut for gpu_type in wanted):
        return _behind(shut, wanted)
    if block is not None:
        return Reason(block.code, block)
    asked, most = _asked(cluster, job, standing, shut)
    if shut and not asked.gpu_types:
        return _behind(shut, wanted)
    room = Room(cluster)
    placed = place(room, asked, most=most)
    if isinstance(placed, Misfit) and placed.code not in PASSES and asked.gpu_types != job.shape.gpu_types:
        placed = place(_unpromised(cluster, room), job.shape)  # for a type that is closed to it
        if not isinstance(placed, Misfit):
            return _behind(shut, wanted) if shut else Reason(HoldCode.NO_ROOM)
    code = placed.code if isinstance(placed, Misfit) else None
    if job.job_id in cluster.promises and (code is None or code in PASSES):
        return Reason(HoldCode.PROMISED)
    if code is not None:
        return Reason(code)
    windows, time = Windows(cluster), lasts(job.spec)
    if class_ := windows.class_of(at + time if time is not None else None):
        room = windows.without(room, class_)
        if isinstance(place(room, asked, most=most), Misfit):
            return Reason(HoldCode.RESERVED)  # for maintenance
    holder = _delayed(cluster, job, room, at)
    return Reason(HoldCode.RESERVED if holder is not None else HoldCode.NOT_EVALUATED, behind=holder)


def _unpromised(cluster: Cluster, room: Room) -> Room:
    """The room without what is promised to anybody."""
    closed = room.fork()
    for promise in cluster.promises.values():
        closed.reserve(promise.shares)
    return closed


def _behind(shut: Mapping[str, JobId], wanted: Sequence[str]) -> Reason:
    """Behind the one that holds the job up for the first of the types that it wants."""
    return Reason(HoldCode.BEHIND, behind=next((shut[gpu_type] for gpu_type in wanted if gpu_type in shut), None))


def _asked(cluster: Cluster, job: Job, standing: Standing, shut: Mapping[str, JobId]) -> tuple[Shape, int | None]:
    """The shape on the types that are open to it, and how many GPUs it may have at the most."""
    shape = job.shape
    if standing.sole:
        types = [gpu_type for gpu_type in types_of(cluster, shape) if gpu_type not in shut]
        return (shape._replace(gpu_types=tuple(types)) if shut else shape), None
    gpus = shape.min_gpus or shape.gpus
    opened = standing.open_types(job.team, shape.gpu_types, gpus, preemptible=job.spec.preemptible) or shape.gpu_types
    types = [gpu_type for gpu_type in opened or types_of(cluster, shape) if gpu_type not in shut]
    most = min((standing.headroom(job.team, gpu_type) for gpu_type in types), default=None) if shape.min_gpus else None
    return shape._replace(gpu_types=tuple(types)), most if most is not None and most < shape.gpus else None


def _delayed(cluster: Cluster, job: Job, room: Room, at: datetime) -> JobId | None:
    """The first of the promised jobs that would start later if this one, which fits, started now; None for no such job."""
    time = lasts(job.spec)
    end = at + time if time is not None else None
    kept = [
        promise for promise in cluster.promises.values() if end is None or promise.start is None or end > promise.start
    ]
    for promise in kept:
        room.reserve(promise.shares)
    if not kept or not isinstance(place(room, job.shape), Misfit):
        return None
    alike = (promise for promise in kept if shares_a_type(cluster.jobs[promise.job_id].shape, job.shape))
    return next(alike, kept[0]).job_id
