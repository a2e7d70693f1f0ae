"""What is said of the clocks of nodes, once it has changed much. Nothing else is decided by it."""

from typing import Final

from events.base import Event
from events.fleet import NodeClockJudged
from projections.cluster.clocks import changed
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick

DECIDED_MAX: Final = 200  # in one round: a control plane whose own clock is wrong finds all of them so


def decide(cluster: Cluster, tick: Tick) -> list[Event]:
    """How far ahead the clocks of nodes are that were measured."""
    events: list[Event] = []
    for node_id, ahead_s in sorted(tick.skews.items()):
        node = cluster.nodes.get(node_id)
        if node is not None and not node.gone and changed(node.fitness.ahead_s, ahead_s):
            judged = NodeClockJudged(at=tick.at, node_id=node_id, node_epoch=node.epoch, ahead_s=round(ahead_s, 1))
            events.append(judged)
    return events[:DECIDED_MAX]
