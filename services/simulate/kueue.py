"""Kueue's scheduler performance workloads: admission against quota only, each unit of it a node of one GPU.

Source: kubernetes-sigs/kueue, test/performance/scheduler: generator, runner, recorder.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from events.base import JobId, TeamId
from events.job import JobSpec, Priority
from events.policy import PolicySet
from events.queues import Bounds, Queue, QueuesSet
from services.simulate.engine import Simulation, Watch
from services.simulate.fault import BadFile
from services.simulate.measure import used_gpu_us
from services.simulate.replay import ALL, named
from services.simulate.typed import Typed, checked
from services.simulate.work import COMMAND, Life, Work, classes_of

US_PER_MS: Final = 1_000
UNITS_MAX: Final = 100_000
JOBS_MAX: Final = 1_000_000

Number = Annotated[int, Field(ge=0, le=1_000_000_000)]
Positive = Annotated[int, Field(ge=1, le=1_000_000)]


class Stream(Typed):
    """Workloads of one class, one every interval."""

    name: str = Field(alias="class")
    count: Positive
    creation_interval_ms: Number
    request: Positive
    runtime_ms: Number
    priority: int


class Preemption(Typed):
    """Who may be evicted. Only what our cores do is taken."""

    reclaim_within_cohort: Literal["Any"]
    within_queue: Literal["LowerPriority"]
    borrow_within_cohort: Literal["Never"] = "Never"


class QueueClass(Typed):
    """Queues that are alike."""

    name: str = Field(alias="class")
    count: Positive
    nominal_quota: Number
    borrowing_limit: Number | None = None
    preemption: Preemption
    queueing: Literal["BestEffortFIFO"] = "BestEffortFIFO"
    workloads: list[Stream]


class CohortClass(Typed):
    """Cohorts that are alike; none borrows from another."""

    name: str = Field(alias="class")
    count: Positive
    queues: list[QueueClass]


class Creation(Typed):
    """When workloads are created."""

    first_after_interval: bool = True


class Execution(Typed):
    """How workloads run."""

    restart_runtime_after_eviction: Literal[True] = True
    pods_per_workload: Literal[1] = 1


class KueueFile(Typed):
    """A workload in the format of `kueue-baseline.yaml`."""

    name: str
    resource: str = ""
    totals: dict[str, int] = Field(default_factory=dict)
    creation: Creation = Creation()
    execution: Execution = Execution()
    cohorts: list[CohortClass]
    measure: dict[str, str] = Field(default_factory=dict)
    published: dict[str, Any] = Field(default_factory=dict)
    ideal: dict[str, Any] = Field(default_factory=dict)


def run_kueue(body: Mapping[str, Any], watch: Watch | None = None) -> tuple[Simulation, dict[str, Any]]:
    """The simulation, and the figures that the file names beside Kueue's own and the ideal ones.

    Priorities become classes in their order. Whoever is entitled to it may evict at once, any job any number of times,
    since Kueue knows no minimum runtime, no cap and no cool-down. Raises: `BadFile`.
    """
    file = checked(body, KueueFile)
    queues, works = _queues(file), _works(file)
    capacity = sum(bounds.limit or 0 for queue in queues if not queue.parent for bounds in queue.bounds)
    if capacity > UNITS_MAX:
        raise BadFile(0, f"cohorts: there are {capacity} units of quota; the most is {UNITS_MAX}")
    simulation = Simulation()
    simulation.join(named(capacity), 1)
    simulation.record(
        PolicySet(
            at=simulation.begin, min_runtime_s=0, cool_down_s=0, evictions_max=ALL, promises=0, admitted_ahead=ALL
        ),
        QueuesSet(at=simulation.begin, queues=tuple(queues)),
    )
    simulation.run(works, watch)
    return simulation, _report(file, simulation, capacity)


def _queues(file: KueueFile) -> list[Queue]:
    """A cohort is a queue with the sum of its children as its floor and its limit; a nominal quota is a floor."""
    found: list[Queue] = []
    for kind in file.cohorts:
        nominal = sum(queues.nominal_quota * queues.count for queues in kind.queues)
        for number in range(kind.count):
            cohort = TeamId(f"{kind.name}-{number}")
            found.append(Queue(name=cohort, bounds=(Bounds(floor=nominal, limit=nominal),)))
            for queues in kind.queues:
                bounds = Bounds(floor=queues.nominal_quota, borrowing_limit=queues.borrowing_limit)
                names = [TeamId(f"{cohort}-{queues.name}-{each}") for each in range(queues.count)]
                found += [Queue(name=name, parent=cohort, bounds=(bounds,)) for name in names]
    return found


def _works(file: KueueFile) -> list[Work]:
    """All workloads, in order of creation; those of one instant in the order of queues and classes."""
    streams = [stream for kind in file.cohorts for queues in kind.queues for stream in queues.workloads]
    try:
        classes = classes_of({stream.priority for stream in streams})
    except ValueError as error:
        raise BadFile(0, f"cohorts: {error}") from None
    counts = (
        kind.count * queues.count * stream.count
        for kind in file.cohorts
        for queues in kind.queues
        for stream in queues.workloads
    )
    if (total := sum(counts)) > JOBS_MAX:
        raise BadFile(0, f"cohorts: there are {total} workloads; the most is {JOBS_MAX}")
    works: list[Work] = []
    for kind in file.cohorts:
        for cohort in range(kind.count):
            for queues in kind.queues:
                for number in range(queues.count):
                    team = TeamId(f"{kind.name}-{cohort}-{queues.name}-{number}")
                    for stream in queues.workloads:
                        works += _stream(
                            stream, team, classes[stream.priority], first=file.creation.first_after_interval
                        )
    return sorted(works, key=lambda work: work.arrives_us)


def _stream(stream: Stream, team: TeamId, priority: Priority, *, first: bool) -> list[Work]:
    spec = JobSpec(
        name=stream.name,
        command=COMMAND,
        gpus=stream.request,
        priority=priority,
        stop_grace_s=0,
        retries_infrastructure=0,
    )
    interval_us, runtime_us = stream.creation_interval_ms * US_PER_MS, stream.runtime_ms * US_PER_MS
    return [
        Work(
            JobId(f"{team}-{stream.name}-{number}"), team, spec, (number + first) * interval_us, runtime_us, stream.name
        )
        for number in range(stream.count)
    ]


def _report(file: KueueFile, simulation: Simulation, nominal: int) -> dict[str, Any]:
    lives = list(simulation.lives.values())
    first_us, last_us = simulation.samples[0].at_us, simulation.samples[-1].at_us
    used = used_gpu_us(simulation.samples) / (nominal * max(last_us - first_us, 1))
    groups: dict[str, list[Life]] = {}
    for life in lives:
        groups.setdefault(life.work.group, []).append(life)
    return {
        "name": file.name,
        "jobs": len(lives),
        "unfinished": sum(life.ended_us is None for life in lives),
        "evictions": sum(life.evictions for life in lives),
        "wall_ms": round(last_us / US_PER_MS),
        "queue_usage_percent": round(100 * used, 2),
        "time_to_admission_ms": {group: _mean_ms(groups[group]) for group in sorted(groups)},
        "published": file.published.get("observed", {}),
        "ideal": file.ideal,
    }


def _mean_ms(lives: list[Life]) -> float:
    """Mean of last admission - creation, of those that were admitted."""
    waits = [life.started_last_us - life.work.arrives_us for life in lives if life.started_last_us is not None]
    return round(sum(waits) / len(waits) / US_PER_MS, 1) if waits else 0.0
