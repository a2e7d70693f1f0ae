"""How long each node has been silent, judged on one monotonic clock and only while our own beat comes back."""

from typing import Final

from events.base import NodeEpoch, NodeId
from projections.cluster.state import Cluster, NodeState

GAP_MAX_S: Final = 2.0  # a longer pause of our own loop, or of our own beat, restarts all silences
LOOK_EVERY_S: Final = 0.5  # one look costs a step for every node


class Silences:
    """Keeps when each life of a node was last heard. Times are seconds of one monotonic clock."""

    def __init__(self, now: float) -> None:
        self._since = now  # nothing before this counts as silence
        self._turned = now  # our loop's last turn
        self._beat = now  # our own beat, as it came back
        self._looked = now
        self._heard: dict[NodeId, tuple[NodeEpoch, float]] = {}
        self._silent: dict[NodeId, float] = {}

    def heard(self, node_id: NodeId, epoch: NodeEpoch, now: float) -> None:
        """A node beat."""
        self._heard[node_id] = (epoch, now)

    def heard_own(self, now: float) -> None:
        """Our own beat came back: the way that beats take is open."""
        self._beat = now

    def restart(self, now: float) -> None:
        """Nothing before now counts: we have just begun to lead."""
        self._since = now
        self._silent = {}

    def turn(self, now: float) -> None:
        """Our loop turned. After a gap we cannot say who was silent and who was unheard."""
        if now - self._turned > GAP_MAX_S or now - self._beat > GAP_MAX_S:
            self.restart(now)
        self._turned = now

    def silent(self, cluster: Cluster, now: float) -> dict[NodeId, float]:
        """Seconds of silence of each node that has been silent for as long as makes it suspect."""
        if now - self._looked >= LOOK_EVERY_S:
            self._looked = now
            self._silent = dict(self._look(cluster, now))
        return self._silent

    def _look(self, cluster: Cluster, now: float) -> list[tuple[NodeId, float]]:
        found: list[tuple[NodeId, float]] = []
        for node_id, node in cluster.nodes.items():
            if node.state is NodeState.LOST:
                continue
            epoch, at = self._heard.get(node_id, (NodeEpoch(0), now))
            if epoch != node.epoch:  # a new life: silent from when we first see it
                self._heard[node_id] = (node.epoch, now)
                continue
            silent_s = now - max(at, self._since)
            if silent_s >= cluster.policy.suspect_after_s:
                found.append((node_id, round(silent_s, 3)))
        return found
