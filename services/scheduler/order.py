"""The order in which waiting jobs are tried, over all lines."""

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, NamedTuple

from events.base import JobId
from events.policy import JobOrder
from projections.cluster.index import line_of
from projections.cluster.job import Job, OrderKey
from projections.cluster.quota.entitlement import Standing
from projections.cluster.state import Cluster, Line

Key = tuple[Any, ...]  # of one policy's order: they compare


class Stands(Enum):
    """For whom a job stands whose turn it is."""

    FOR_LINE = auto()  # all behind it in its line: they need the same
    FOR_ITSELF = auto()  # it has a promise
    FOR_SHORT = auto()  # it is short, of a line that was left out


class Next(NamedTuple):
    """The job whose turn it is."""

    line: Line
    job_id: JobId
    stands: Stands


class Entry(NamedTuple):
    """One line, or one job, in the heap."""

    key: Key
    serial: int  # in place of comparing what follows
    line: Line
    own: OrderKey  # the job's place in its line
    job_id: JobId
    rest: Iterator[tuple[OrderKey, JobId]]  # those behind it
    turn: int  # of the standing that the key goes by
    stands: Stands


class Lineup:
    """Lines and single jobs, merged; the first comes first by what holds when it is asked for.

    Under `fair`, keys follow what the round gives away. They only grow by that, so a heap is looked into lazily: an entry
    whose key has grown goes back in.
    """

    def __init__(self, cluster: Cluster, standing: Standing, *, promised: Iterable[Job], passed: set[JobId]) -> None:
        """`promised`: jobs with a promise; under `fair` first in their class. `passed`: jobs that have no turn."""
        self._cluster = cluster
        self._standing = standing
        lines = sorted(cluster.admitted.groups())
        self._fair = cluster.policy.order is JobOrder.FAIR
        self._teams = not standing.sole
        self._serial = 0
        self._heap: list[Entry] = []
        alone = {job.job_id: job for job in promised}
        self._skip = passed | alone.keys() | cluster.unwanted.keys()
        for job in alone.values():
            own = cluster.key(job), job.job_id
            self._heap.append(self._entry(line_of(job), own, iter(()), Stands.FOR_ITSELF))
        for line in lines:
            rest = self._waiting(line)
            if (first := next(rest, None)) is not None:
                self._heap.append(self._entry(line, first, rest, Stands.FOR_LINE))
        heapify(self._heap)

    def _waiting(self, line: Line) -> Iterator[tuple[OrderKey, JobId]]:
        entries, skip = self._cluster.admitted.line(line), self._skip
        return (entry for entry in entries if entry[1] not in skip)

    def _entry(
        self, line: Line, first: tuple[OrderKey, JobId], rest: Iterator[tuple[OrderKey, JobId]], stands: Stands
    ) -> Entry:
        self._serial += 1
        return Entry(self._key(line, first), self._serial, line, *first, rest, self._standing.turn, stands)

    def _key(self, line: Line, first: tuple[OrderKey, JobId]) -> Key:
        own, job_id = first
        if not self._fair:
            return own
        promise = self._cluster.promises.get(job_id)
        age = own if promise is None else (promise.position,)
        if not self._teams:
            return (line.rank, promise is None, age)
        gpus, gpu_type = line.shape.min_gpus or line.shape.gpus, self._standing.wants(line.shape.gpu_types)
        beyond = not self._standing.within(line.team, gpu_type, gpus, rank=line.rank)
        least = self._standing.least(line.team) if promise is None else ()
        return (beyond, line.rank, promise is None, least, age)

    def first(self) -> Next | None:
        """The next job in order; None when none is left."""
        while self._heap:
            entry = self._heap[0]
            if self._fair and self._teams and entry.turn != self._standing.turn:
                key = self._key(entry.line, (entry.own, entry.job_id))
                heapreplace(self._heap, entry._replace(key=max(key, entry.key), turn=self._standing.turn))
                continue
            return Next(entry.line, entry.job_id, entry.stands)
        return None

    def advance(self) -> None:
        """Go on to the job behind the first."""
        entry = self._heap[0]
        if (following := next(entry.rest, None)) is None:
            heappop(self._heap)
        else:
            heapreplace(self._heap, self._entry(entry.line, following, entry.rest, entry.stands))

    def skip(self, job_id: JobId) -> None:
        """A job behind the first of its line has no turn."""
        self._skip.add(job_id)

    def drop(self) -> None:
        """Leave out the first and all that it stands for."""
        heappop(self._heap)

    def again(self, line: Line, short: Iterator[tuple[OrderKey, JobId]]) -> None:
        """Some jobs of a line that was left out, in order, have their turn all the same."""
        if (first := next(short, None)) is not None:
            heappush(self._heap, self._entry(line, first, short, Stands.FOR_SHORT))
