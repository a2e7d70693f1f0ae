"""Who is stopped so that a job which may run finds room: the victims that lose least, whole gangs, and the destination.

docs/preemption.md says the rules, docs/decisions/0012 why no two jobs ever stop each other in turn.
"""

from itertools import product
from typing import Final, NamedTuple

from events.base import JobId, RunId, TeamId
from events.job import NodeShare
from projections.cluster.job import PRIORITY_RANK, Job, JobState, Run, Shape
from projections.cluster.placing.misfit import least
from projections.cluster.state import Cluster
from services.scheduler.relief import Wanted, relieved
from services.scheduler.scene import Scene
from services.scheduler.search import Found, could_hold, needs_of
from services.scheduler.spots import Ground, ranks_of

DEAR: Final = 1 << 40  # a GPU: dearer than all that a job's own team could lose
LAST_CLASS: Final = max(PRIORITY_RANK.values())


class Preemption(NamedTuple):
    """What is set aside for a job, and who ends for it."""

    shares: tuple[NodeShare, ...]  # ordered by node
    ranks: tuple[int, ...]  # node rank n is shares[ranks[n]]; empty: in order of shares
    victims: tuple[RunId, ...]  # whole gangs; none where what ends anyway is enough


def preempt(scene: Scene, job: Job, asked: Shape | None = None) -> Preemption | None:
    """The destination and victims for a job that found no place; None where nobody may be stopped for it, or not enough.

    Also for one that a limit keeps from what is free: then victims are such that all its queues keep their limits, and
    beyond what its team is entitled to they are of its own team.
    The scene is as it was: whoever goes on with the answer takes it from the room and from what teams use, and notes
    the victims in `scene.evicted`. GPU types are tried in the job's order. An elastic gang gets its least. `asked`: the
    job's shape with fewer types, where limits close some to it.
    """
    if not scene.cluster.policy.preemption:
        return None
    shape = least(asked or job.shape)
    types = shape.gpu_types or tuple(sorted(scene.cluster.capacity))
    for gpu_type in types:
        entitled = scene.standing.entitles(job.team, gpu_type, shape.gpus, rank=job.rank)
        if not entitled and scene.standing.holds_now(job.team, gpu_type, shape.gpus):
            continue
        if not _may_suffice(scene, job, gpu_type, shape):
            continue
        if (found := _on_type(scene, job, shape, gpu_type, entitled=entitled)) is not None:
            return Preemption(found.shares, ranks_of(scene.cluster, found.shares), found.victims)
    return None


def was_stopped_for(cluster: Cluster, job: Job) -> frozenset[JobId]:
    """Those that run and that the job was once stopped for: none of them is ever stopped for it."""
    if not job.evicted_for:
        return frozenset()
    others = (cluster.jobs.get(job_id) for job_id in job.evicted_for)
    return frozenset(other.job_id for other in others if other is not None and other.state is JobState.PLACED)


def _may_suffice(scene: Scene, job: Job, gpu_type: str, shape: Shape) -> bool:
    """Whether the counts allow it: the quick no.

    Those of whole teams first, then those of runs that may be stopped, last those of nodes with all these gone.
    """
    gpus = shape.gpus
    pools = (pool for pool in scene.room.pools.groups() if pool.gpu_type == gpu_type)
    free = sum(pool.free * len(scene.room.pools.names(pool)) for pool in pools)
    uses = ((use, count) for use, count in scene.cluster.usage.items() if use.gpu_type == gpu_type)
    if free + sum(count for use, count in uses if use.preemptible or use in scene.cluster.leaving) < gpus:
        return False
    over: dict[TeamId, bool] = {}
    if not any(_fair_game(scene, job, (use.team, use.rank), gpu_type, over) for use in scene.cluster.usage):
        return False
    field = scene.field(gpu_type)
    claimable = {key: n for key, n in field.claimable.items() if _fair_game(scene, job, key, gpu_type, over)}
    most = sum(claimable.values())
    limited = not scene.standing.holds_now(job.team, gpu_type, gpus)  # then those of other types may count
    if not (most > 0 or limited) or free + field.soon + most < gpus:
        return False
    gone = {(run.team, run.rank) for run_id in scene.evicted if (run := field.runs.get(run_id)) is not None}
    roomy = field.roomy(claimable.keys() | gone, shape.within if shape.required else "")
    return any(
        could_hold(need, nodes) for nodes in roomy for need in needs_of(shape, list({size for size, _ in nodes} - {0}))
    )


def _fair_game(scene: Scene, job: Job, whose: tuple[TeamId, int], gpu_type: str, over: dict[TeamId, bool]) -> bool:
    """Whether runs of a team and class may be stopped for the job at all. `over`: what is known of teams."""
    team, rank = whose
    if team == job.team:
        return rank > job.rank
    if team not in over:
        over[team] = scene.standing.over(team, gpu_type, job.team) > 0
    return over[team]


