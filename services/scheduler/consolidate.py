"""Which runs would go elsewhere so that a gang finds room, when enough GPUs are free but scattered."""

from datetime import timedelta
from typing import Final, NamedTuple

from events.base import Event, RunId
from events.job import ConsolidationProposed, GpusEarmarked, Move
from events.policy import Consolidation
from projections.cluster.job import Job, Shape
from projections.cluster.placing.misfit import least, sized
from projections.cluster.placing.place import Placement, place
from projections.cluster.placing.windows import Windows
from services.scheduler.scene import Scene
from services.scheduler.search import Found
from services.scheduler.spots import (
    Ground,
    ranks_of,
)

RESTART_S: Final = 60  # of each GPU that is moved, beside what it loses
MOVES_MAX: Final = 64  # for one gang
TRIES_MAX: Final = 8  # searches for one gang, each without a run that found no new place
PROPOSED_AGAIN_AFTER: Final = timedelta(minutes=10)


class Consolidated(NamedTuple):
    """Where the gang goes, and where the runs that are in its way go."""

    placement: Placement
    moves: tuple[Move, ...]


def consolidate(scene: Scene, job: Job, asked: Shape | None = None) -> Consolidated | None:
    """The cheapest moves found that make room for a job, each with a new place; None where there are none.

    Only where as many GPUs are free as the job needs. Only preemptible runs with a checkpoint contract move, under the
    rules for victims of preemption. What was proposed is not proposed again for ten minutes. The scene is as it was.
    `asked`: as for `preempt`.
    """
    policy, at = scene.cluster.policy, scene.tick.at
    if policy.consolidation is Consolidation.OFF:
        return None
    proposes = policy.consolidation is Consolidation.PROPOSE
    if proposes and job.proposed_at is not None and at - job.proposed_at < PROPOSED_AGAIN_AFTER:
        return None
    shape = least(asked or job.shape)
    for gpu_type in shape.gpu_types or tuple(sorted(scene.cluster.capacity)):
        pools = (pool for pool in scene.room.pools.groups() if pool.gpu_type == gpu_type)
        if sum(pool.free * len(scene.room.pools.names(pool)) for pool in pools) < shape.gpus:
            continue
        if (found := _on_type(scene, job, shape, gpu_type)) is not None:
            return found
    return None


def said(scene: Scene, job: Job, found: Consolidated) -> list[Event]:
    """What the log is told: the proposal, or what is set aside for the gang and then for each job that moves."""
    shares, ids = found.placement.shares, scene.tick.of_job(job)
    if scene.cluster.policy.consolidation is Consolidation.PROPOSE:
        return [ConsolidationProposed(**ids, shares=shares, moves=found.moves)]
    victims = tuple(move.run_id for move in found.moves)
    events: list[Event] = [
        GpusEarmarked(**ids, shares=shares, victims=victims, ranks=found.placement.ranks, moved=True)
    ]
    for move in found.moves:
        moved = scene.cluster.jobs[scene.cluster.runs[move.run_id].job_id]
        ranks = ranks_of(scene.cluster, move.shares)
        events.append(GpusEarmarked(**scene.tick.of_job(moved), shares=move.shares, ranks=ranks))
    return events


def _on_type(scene: Scene, job: Job, shape: Shape, gpu_type: str) -> Consolidated | None:
    """A search on one GPU type, again without the run that found no place, a few times."""
    ground = Ground(scene, shape, gpu_type, soon=False)
    moving = Moving(scene, job, ground)
    for _ in range(TRIES_MAX):
        found = ground.cheapest(shape, moving)
        if found is None or not found.victims:
            return None
        homes = _homes(scene, found, gpu_type)
        if isinstance(homes, tuple):
            return Consolidated(Placement(found.shares, ranks_of(scene.cluster, found.shares)), homes)
        moving.stays(homes)
    return None


def _homes(scene: Scene, found: Found, gpu_type: str) -> tuple[Move, ...] | RunId:
    """A new place for each run that moves, the largest first, all at once; or the first that finds none."""
    room = scene.room.fork()
    room.reserve(found.shares)
    moves, windows = dict[RunId, Move](), Windows(scene.cluster)
    for run in sorted((scene.cluster.runs[r] for r in found.victims), key=lambda run: (-run.gpus, run.run_id)):
        job = scene.cluster.jobs[run.job_id]
        home = place(room, sized(job.shape, run.gpus)._replace(gpu_types=(gpu_type,)))
        if not isinstance(home, Placement) or not windows.spares(home.shares, job.spec, scene.tick.at):
            return run.run_id
        room.take(home.shares)
        moves[run.run_id] = Move(run.run_id, home.shares)
    return tuple(moves[run_id] for run_id in found.victims)


class Moving:
    """Which runs may go elsewhere for a job, and what that costs: GPU-seconds lost, and those of a restart."""

    def __init__(self, scene: Scene, job: Job, ground: Ground) -> None:
        self._scene = scene
        self._job = job
        self._field = ground.field
        self._costs: dict[RunId, int | None] = {}
        self._claimed: set[RunId] = set()

    def stays(self, run_id: RunId) -> None:
        """The run has nowhere to go."""
        self._costs[run_id] = None

    def cost(self, run_id: RunId) -> int | None:
        """What moving it costs; None where it may not be moved."""
        if run_id not in self._costs:
            self._costs[run_id] = self._look_at(run_id)
        return self._costs[run_id]

    def claim(self, run_id: RunId) -> bool:
        """It moves; False when that would be too many."""
        if len(self._claimed) == MOVES_MAX:
            return False
        self._claimed.add(run_id)
        return True

    def restore(self, run_id: RunId) -> None:
        """It does not move after all."""
        self._claimed.remove(run_id)

    def _look_at(self, run_id: RunId) -> int | None:
        run, lost = self._field.runs[run_id], self._field.lost.get(run_id)
        job = self._scene.cluster.jobs[run.job_id]
        if lost is None or job.spec.checkpoint is None or job.job_id in self._job.evicted_for:
            return None
        return lost + RESTART_S * run.gpus
