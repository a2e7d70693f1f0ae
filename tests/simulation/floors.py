"""Days on which teams have floors that fit into the cluster and everybody may be stopped, and who was kept from its floor."""

from collections import Counter
from random import Random
from typing import Any, Final

from events.base import JobId, NodeId, TeamId
from events.job import JobSpec, Priority
from events.policy import JobOrder, PolicySet
from events.queues import Bounds, Queue, QueueOrder, QueuesSet
from projections.cluster.job import Job, JobState
from services.simulate.engine import BEGIN
from services.simulate.work import COMMAND, US, Work
from tests.simulation.days import TEAMS, Day

GROUP: Final = TeamId("x")  # of the first two teams


def floors_day(seed: int, *, jobs: int = 40) -> tuple[Day, list[Work]]:
    """A cluster whose floors add up to no more than it has, at each level, and jobs of one GPU.

    Where the order knows no shares nothing is promised: what a borrower was promised would be its own.
    """
    random = Random(seed)
    grown = Day()
    nodes = random.choice((2, 3))
    grown.join([NodeId(f"n{number}") for number in range(nodes)], 4)
    grown.record(QueuesSet(at=BEGIN, queues=floors_tree(random, nodes * 4)))
    order = random.choice((JobOrder.FAIR, JobOrder.FAIR, *JobOrder))
    grown.record(
        PolicySet(
            at=BEGIN,
            order=order,
            promises=random.choice((0, 1, 3)) if order is JobOrder.FAIR else 0,
            min_runtime_s=0,
            cool_down_s=0,
            evictions_max=1_000,
            half_life_s=random.choice((0, 0, 30)),
            admitted_ahead=random.choice((1, 3, 100)),
        )
    )
    return grown, _works(random, jobs)


def floors_tree(random: Random, capacity: int) -> tuple[Queue, ...]:
    """All teams, two of them in a group, with floors that fit into the capacity and into that of the group."""
    group, *own = _parts(random, capacity, 3)
    floors = (*_parts(random, group, 2), *own)

    def queue(name: str, floor: int | None, **said: Any) -> Queue:
        bounds = Bounds(
            floor=floor, lending_limit=random.choice((None, None, 0, 1)), borrowing_limit=random.choice((None, 0, 3))
        )
        return Queue(name=TeamId(name), weight=random.choice((0, 1, 3)), bounds=(bounds,), **said)

    teams = [
        queue(name, random.choice((floor, floor, None)), parent=parent, order=random.choice(list(QueueOrder)))
        for name, floor, parent in zip(TEAMS, floors, (GROUP, GROUP, "", ""), strict=True)
    ]
    return Queue(name=GROUP, weight=random.choice((0, 1, 3)), bounds=(Bounds(floor=group),)), *teams


def _parts(random: Random, amount: int, parts: int) -> list[int]:
    """So many numbers that add up to no more than the amount."""
    cuts = sorted(random.randrange(amount + 1) for _ in range(parts))
    return [cut - before for before, cut in zip([0, *cuts], cuts, strict=False)]


def _works(random: Random, jobs: int) -> list[Work]:
    found: list[Work] = []
    at_us = 0
    for number in range(jobs):
        at_us += random.choice((0, 0, 0, 1, 3)) * US
        runtime_s = random.choice((2, 10, 30, 100))
        spec = JobSpec(
            name=f"job-{number}",
            command=COMMAND,
            gpus=1,
            priority=random.choice(list(Priority)),
            max_runtime_s=random.choice((0, runtime_s)),
            stop_grace_s=0,
        )
        found.append(Work(JobId(f"j{number}"), TeamId(random.choice(TEAMS)), spec, at_us, runtime_s * US))
    return found


def below_their_floors(day: Day) -> list[tuple[TeamId, JobId]]:
    """Teams that have less than the floor which the document names, each with a job that waits.

    Counted from runs. Teams of which a job waits that was stopped for one that still runs are left out: it may not take
    back from that one.
    """
    used = Counter(run.team for run in day.cluster.runs.values())
    waiting = [job for job in day.cluster.jobs.values() if job.state is not JobState.PLACED]
    barred = {job.team for job in waiting if _was_stopped_for_one_that_runs(day, job)}
    return [
        (job.team, job.job_id)
        for job in waiting
        if job.team not in barred and used[job.team] < (day.cluster.queues[job.team].bounds[0].floor or 0)
    ]


def _was_stopped_for_one_that_runs(day: Day, job: Job) -> bool:
    others = (day.cluster.jobs.get(job_id) for job_id in job.evicted_for)
    return any(other is not None and other.state is JobState.PLACED for other in others)
