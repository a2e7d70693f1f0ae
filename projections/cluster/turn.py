"""Where a waiting job stands in the order: how many come before it, and whom it is behind."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from events.base import JobId, TeamId
from events.job import IMPOSSIBLE, HoldCode
from events.policy import JobOrder
from projections.cluster.entitlement import Standing
from projections.cluster.job import Job, OrderKey, Shape
from projections.cluster.overlay import Lines
from projections.cluster.state import Cluster, Line
from projections.cluster.supply import accepts

LINES_MAX: Final = 2_000  # above so many the order between teams is left out of the count
OUT_OF_TURN: Final = IMPOSSIBLE | {HoldCode.QUEUE_PAUSED}  # what waits so is tried by nobody
OPEN: Final = frozenset({HoldCode.NOT_EVALUATED})


class Turn(NamedTuple):
    """A place in the order."""

    ahead: int  # jobs that are tried before it
    behind: JobId | None  # the first in order of those that could take the same GPUs


def turn_of(cluster: Cluster, job: Job, standing: Standing, *, among_all: bool) -> Turn:
    """The job's place among all that are tried for GPUs, or, with `among_all` false, among those of its own team.

    Jobs that can never start, or whose queue is stopped, take no turn and are not counted; nor are those in their back-off.
    """
    lines = list(_lines(cluster, job, among_all=among_all))
    order = _Order(cluster, standing, fair=cluster.policy.order is JobOrder.FAIR and len(lines) <= LINES_MAX)
    ahead, first = 0, None
    for waiting, line in lines:
        before = order.before(waiting, line, job)
        ahead += before
        if before and shares_a_type(job.shape, line.shape):
            key, job_id = next(waiting.line(line))
            first = min(first or (order.of(line, key), job_id), (order.of(line, key), job_id))
    return Turn(ahead, first[1] if first is not None else None)


def shares_a_type(one: Shape, other: Shape) -> bool:
    """Whether both accept some GPU type."""
    return not one.gpu_types or not other.gpu_types or any(accepts(one, gpu_type) for gpu_type in other.gpu_types)


def _lines(cluster: Cluster, job: Job, *, among_all: bool) -> Iterator[tuple[Lines[Line, JobId], Line]]:
    for waiting in (cluster.admitted, cluster.queue):
        for line in waiting.groups():
            if among_all:
                counts = line.hold in OPEN if waiting is cluster.queue else line.hold not in OUT_OF_TURN
            else:
                counts = line.team == job.team and line.hold not in OUT_OF_TURN
            if counts:
                yield waiting, line


class _Order:
    """The order of the policy, with what teams have where it counts."""

    def __init__(self, cluster: Cluster, standing: Standing, *, fair: bool) -> None:
        self._cluster = cluster
        self._standing = standing
        self._fair = fair
        self._beyond: dict[tuple[TeamId, Shape, int], bool] = {}

    def of(self, line: Line, key: OrderKey) -> tuple[bool, tuple[float, ...], tuple[float, ...], OrderKey]:
        """What an entry of a line is compared by: beyond the share, class, what its team has, age."""
        if not self._fair:
            return (False, key, (), ())
        rank = int(key[0])
        return (self._is_beyond(line.team, line.shape, rank), key[:1], self._standing.least(line.team), key[1:])

    def before(self, waiting: Lines[Line, JobId], line: Line, job: Job) -> int:
        """How many of a line come before the job."""
        key = self._cluster.key(job)
        if not self._fair:
            return waiting.count_before(line, key)
        mine = self.of(Line(job.team, job.shape, job.hold), key)
        before = 0
        for rank in range(job.rank + 1 if not mine[0] else 4):
            begins, ends = waiting.count_before(line, (rank,)), waiting.count_before(line, (rank + 1,))
            if begins == ends:
                continue
            theirs = self.of(line, (rank, 0))
            if theirs[:3] < mine[:3]:
                before += ends - begins
            elif theirs[:3] == mine[:3]:
                before += waiting.count_before(line, (rank, *key[1:])) - begins
        return before

    def _is_beyond(self, team: TeamId, shape: Shape, rank: int) -> bool:
        known = self._beyond.get((team, shape, rank))
        if known is None:
            gpu_type = self._standing.wants(shape.gpu_types)
            gpus = shape.min_gpus or shape.gpus
            known = not self._standing.within(team, gpu_type, gpus, rank=rank)
            self._beyond[team, shape, rank] = known
        return known
