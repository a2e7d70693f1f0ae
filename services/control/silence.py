"""How long each node has been silent, judged on one monotonic clock and only while our own beat comes back."""

from typing import Final

from events.alarm import AlarmCode
from events.base import NodeEpoch, NodeId
from projections.cluster.node import Node, NodeState
from projections.cluster.state import Cluster

GAP_MAX_S: Final = 2.0  # a longer pause of our own loop, or of our own beat, restarts all silences
LOOK_EVERY_S: Final = 0.5  # one look costs a step for every node
NEVER: Final = float("-inf")


class Silences:
    """Keeps when each life of a node was last heard. Times are seconds of one monotonic clock."""

    def __init__(self, now: float) -> None:
        self._since = now  # nothing before this counts as silence
        self._turned = now  # our loop's last turn
        self._beat = now  # our own beat, as it came back
        self._looked = now
        self._doubted = False  # the network, by the log
        self._seen: dict[NodeId, tuple[NodeEpoch, float]] = {}  # the life at the last look, and since when we see it
        self._heard: dict[NodeId, float] = {}  # the last beat of that life
        self._promised: dict[NodeId, tuple[NodeEpoch, float]] = {}  # by the last beat of a life; also of a standby
        self._silent: dict[NodeId, tuple[NodeEpoch, float]] = {}  # as of the last look

    def heard(self, node_id: NodeId, epoch: NodeEpoch, now: float, *, promised_s: float = 0.0) -> None:
        """A node beat. A beat of any other life than the last look saw counts for nothing.

        `promised_s`: without contact for so long after it, its agent ends what may be started elsewhere.
        """
        if epoch >= self._promised.get(node_id, (epoch, 0.0))[0]:
            self._promised[node_id] = (epoch, promised_s)
        if self._seen.get(node_id, (None, now))[0] == epoch:
            self._heard[node_id] = now

    def heard_own(self, now: float) -> None:
        """Our own beat came back: the way that beats take is open."""
        self._beat = now

    def restart(self, now: float) -> None:
        """Nothing before now counts: we have just begun to lead, or could not hear."""
        self._since = now
        self._silent = {}

    def turn(self, now: float) -> None:
        """Our loop turned. After a gap we cannot say who was silent and who was unheard."""
        if now - self._turned > GAP_MAX_S or now - self._beat > GAP_MAX_S:
            self.restart(now)
            self._promised.clear()  # beats that we missed may have said more
        self._turned = now

    def silent(self, cluster: Cluster, now: float) -> dict[NodeId, float]:
        """Seconds of silence of each node that has been silent for as long as makes it suspect."""
        doubted = AlarmCode.NETWORK_SUSPECTED in cluster.alarms
        if self._doubted and not doubted:
            self.restart(now)  # those that are silent still are waited for as if it had begun now
        self._doubted = doubted
        if now - self._looked >= LOOK_EVERY_S:
            self._looked = now
            self._silent = dict(self._look(cluster, now))
        # A node that joined anew since the last look is not silent because its earlier life was.
        silent = {n: silent_s for n, (epoch, silent_s) in self._silent.items() if cluster.nodes[n].epoch == epoch}
        for node_id in cluster.suspects:  # a restart is no beat: suspect stays suspect until it is heard
            if self._heard.get(node_id, NEVER) <= self._since:
                silent.setdefault(node_id, cluster.policy.suspect_after_s)
        return silent

    def promised(self, cluster: Cluster, node_id: NodeId) -> float:
        """For how long after its last beat the node may go on with what may be started elsewhere.

        One that we never heard may have been told to wait for as long as nodes ever are.
        """
        epoch, promised_s = self._promised.get(node_id, (None, 0.0))
        return promised_s if epoch == cluster.nodes[node_id].epoch else cluster.policy.lost_most_s

    def _look(self, cluster: Cluster, now: float) -> list[tuple[NodeId, tuple[NodeEpoch, float]]]:
        found: list[tuple[NodeId, tuple[NodeEpoch, float]]] = []
        for node in cluster.nodes.values():
            if node.state is NodeState.LOST:
                continue
            silent_s = now - max(self._last(node, now), self._since)
            if silent_s >= cluster.policy.suspect_after_s:
                found.append((node.node_id, (node.epoch, round(silent_s, 3))))
        return found

    def _last(self, node: Node, now: float) -> float:
        """When this life was last heard; a new one is silent from when we first see it."""
        epoch, seen = self._seen.get(node.node_id, (None, now))
        if epoch == node.epoch:
            return self._heard.get(node.node_id, seen)
        self._seen[node.node_id] = (node.epoch, now)
        self._heard.pop(node.node_id, None)
        return now
