"""Queued jobs in the order of the policy over all teams, with those whose back-off is over."""

from collections.abc import Iterator
from datetime import datetime
from heapq import heapify, heappop, heapreplace
from itertools import islice

from events.base import JobId
from events.job import UNPAID
from projections.cluster.index import line_of
from projections.cluster.job import Job, OrderKey
from projections.cluster.quota.claims import DUE_MAX
from projections.cluster.state import Cluster, Line
from services.admission.unpaid import Unpaid

Rest = Iterator[tuple[OrderKey, JobId]]


class Lineup:
    """A merge of lines, each of which can be dropped whole: its jobs are of one team and alike."""

    def __init__(self, cluster: Cluster, at: datetime, unpaid: Unpaid) -> None:
        """`unpaid`: which of the jobs are tried of which the log says that nobody can pay for them."""
        self._jobs = cluster.jobs
        self._heap: list[tuple[OrderKey, Line, JobId, Rest]] = []
        for line in cluster.queue.groups():
            rest = cluster.queue.line(line) if line.hold not in UNPAID else unpaid.in_turn(line)
            if (first := next(rest, None)) is not None:
                self._heap.append((first[0], line, first[1], rest))
        for (not_before, *behind), job_id in islice(cluster.later.line(None), DUE_MAX):
            if not_before > at.timestamp():
                break
            self._heap.append((tuple(behind), line_of(cluster.jobs[job_id]), job_id, iter(())))
        heapify(self._heap)  # keys differ, so nothing behind them is compared

    def __bool__(self) -> bool:
        return bool(self._heap)

    def first(self) -> tuple[Line, Job]:
        """The next job in order, and its line."""
        _, line, job_id, _ = self._heap[0]
        return line, self._jobs[job_id]

    def advance(self) -> None:
        """Go on to the job behind the first."""
        _, line, _, rest = self._heap[0]
        if (entry := next(rest, None)) is None:
            heappop(self._heap)
        else:
            heapreplace(self._heap, (entry[0], line, entry[1], rest))

    def drop(self) -> None:
        """Leave out the first and all behind it in its line."""
        heappop(self._heap)
