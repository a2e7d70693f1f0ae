"""Kueue's scheduler performance workloads: admission against quota only, each unit of it a node of one GPU.

Source: kubernetes-sigs/kueue, test/performance/scheduler: generator, runner, recorder.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple

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
    classes = _classes(file)
    cohorts = list(_cohorts(file))
    capacity = sum(cohort.nominal for cohort in cohorts)
    if capacity > UNITS_MAX:
        raise BadFile(0, f"cohorts: there are {capacity} units of quota; the most is {UNITS_MAX}")
    simulation = Simulation()
    simulation.record(
        PolicySet(
            at=simulation.begin, min_runtime_s=0, cool_down_s=0, evictions_max=ALL, promises=0, admitted_ahead=ALL
        ),
        QueuesSet(at=simulation.begin, queues=tuple(queue for cohort in cohorts for queue in cohort.queues())),
    )
    for cohort in cohorts:
        simulation.join(named(cohort.nominal, f"{cohort.name}-n"), 1, gpu_type=cohort.name)
    works = [work for cohort in cohorts for work in cohort.works(classes)]
    simulation.run(sorted(works, key=lambda work: work.arrives_us), watch)
    return simulation, _report(file, simulation, capacity)


class Cohort(NamedTuple):
    """Queues that lend each other what they do not use. Its units are GPUs of a type of its own: no other borrows them."""

    name: str
    kind: CohortClass
    first: bool  # a stream waits its interval before the first of its workloads, too

    @property
    def nominal(self) -> int:
        """All its quota."""
        return sum(queues.nominal_quota * queues.count for queues in self.kind.queues)

    def teams(self) -> Iterator[tuple[TeamId, QueueClass]]:
        """Its queues by name."""
        for queues in self.kind.queues:
            for number in range(queues.count):
                yield TeamId(f"{self.name}-{queues.name}-{number}"), queues

    def queues(self) -> Iterator[Queue]:
        """As our tree has them: a nominal quota is a floor."""
        yield Queue(name=TeamId(self.name))
        for team, queues in self.teams():
            bounds = Bounds(gpu_type=self.name, floor=queues.nominal_quota, borrowing_limit=queues.borrowing_limit)
            yield Queue(name=team, parent=self.name, bounds=(bounds,))

    def works(self, classes: dict[int, Priority]) -> Iterator[Work]:
        """Its workloads, queue by queue and class by class."""
        for team, queues in self.teams():
            for stream in queues.workloads:
                yield from self._stream(stream, team, classes[stream.priority])

    def _stream(self, stream: Stream, team: TeamId, priority: Priority) -> Iterator[Work]:
        spec = JobSpec(
            name=stream.name,
            command=COMMAND,
            gpus=stream.request,
            gpu_types=(self.name,),
            priority=priority,
            stop_grace_s=0,
            retries_infrastructure=0,
        )
        interval_us, runtime_us = stream.creation_interval_ms * US_PER_MS, stream.runtime_ms * US_PER_MS
        for number in range(stream.count):
            job_id = JobId(f"{team}-{stream.name}-{number}")
            yield Work(job_id, team, spec, (number + self.first) * interval_us, runtime_us, stream.name)


def _cohorts(file: KueueFile) -> Iterator[Cohort]:
    for kind in file.cohorts:
        for number in range(kind.count):
            yield Cohort(f"{kind.name}-{number}", kind, file.creation.first_after_interval)


def _classes(file: KueueFile) -> dict[int, Priority]:
    """Our class for each priority of the file. Raises `BadFile`, also for a file of too many workloads."""
    streams = [(kind.count * q.count, s) for kind in file.cohorts for q in kind.queues for s in q.workloads]
    total = sum(times * stream.count for times, stream in streams)
    if total > JOBS_MAX:
        raise BadFile(0, f"cohorts: there are {total} workloads; the most is {JOBS_MAX}")
    try:
        return classes_of({stream.priority for _, stream in streams})
    except ValueError as error:
        raise BadFile(0, f"cohorts: {error}") from None


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