def _on_type(scene: Scene, job: Job, shape: Shape, gpu_type: str, *, entitled: bool) -> Found | None:
    """The cheapest legal answer on one GPU type: the least lost; or, if that takes too much of others, own runs first.

    Own runs come first, too, where a limit is short: they count against each that the job counts against. Last, where a
    queue above the team has all it is entitled to, that which takes from those in this queue only.
    """
    scene.field(gpu_type).searches += 1
    ground = Ground(scene, shape, gpu_type)
    others: tuple[int | None, ...] = (0, DEAR)
    if scene.standing.short(job.team, gpu_type, shape.gpus):
        others = (DEAR,)
    if not entitled:
        others = (None,)
    full = scene.standing.full(job.team, gpu_type, shape.gpus) if entitled else ""
    for inside, others_cost in product(("", full) if full else ("",), others):
        claims = Claims(scene, job, gpu_type, others_cost=others_cost, inside=inside)
        found = ground.cheapest(shape, claims)
        if found is None:
            return None
        victims = relieved(scene, Wanted(job.team, gpu_type, shape.gpus), budget=claims, victims=found.victims)
        if victims is not None and claims.legal(victims, shape.gpus):
            return found._replace(victims=victims)
    return None


class Claims:
    """Which runs a job may have stopped, and what each loses: GPU-seconds since it last saved, or began."""

    def __init__(self, scene: Scene, job: Job, gpu_type: str, *, others_cost: int | None, inside: str = "") -> None:
        """`others_cost`: what a GPU of another team costs more; None: only the job's own team is asked. `inside`: a queue."""
        self._scene = scene
        self._job = job
        self._runs = scene.cluster.runs
        self._gpu_type = gpu_type
        self._others_cost = others_cost
        self._inside = inside
        self._sure = not scene.standing.sole and scene.standing.sure(
            job.team, gpu_type, least(job.shape).gpus, rank=job.rank
        )
        self._lost: dict[RunId, int | None] = {}
        self._over: dict[tuple[TeamId, str], int] = {}
        self._above: dict[tuple[TeamId, str], bool] = {}  # whether a team had too much before any of it was claimed

    def cost(self, run_id: RunId) -> int | None:
        """What its end loses; None when it may not be stopped for the job."""
        run = self._runs[run_id]
        lost = self._lost.get(run_id, -1)
        if lost == -1:
            lost = self._lost[run_id] = self._look_at(run)
        if lost is None:
            return None
        if run.team == self._job.team:
            return lost
        if self._others_cost is None or self._over_of(run) <= 0:
            return None
        return lost + run.gpus * self._others_cost

    def claim(self, run_id: RunId) -> bool:
        """It counts as gone; False when its team no longer has more than its share."""
        if self.cost(run_id) is None:
            return False
        run = self._runs[run_id]
        self._scene.standing.give(run.team, run.gpu_type, run.gpus, rank=run.rank, preemptible=run.preemptible)
        self._over.clear()
        return True

    def restore(self, run_id: RunId) -> None:
        """It counts as running again."""
        run = self._runs[run_id]
        self._scene.standing.give(run.team, run.gpu_type, -run.gpus, rank=run.rank, preemptible=run.preemptible)
        self._over.clear()

    def legal(self, victims: tuple[RunId, ...], gpus: int) -> bool:
        """Whether each may be stopped after those before it, and the job's queues stay within their share with it."""
        claimed: list[RunId] = []
        try:
            for run_id in victims:
                if not self.claim(run_id):
                    return False
                claimed.append(run_id)
            if self._scene.standing.short(self._job.team, self._gpu_type, gpus):
                return False
            if all(self._runs[run_id].team == self._job.team for run_id in victims):
                return True  # its team has no more than before
            besides = self._have_no_more(victims, gpus)
            return self._scene.standing.within(self._job.team, self._gpu_type, gpus, rank=LAST_CLASS, besides=besides)
        finally:
            for run_id in claimed:
                self.restore(run_id)

    def _have_no_more(self, victims: tuple[RunId, ...], gpus: int) -> set[str]:
        """The queues above the job's team that all victims stand in, where these have as much as it takes."""
        runs = [run for run in map(self._runs.__getitem__, victims) if run.gpu_type == self._gpu_type]
        if sum(run.gpus for run in runs) < gpus:
            return set()
        path = self._scene.cluster.tree.path
        return set(path(self._job.team)[1:]).intersection(*(path(run.team) for run in runs))

    def _over_of(self, run: Run) -> int:
        """GPUs that a team may lose: what it has beyond its entitlement; for a job that is due by its floor, all beyond its own.

        Else a job that needs whole nodes would seldom find some on which others have just so much too much.
        """
        whose, standing = (run.team, run.gpu_type), self._scene.standing
        over = self._over.get(whose)
        if over is None:
            over = standing.over(*whose, self._job.team)
            if self._sure and self._above.setdefault(whose, over > 0):
                over = max(over, standing.over(*whose, self._job.team, floors=True))
            self._over[whose] = over
        return over

    def _look_at(self, run: Run) -> int | None:
        """What does not change during the search."""
        lost = self._scene.field(run.gpu_type).lost.get(run.run_id)
        if lost is None or run.job_id in self._job.evicted_for:
            return None
        if run.team == self._job.team and run.rank <= self._job.rank:
            return None
        if self._inside and self._inside not in self._scene.cluster.tree.path(run.team):
            return None
        return lost + run.gpus  # so that nobody is stopped for nothing
