"""Where a waiting job stands in the order: how many come before it, and whom it is behind."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from events.base import JobId
from events.job import HoldCode
from events.policy import JobOrder
from projections.cluster.explain.supply import accepts
from projections.cluster.index import line_of
from projections.cluster.job import WANT_NOTHING, Job, JobState, OrderKey, Shape
from projections.cluster.overlay import Lines
from projections.cluster.quota.entitlement import Standing
from projections.cluster.state import Cluster, Line

LINES_MAX: Final = 2_000  # above so many the order between teams is left out of the count
OUT_OF_TURN: Final = WANT_NOTHING | {HoldCode.QUEUE_PAUSED}  # what waits so is tried by nobody
SHUT_NOTHING: Final = OUT_OF_TURN | {  # and this holds up nobody
    HoldCode.NOT_EVALUATED,
    HoldCode.BEHIND,  # who holds it up holds up them
    HoldCode.NODES_UNWELL,
    HoldCode.WAITS_FOR_PREEMPTED,
}
OVER_BOUNDS: Final = frozenset(  # what waits so holds up those of its own strict queue only
    {HoldCode.OVER_LIMIT, HoldCode.OVER_FLOOR, HoldCode.OVER_ENTITLEMENT, HoldCode.RUNNING_MAX}
)

Class = tuple[bool, int]  # beyond its team's share or within it, and its priority class: the less comes first
Waiting = Lines[Line, JobId]


class Turn(NamedTuple):
    """A place in the order."""

    ahead: int  # jobs that are tried before it
    behind: JobId | None  # the first in order of those that could take the same GPUs


def turn_of(cluster: Cluster, job: Job, standing: Standing, *, among_all: bool) -> Turn:
    """The job's place among all that are tried for GPUs, or, with `among_all` false, among those of its own team.

    Jobs that can never start or cannot be paid for, or whose queue is stopped, take no turn and are not counted; nor are those in their back-off.
    """
    lines = list(_lines(cluster, job, among_all=among_all))
    fair = cluster.policy.order is JobOrder.FAIR and len(lines) <= LINES_MAX
    order = _Order(cluster, standing, job, fair=fair)
    promised = list(order.passing())
    ahead = len(promised)
    first = next((other.job_id for other in promised if shares_a_type(job.shape, other.shape)), None)
    best: tuple[Class, tuple[float, ...], OrderKey, JobId] | None = None
    for waiting, line in lines:
        before = order.before(waiting, line)
        ahead += before
        if before and shares_a_type(job.shape, line.shape):
            key, job_id = next(waiting.line(line))
            entry = (*order.of(line), key, job_id)
            best = entry if best is None else min(best, entry)
    return Turn(ahead, first or (best[3] if best is not None else None))


def shut_for(cluster: Cluster, job: Job, standing: Standing) -> dict[str, JobId]:
    """The GPU types for which jobs before this one, which waits for GPUs, hold it up: type -> the first of them.

    A job that cannot start holds up those behind it that want the same type: all of them where the policy is blocking,
    those of its team where its queue is strict.
    """
    blocking = cluster.policy.blocking
    if not blocking and not standing.strict(job.team):
        return {}
    order = _Order(cluster, standing, job, fair=cluster.policy.order is JobOrder.FAIR)
    shut: dict[str, tuple[Class, tuple[float, ...], OrderKey, JobId]] = {}

    def close(line: Line, key: OrderKey, job_id: JobId) -> None:
        for gpu_type in types_of(cluster, line.shape):
            entry = (*order.of(line), key, job_id)
            shut[gpu_type] = min(shut.get(gpu_type, entry), entry)

    for line in cluster.admitted.groups():
        same = line.team == job.team and standing.strict(job.team)
        concerns = line.hold not in SHUT_NOTHING and (same or (blocking and line.hold not in OVER_BOUNDS))
        if concerns and order.before(cluster.admitted, line):
            close(line, *next(cluster.admitted.line(line)))
    for other in order.passing():
        if blocking or (other.team == job.team and standing.strict(job.team)):
            close(line_of(other), cluster.key(other), other.job_id)
    return {gpu_type: entry[3] for gpu_type, entry in shut.items()}


def types_of(cluster: Cluster, shape: Shape) -> tuple[str, ...]:
    """The GPU types that a gang accepts: all there are where it names none."""
    return shape.gpu_types or tuple(sorted(cluster.capacity))


def shares_a_type(one: Shape, other: Shape) -> bool:
    """Whether both accept some GPU type."""
    return not one.gpu_types or not other.gpu_types or any(accepts(one, gpu_type) for gpu_type in other.gpu_types)


def _lines(cluster: Cluster, job: Job, *, among_all: bool) -> Iterator[tuple[Waiting, Line]]:
    for line in cluster.admitted.groups():
        if line.hold not in OUT_OF_TURN and (among_all or line.team == job.team):
            yield cluster.admitted, line
    for line in cluster.queue.groups():
        new = among_all and line.hold is HoldCode.NOT_EVALUATED
        if new or (not among_all and line.team == job.team and line.hold not in OUT_OF_TURN):
            yield cluster.queue, line


class _Order:
    """The order of the policy, as seen from one job: what teams have counts where the policy says so."""

    def __init__(self, cluster: Cluster, standing: Standing, job: Job, *, fair: bool) -> None:
        self._cluster = cluster
        self._standing = standing
        self._fair = fair
        self._job = job
        self._key = cluster.key(job)
        self._promise = cluster.promises.get(job.job_id) if fair else None
        self._mine = self.of(line_of(job))

    def of(self, line: Line) -> tuple[Class, tuple[float, ...]]:
        """The class of a line's jobs, and what their team has for its weight."""
        if not self._fair:
            return (False, 0), ()
        gpu_type = self._standing.wants(line.shape.gpu_types)
        gpus = line.shape.min_gpus or line.shape.gpus
        beyond = not self._standing.within(line.team, gpu_type, gpus, rank=line.rank)
        return (beyond, line.rank), self._standing.least(line.team)

    def before(self, waiting: Waiting, line: Line) -> int:
        """How many of a line come before the job, promises aside."""
        theirs = self.of(line)
        if theirs[0] == self._mine[0] and self._promise is not None:
            return 0  # a promised job is the first of its class
        if theirs == self._mine:
            return waiting.count_before(line, self._key)
        return waiting.count(line) if theirs < self._mine else 0

    def passing(self) -> Iterator[Job]:
        """The jobs that come before it since they are promised a start: they are the first of their class."""
        return (job for job in self._others() if self._passes(job))

    def _others(self) -> Iterator[Job]:
        if self._fair:
            jobs = (self._cluster.jobs[job_id] for job_id in self._cluster.promises if job_id != self._job.job_id)
            yield from (job for job in jobs if job.state is JobState.ADMITTED)

    def _passes(self, other: Job) -> bool:
        """Whether it is before the job only for its promise."""
        theirs = self.of(line_of(other))
        if theirs[0] != self._mine[0]:
            return False
        if self._promise is not None:
            return self._cluster.promises[other.job_id].position < self._promise.position
        return (theirs, self._cluster.key(other)) > (self._mine, self._key)
