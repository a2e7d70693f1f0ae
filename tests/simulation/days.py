"""Random days of a cluster from a seed: a tree of teams, a policy, nodes in racks, jobs that come and run."""

from random import Random
from typing import Final

from events.base import Event, JobId, NodeId, Position, Recorded, TeamId
from events.job import Checkpoint, Domain, JobPlaced, JobSpec, Priority, Topology
from events.policy import Consolidation, PolicySet
from events.queues import Bounds, Queue, QueueOrder, QueuesSet
from services.simulate.engine import BEGIN, Simulation
from services.simulate.work import COMMAND, US, Work

TEAMS: Final = ("apple", "birch", "cedar", "damson")


class Day(Simulation):
    """A simulation that keeps its log, and tells a watcher of each record as it is folded."""

    def __init__(self) -> None:
        self.records: list[Recorded] = []
        self.over: list[str] = []  # queues that a placement put above their limit
        super().__init__()

    def record(self, *events: Event) -> None:
        """As in the simulation; each record is kept."""
        for event in events:
            super().record(event)
            self.records.append(Recorded(event, Position(self._position), self._at))
            if isinstance(event, JobPlaced):
                self.over += above_limit(self)


def above_limit(day: Day) -> list[str]:
    """The queues that hold more than their limits, counted from the runs themselves."""
    queues = day.cluster.queues
    held: dict[str, dict[str, int]] = {name: {} for name in queues}
    for run in day.cluster.runs.values():
        name: str = run.team
        while name in queues:
            held[name][run.gpu_type] = held[name].get(run.gpu_type, 0) + run.gpus
            name = queues[TeamId(name)].parent
    return [
        f"{name}: {sum(gpus.values())} of {bounds.limit}"
        for name, gpus in held.items()
        for bounds in queues[TeamId(name)].bounds
        if bounds.limit is not None
        and (sum(gpus.values()) if not bounds.gpu_type else gpus.get(bounds.gpu_type, 0)) > bounds.limit
    ]


def tree(random: Random, capacity: int) -> tuple[Queue, ...]:
    """Two groups, with the teams in them: weights, floors and limits of all kinds."""
    groups = [
        Queue(name=TeamId(name), weight=random.choice((1, 2, 5)), bounds=_bounds(random, capacity)) for name in "xy"
    ]
    teams = [
        Queue(
            name=TeamId(name),
            parent=random.choice(("", "x", "y")),
            weight=random.choice((0, 1, 1, 3)),
            bounds=_bounds(random, capacity),
            order=random.choice((QueueOrder.BEST_EFFORT, QueueOrder.BEST_EFFORT, QueueOrder.STRICT)),
            running_max=random.choice((None, None, 5)),
        )
        for name in TEAMS[: random.randrange(1, 4)]
    ]
    return (*groups, *teams)


def _bounds(random: Random, capacity: int) -> tuple[Bounds, ...]:
    def some() -> int | None:
        return random.choice((None, None, random.randrange(capacity // 4, capacity)))

    return (Bounds(floor=some(), limit=some(), borrowing_limit=some(), lending_limit=some()),)


def day(seed: int, *, jobs: int = 40) -> tuple[Day, list[Work]]:
    """A cluster, and what will be asked of it."""
    random = Random(seed)
    grown = Day()
    racks = random.choice((1, 2))
    nodes = random.choice((2, 4, 6))
    for number in range(nodes):
        grown.join([NodeId(f"n{number}")], 4, labels={"rack": f"r{number % racks}", "spine": "s"})
    if random.random() < 0.8:
        grown.record(QueuesSet(at=BEGIN, queues=tree(random, nodes * 4)))
    grown.record(
        PolicySet(
            at=BEGIN,
            promises=random.choice((0, 1, 1, 3)),
            preemption=random.random() < 0.7,
            min_runtime_s=random.choice((0, 5)),
            evictions_max=random.choice((1, 3)),
            cool_down_s=random.choice((0, 20)),
            consolidation=random.choice(list(Consolidation)),
            half_life_s=random.choice((0, 0, 30)),
            admitted_ahead=random.choice((1, 100)),
        )
    )
    return grown, works(random, nodes, jobs)


def works(random: Random, nodes: int, jobs: int) -> list[Work]:
    """Jobs of all kinds, that the cluster could hold."""
    found: list[Work] = []
    at_us = 0
    for number in range(jobs):
        at_us += random.choice((0, 0, 1, 3, 10)) * US
        gpus = random.choice((1, 1, 2, 3, 4, 6, 8, nodes * 4))
        gpus = min(gpus, nodes * 4)
        runtime_s = random.choice((2, 5, 10, 30))
        spec = JobSpec(
            name=f"job-{number}",
            command=COMMAND,
            gpus=gpus,
            min_gpus=random.choice((0, 0, 1)),
            priority=random.choice(list(Priority)),
            max_runtime_s=random.choice((0, runtime_s, runtime_s, 2 * runtime_s)),
            stop_grace_s=0,
            preemptible=random.random() < 0.9,
            checkpoint=Checkpoint(grace_s=0) if random.random() < 0.7 else None,
            topology=Topology(within=Domain.RACK, required=False) if random.random() < 0.2 else None,
        )
        found.append(Work(JobId(f"j{number}"), TeamId(random.choice(TEAMS)), spec, at_us, runtime_s * US))
    return found
