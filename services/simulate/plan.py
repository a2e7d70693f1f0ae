"""Workloads of one's own: nodes, queues, a policy, and streams of jobs, in one file."""

from collections.abc import Iterator, Mapping
from math import ceil
from random import Random
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from events.base import JobId, TeamId
from events.job import Checkpoint, JobSpec, Priority
from services.gate.durations import seconds
from services.simulate.engine import Simulation, Watch
from services.simulate.fault import BadFile
from services.simulate.measure import by_size, figures, spread
from services.simulate.replay import named
from services.simulate.typed import Typed, checked, policy_of, queues_of
from services.simulate.work import COMMAND, US, Life, Work

NODES_MAX: Final = 100_000
JOBS_MAX: Final = 1_000_000

Seconds = Annotated[float, BeforeValidator(seconds), Field(ge=0, le=31_536_000)]  # of `90s`, `2h`, or a number
Many = Annotated[int, Field(ge=1, le=1_000_000)]


class NodesTyped(Typed):
    """Nodes that are alike."""

    count: Annotated[int, Field(ge=1, le=NODES_MAX)] = 1
    gpus: Annotated[int, Field(ge=1, le=63)] = 8
    gpu_type: Annotated[str, Field(min_length=1, max_length=64)] = "gpu"
    labels: dict[str, str] = Field(default_factory=dict)


class JobsTyped(Typed):
    """A stream of jobs that are alike: the n-th, from 0, arrives at `first` + n x `every`."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    team: Annotated[str, Field(min_length=1, max_length=64)] = "default"
    gpus: Many
    min_gpus: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    gpu_types: tuple[str, ...] = ()
    runtime: Seconds
    declared: Annotated[float, Field(ge=0, le=1_000)] = 1.0  # times the true runtime; 0: nothing is declared
    priority: Priority = Priority.NORMAL
    preemptible: bool = True
    checkpoint_grace: Seconds | None = None  # None: it keeps no checkpoints
    count: Many = 1
    first: Seconds = 0
    every: Seconds = 0
    random: bool = False  # gaps and runtimes are drawn, exponential, with these means


class PlanFile(Typed):
    """A workload in our own format."""

    name: str = ""
    nodes: Annotated[list[NodesTyped], Field(min_length=1)]
    policy: dict[str, Any] = Field(default_factory=dict)
    queues: list[dict[str, Any]] = Field(default_factory=list)
    jobs: Annotated[list[JobsTyped], Field(min_length=1)]


def run_plan(body: Mapping[str, Any], *, seed: int, watch: Watch | None = None) -> tuple[Simulation, dict[str, Any]]:
    """The simulation, and its figures: over all, by team and by size. `seed`: of what is drawn. Raises: `BadFile`."""
    plan = checked(body, PlanFile)
    if sum(nodes.count for nodes in plan.nodes) > NODES_MAX:
        raise BadFile(0, f"nodes: there are more than {NODES_MAX} nodes")
    if sum(jobs.count for jobs in plan.jobs) > JOBS_MAX:
        raise BadFile(0, f"jobs: there are more than {JOBS_MAX} jobs")
    simulation = Simulation()
    simulation.record(policy_of(plan.policy, simulation.begin, within="policy"))
    simulation.record(queues_of({"queues": plan.queues}, simulation.begin))
    for number, nodes in enumerate(plan.nodes):
        names = named(nodes.count, f"{chr(97 + number % 26)}{number // 26 or ''}-")
        simulation.join(names, nodes.gpus, gpu_type=nodes.gpu_type, labels=nodes.labels)
    works = [work for number, jobs in enumerate(plan.jobs) for work in stream(jobs, number, seed)]
    simulation.run(sorted(works, key=lambda work: work.arrives_us), watch)
    capacity = sum(nodes.count * nodes.gpus for nodes in plan.nodes)
    return simulation, {"name": plan.name, "seed": seed, **report(simulation, capacity)}


def stream(jobs: JobsTyped, number: int, seed: int) -> Iterator[Work]:
    """The jobs of a stream, the `number`-th of its file, in order of arrival."""
    chance = Random(f"{seed}/{number}/{jobs.name}")  # noqa: S311  # no secret: the same seed gives the same workload
    at_s = jobs.first
    for each in range(jobs.count):
        runtime_s = jobs.runtime
        if jobs.random:
            at_s += chance.expovariate(1 / jobs.every) if jobs.every else 0
            runtime_s = max(1.0, chance.expovariate(1 / runtime_s)) if runtime_s else 0
        spec = JobSpec(
            name=jobs.name,
            command=COMMAND,
            gpus=jobs.gpus,
            min_gpus=jobs.min_gpus,
            gpu_types=jobs.gpu_types,
            priority=jobs.priority,
            max_runtime_s=max(1, ceil(runtime_s * jobs.declared)) if jobs.declared else 0,
            preemptible=jobs.preemptible,
            checkpoint=Checkpoint(grace_s=round(jobs.checkpoint_grace)) if jobs.checkpoint_grace is not None else None,
            stop_grace_s=0,
        )
        yield Work(
            JobId(f"{jobs.name}-{number}-{each}"), TeamId(jobs.team), spec, round(at_s * US), round(runtime_s * US)
        )
        if not jobs.random:
            at_s += jobs.every


def report(simulation: Simulation, capacity: int) -> dict[str, Any]:
    """The figures of a simulation, over all, by team and by size."""
    lives = list(simulation.lives.values())
    teams: dict[str, list[Life]] = {}
    for life in lives:
        teams.setdefault(life.work.team, []).append(life)
    return {
        **figures(lives, simulation.samples, capacity),
        "evictions": sum(life.evictions for life in lives),
        "teams": {team: _of(teams[team]) for team in sorted(teams)},
        "sizes": {name: {"jobs": len(waits), **spread("wait", waits)} for name, waits in by_size(lives).items()},
    }


def _of(lives: list[Life]) -> dict[str, Any]:
    waits = [life.wait_s for life in lives if life.wait_s is not None]
    evictions = sum(life.evictions for life in lives)
    return {"jobs": len(lives), "evictions": evictions, **spread("wait", waits)}
