"""What each node could give a gang: what is free, what soon will be, and what runs hold that could be made to end."""

from collections.abc import Iterator

from events.base import NodeId, RunId
from events.job import NodeShare
from projections.cluster.job import Run, Shape
from projections.cluster.node import Node, NodeState
from projections.cluster.room import domain_of
from projections.cluster.state import Cluster
from projections.cluster.topology import ranks_along
from services.scheduler.scene import Scene
from services.scheduler.search import Budget, Found, Spot, cheapest


class Ground:
    """The nodes of one GPU type that a gang of some shape may use, and the runs there that have not ended."""

    def __init__(self, scene: Scene, shape: Shape, gpu_type: str, *, soon: bool = True) -> None:
        """`soon`: count what is being given back anyway."""
        self.gpu_type = gpu_type
        self.runs: dict[RunId, Run] = {}
        self.spots: dict[NodeId, Spot] = {}
        self._scene = scene
        ending: dict[RunId, bool] = {}
        for node in scene.cluster.nodes.values():
            if node.gpu_type != gpu_type or node.state is not NodeState.UP or node.cordoned or not suits(node, shape):
                continue
            self.spots[node.node_id] = self._spot(node, ending, soon=soon)

    def _spot(self, node: Node, ending: dict[RunId, bool], *, soon: bool) -> Spot:
        scene, runs = self._scene, self.runs
        closed = node.marked | scene.room.kept(node)
        coming, held = 0, []
        for run_id, slots in node.held.items():
            if not (slots := slots & ~closed & node.pool):
                continue
            if (run := runs.get(run_id)) is None:
                run = runs[run_id] = scene.cluster.runs[run_id]
                ending[run_id] = run_id in scene.evicted or is_ending(run)
            if not ending[run_id]:
                held.append((run_id, slots))
            elif soon:
                coming |= slots
        return Spot(node, scene.room.free(node), coming, tuple(held))

    def cheapest(self, shape: Shape, budget: Budget) -> Found | None:
        """The destination that costs least: within one domain where the gang asks for that, first or only."""
        for within in domains_of(shape):
            if (found := cheapest(self.split(within), self.runs, budget, shape)) is not None:
                return found
        return None

    def split(self, within: str) -> list[dict[NodeId, Spot]]:
        """The nodes by rack or spine, in order of names; one that nobody placed is alone in its own. No domain: all together."""
        if not within:
            return [self.spots]
        parts: dict[tuple[str, str], dict[NodeId, Spot]] = {}
        for name, spot in self.spots.items():
            domain = domain_of(spot.node.place, within)
            parts.setdefault(domain if any(domain) else ("", f" {name}"), {})[name] = spot
        return [parts[key] for key in sorted(parts)]


def domains_of(shape: Shape) -> Iterator[str]:
    """Within what to look, first to last; empty: anywhere."""
    if shape.within:
        yield shape.within
    if not (shape.within and shape.required):
        yield ""


def ranks_of(cluster: Cluster, shares: tuple[NodeShare, ...]) -> tuple[int, ...]:
    """The order of ranks along the network; empty where that is the order of shares."""
    return ranks_along([cluster.nodes[share.node_id] for share in shares])


def suits(node: Node, shape: Shape) -> bool:
    """Whether a node has the labels that a gang asks for, and no taint that it does not tolerate."""
    if not shape.labels and not node.taints:
        return True
    has = all(node.labels.get(key) == value for key, value in shape.labels)
    return has and all(taint in shape.tolerates for taint in node.taints)


def is_ending(run: Run) -> bool:
    """Whether a run gives its GPUs back without anything more being decided: it was told to, or all its ranks have ended."""
    return run.stopping is not None or bool(run.evicted_for) or run.ended == run.all


def may_be_stopped(scene: Scene, run: Run) -> bool:
    """Whether a run that is not ending may be stopped for others: preemptible, not too soon after it began, nor too often."""
    policy, at = scene.cluster.policy, scene.tick.at
    if not run.preemptible or (at - (run.started_at or run.placed_at)).total_seconds() < policy.min_runtime_s:
        return False
    job = scene.cluster.jobs[run.job_id]
    if job.evictions >= policy.evictions_max or job.cancel or run.failure is not None or run.broken:
        return False  # the latter three end for other reasons: what they hold counts when they were told to
    return job.evicted_at is None or (at - job.evicted_at).total_seconds() >= policy.cool_down_s


def lost_gpu_s(scene: Scene, run: Run) -> int:
    """GPU-seconds that a run loses if it ends now: since its last checkpoint, or since it began."""
    since = run.saved_at or run.started_at or run.placed_at
    return max(0, int((scene.tick.at - since).total_seconds())) * run.gpus
