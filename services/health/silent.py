"""Whether a node's agent is there: suspect, recovered, lost. Judged by silence, which only the tick knows."""

from typing import Final

from events.base import Event
from events.fleet import NodeLost, NodeRecovered, NodeSuspected
from projections.cluster.node import NodeState
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick

DECIDED_MAX: Final = 1_000  # nodes in one round; the rest is the next round's


def decide(cluster: Cluster, tick: Tick) -> list[Event]:
    """What silence says of nodes."""
    events: list[Event] = []
    for node_id in sorted(tick.silent.keys() | cluster.suspects.keys()):
        node = cluster.nodes.get(node_id)
        if node is None or node.state is NodeState.LOST:
            continue
        silent_s = tick.silent.get(node_id, 0.0)
        if silent_s >= cluster.policy.lost_after_s:
            events.append(NodeLost(at=tick.at, node_id=node_id, node_epoch=node.epoch, silent_s=silent_s))
        elif silent_s >= cluster.policy.suspect_after_s:
            if node.state is NodeState.UP:
                events.append(NodeSuspected(at=tick.at, node_id=node_id, node_epoch=node.epoch, silent_s=silent_s))
        elif node.state is NodeState.SUSPECT:
            events.append(NodeRecovered(at=tick.at, node_id=node_id, node_epoch=node.epoch))
    return events[:DECIDED_MAX]
