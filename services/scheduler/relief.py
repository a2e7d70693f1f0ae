"""Who is stopped beside those whose room is needed, so that the queues of a job keep their limits with it."""

from collections.abc import Iterator
from typing import NamedTuple

from events.base import RunId, TeamId
from projections.cluster.job import Run
from projections.cluster.quota.bounds import Short
from projections.cluster.quota.tree import ALL_TYPES
from services.scheduler.field import Field
from services.scheduler.scene import Scene
from services.scheduler.search import Budget


class Wanted(NamedTuple):
    """What a team is to have more."""

    team: TeamId
    gpu_type: str
    gpus: int


def relieved(scene: Scene, wanted: Wanted, *, budget: Budget, victims: tuple[RunId, ...]) -> tuple[RunId, ...] | None:
    """The victims, and after them those that limits need; None where there are not enough, or nobody has to be stopped.

    The latter is where what ends anyway makes enough of the limits free. Those that lose least a GPU are taken, and of
    them those that turn out not to be needed run on. Nothing is left claimed.
    """
    standing = scene.standing
    chosen: list[RunId] = []
    try:
        for run_id in victims:
            if not budget.claim(run_id):
                return None
            chosen.append(run_id)
        limits = standing.short(*wanted)
        if limits and all(_ending(scene, limit) >= limit.by for limit in limits):
            return None
        for limit in limits:
            for run_id in _candidates(scene, limit, budget):
                if not any(short.same(limit) for short in standing.short(*wanted)):
                    break
                if run_id not in chosen and budget.claim(run_id):
                    chosen.append(run_id)
        if standing.short(*wanted):
            return None
        for run_id in reversed(chosen[len(victims) :]):
            budget.restore(run_id)
            if standing.short(*wanted):
                budget.claim(run_id)
            else:
                chosen.remove(run_id)
        return tuple(chosen)
    finally:
        for run_id in chosen:
            budget.restore(run_id)


def _candidates(scene: Scene, limit: Short, budget: Budget) -> list[RunId]:
    """The runs whose end helps against a limit, the least lost a GPU first; none where all together are too few."""
    fields = list(_fields(scene, limit))
    if not limit.jobs and sum(_counted(scene, field, limit) for field in fields) < limit.by:
        return []
    found: list[tuple[float, RunId]] = []
    for field in fields:
        for run_id in field.lost:
            run = field.runs[run_id]
            if run_id not in scene.evicted and _counts(scene, run, limit) and (cost := budget.cost(run_id)) is not None:
                found.append((cost if limit.jobs else cost / run.gpus, run_id))
    return [run_id for _, run_id in sorted(found)]


def _fields(scene: Scene, limit: Short) -> Iterator[Field]:
    types = sorted(scene.cluster.capacity) if limit.gpu_type == ALL_TYPES else (limit.gpu_type,)
    return (scene.field(gpu_type) for gpu_type in types)


def _counts(scene: Scene, run: Run, limit: Short) -> bool:
    return limit.queue in scene.cluster.tree.path(run.team)


def _counted(scene: Scene, field: Field, limit: Short) -> int:
    """GPUs of runs that may be stopped, of teams that count against the limit."""
    path = scene.cluster.tree.path
    return sum(gpus for (team, _), gpus in field.claimable.items() if limit.queue in path(team))


def _ending(scene: Scene, limit: Short) -> int:
    """What will count against the limit no more without anything decided: GPUs, or jobs."""
    runs = (field.runs[run_id] for field in _fields(scene, limit) for run_id in field.ending)
    ending = (run for run in runs if not run.evicted_for and _counts(scene, run, limit))
    return sum(1 if limit.jobs else run.gpus for run in ending)
