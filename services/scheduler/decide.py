"""Which admitted jobs get their GPUs now, and what is said of those that do not."""

from collections.abc import Iterator
from datetime import timedelta
from heapq import heapify, heappop, heapreplace
from typing import Final

from events.base import Event, JobId, run_id_of
from events.job import HoldCode, JobHeld, JobPlaced
from projections.cluster.job import Job, OrderKey, Shape
from projections.cluster.place import Misfit, Placement, Room, place
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick

PLACED_MAX: Final = 1_000  # in one round, so that it stays below 100 ms; the rest is the next round's
HELD_MAX: Final = 500  # jobs looked at for a new hold code in one round
HELD_AGAIN_AFTER: Final = timedelta(seconds=30)  # a job's hold code changes at most so often in the log


def decide(cluster: Cluster, tick: Tick) -> list[Event]:
    """The scheduler's part of a round.

    Jobs are tried in order: priority class, then age. One that does not fit never blocks a smaller one behind it, and
    stands for all of its shape: what did not fit will not fit later in the round, since GPUs only get fewer.
    """
    room = Room(cluster)
    events: list[Event] = []
    misfits: dict[Shape, HoldCode] = {}
    placed: set[JobId] = set()
    lines = Lineup(cluster)
    while lines and len(events) < PLACED_MAX:
        shape, job_id = lines.first()
        if shape in misfits:
            lines.drop()
            continue
        match place(room, shape):
            case Misfit(code):
                misfits[shape] = code
                lines.drop()
            case Placement() as found:
                events.append(_placed(cluster.jobs[job_id], found, tick))
                placed.add(job_id)
                room.take(found.shares)  # the next job sees what this took
                lines.advance()
    return events + _holds(cluster, misfits, placed, tick)


class Lineup:
    """The admitted jobs in order over all lines, each of which can be dropped whole: its jobs are of one shape."""

    def __init__(self, cluster: Cluster) -> None:
        self._heap: list[tuple[OrderKey, Shape, JobId, Iterator[tuple[OrderKey, JobId]]]] = []
        for waiting in cluster.admitted.groups():
            line = ((key, job_id) for key, job_id in cluster.admitted.line(waiting) if not cluster.jobs[job_id].cancel)
            if (entry := next(line, None)) is not None:
                self._heap.append((entry[0], waiting.shape, entry[1], line))
        heapify(self._heap)  # keys differ, so nothing behind them is compared

    def __bool__(self) -> bool:
        return bool(self._heap)

    def first(self) -> tuple[Shape, JobId]:
        """The next job in order, and its shape."""
        _, shape, job_id, _ = self._heap[0]
        return shape, job_id

    def advance(self) -> None:
        """Go on to the job behind the first."""
        _, shape, _, line = self._heap[0]
        if (entry := next(line, None)) is None:
            heappop(self._heap)
        else:
            heapreplace(self._heap, (entry[0], shape, entry[1], line))

    def drop(self) -> None:
        """Leave out the first and all behind it in its line: jobs of the same shape."""
        heappop(self._heap)


def _placed(job: Job, found: Placement, tick: Tick) -> JobPlaced:
    attempt = job.attempt + 1
    run_id = run_id_of(job.job_id, attempt)
    return JobPlaced(**tick.of_job(job), run_id=run_id, attempt=attempt, shares=found.shares, ranks=found.ranks)


def _holds(cluster: Cluster, misfits: dict[Shape, HoldCode], placed: set[JobId], tick: Tick) -> list[Event]:
    """A word for each job that did not fit and of which the log says another code than what holds now."""
    events: list[Event] = []
    left = HELD_MAX
    for line in sorted(cluster.admitted.groups()):
        code = misfits.get(line.shape, line.hold)
        if code is line.hold:
            continue
        for _, job_id in cluster.admitted.line(line):
            if job_id in placed:
                continue
            if not left:
                return events
            left -= 1
            job = cluster.jobs[job_id]
            if job.held_at is None or job.held_at + HELD_AGAIN_AFTER <= tick.at:
                events.append(JobHeld(**tick.of_job(job), code=code))
    return events
