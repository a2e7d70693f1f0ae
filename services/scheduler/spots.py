"""What each node could give a gang: what is free, what soon will be, and what runs hold that could be made to end."""

from collections.abc import Iterator

from events.base import NodeId
from events.job import NodeShare
from projections.cluster.job import Shape
from projections.cluster.node import Node
from projections.cluster.placing.misfit import kept_away
from projections.cluster.placing.room import domain_of
from projections.cluster.placing.topology import ranks_along
from projections.cluster.state import Cluster
from services.scheduler.scene import Scene
from services.scheduler.search import Budget, Found, Spot, cheapest


class Ground:
    """The nodes of one GPU type that a gang of some shape may use, and the runs there that could be made to end."""

    def __init__(self, scene: Scene, shape: Shape, gpu_type: str, *, soon: bool = True) -> None:
        """`soon`: count what is being given back anyway."""
        self.field = scene.field(gpu_type)
        self.spots: dict[NodeId, Spot] = {}
        self._scene = scene
        away = kept_away(scene.cluster, shape)
        for node in self.field.nodes:
            if suits(node, shape) and node.node_id not in away:
                self.spots[node.node_id] = self._spot(node, soon=soon)

    def _spot(self, node: Node, *, soon: bool) -> Spot:
        scene, lost, ending, evicted = self._scene, self.field.lost, self.field.ending, self._scene.evicted
        open_ones = node.pool & ~(node.sick | node.marked | scene.room.kept(node))
        coming, held = 0, []
        for run_id, slots in node.held.items():
            if not (slots := slots & open_ones):
                continue
            if run_id in ending or run_id in evicted:
                coming |= slots
            elif run_id in lost:
                held.append((run_id, slots))
        return Spot(node, scene.room.free(node), coming if soon else 0, tuple(held))

    def cheapest(self, shape: Shape, budget: Budget) -> Found | None:
        """The destination that costs least: within one domain where the gang asks for that, first or only."""
        for within in domains_of(shape):
            if (found := cheapest(self.split(within), self.field.runs, budget, shape)) is not None:
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
