"""The breaker: how many GPUs health may take out by itself, so that a fault of ours or of a driver empties no cluster."""

from functools import cached_property

from events.alarm import AlarmCleared, AlarmCode, AlarmRaised
from events.base import Event, NodeId
from events.fleet import AUTOMATIC
from projections.cluster.evolve_health import ABOUT_MAX
from projections.cluster.node import Node
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick

HINT = "muster nodes says which; return GPUs that are sound with muster node return, or raise breaker_percent in the policy"


class Breaker:
    """What is out of all GPUs by verdicts and automatic drains; what operators drained does not count."""

    def __init__(self, cluster: Cluster) -> None:
        """Counts when it is asked first: most rounds take nothing out."""
        self._cluster = cluster
        self._percent = cluster.policy.breaker_percent
        self._held_back: dict[NodeId, int] = {}  # verdicts and drains

    @cached_property
    def gpus(self) -> int:
        """All of them, but for those of nodes that are retired."""
        nodes = self._cluster.nodes.values()
        return sum(node.present.bit_count() for node in nodes if not node.fitness.retired)

    @cached_property
    def out(self) -> int:
        """GPUs that are out."""
        return sum(out_of(node) for node in self._cluster.nodes.values() if not node.fitness.retired)

    def admits(self, node: Node, gpus: int) -> bool:
        """Whether so many of the node's GPUs may be out; then they are counted, else it is remembered as held back.

        One GPU, or one node, may always go.
        """
        before = out_of(node)
        if gpus <= before:
            return True
        others = self.out - before
        if not self._percent or (others and (others + gpus) * 100 > self._percent * self.gpus):
            self._held_back[node.node_id] = self._held_back.get(node.node_id, 0) + 1
            return False
        self.out = others + gpus
        return True

    def says(self, cluster: Cluster, tick: Tick) -> list[Event]:
        """A person is called while something is held back, and told anew when that changes."""
        raised = cluster.alarms.get(AlarmCode.BREAKER)
        if not self._held_back:
            return [AlarmCleared(at=tick.at, code=AlarmCode.BREAKER)] if raised is not None else []
        message = (
            f"{self.out} of {self.gpus} GPUs are out by verdicts and automatic drains, and {self._percent} % is the most: "
            f"{sum(self._held_back.values())} more would be taken out, on {len(self._held_back)} node"
            f"{'s' if len(self._held_back) > 1 else ''}"
        )
        node_ids = tuple(sorted(self._held_back))
        if raised is not None and (raised.message, raised.node_ids) == (message, node_ids[:ABOUT_MAX]):
            return []
        return [
            AlarmRaised(
                at=tick.at,
                code=AlarmCode.BREAKER,
                message=message,
                hint=HINT,
                node_ids=node_ids[:ABOUT_MAX],
                count=len(node_ids),
            )
        ]


def out_of(node: Node) -> int:
    """GPUs of a node that health has taken out."""
    drain = node.fitness.drain
    drained = drain is not None and drain.cause in AUTOMATIC
    return (node.present if drained else node.present & node.sick).bit_count()
