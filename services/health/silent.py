"""Whether a node's agent is there: suspect, recovered, lost. Judged by silence, which only the tick knows."""

from datetime import timedelta
from typing import Final

from events.alarm import AlarmCleared, AlarmCode, AlarmRaised
from events.base import Event
from events.fleet import NodeLost, NodeRecovered, NodeSuspected, Patience
from projections.cluster.evolve_health import ABOUT_MAX
from projections.cluster.node import Node, NodeState
from projections.cluster.patience import bounded, costs, may_restart
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick

DECIDED_MAX: Final = 1_000  # nodes in one round; the rest is the next round's
SILENT_MIN: Final = 3  # fewer at once say nothing about the network
HINT: Final = (
    "Look for what they have in common: a switch, a rack, a firewall. If they are gone for good, retire them, or raise "
    "silent_percent by `muster policy set` until they are given up."
)


def decide(cluster: Cluster, tick: Tick) -> list[Event]:
    """What silence says of nodes; and, of very many at once, of the network."""
    events = _of_the_network(cluster, tick)
    held = bool(events) or AlarmCode.NETWORK_SUSPECTED in cluster.alarms
    for node_id in sorted(tick.silent.keys() | cluster.suspects.keys()):
        node = cluster.nodes.get(node_id)
        if node is None or node.gone:
            continue
        silent_s = tick.silent.get(node_id, 0.0)
        if silent_s >= cluster.policy.lost_after_s and not held and (lost := _lost(cluster, tick, node)):
            events.append(lost)
        elif silent_s >= cluster.policy.suspect_after_s:
            if node.state is NodeState.UP:
                events.append(NodeSuspected(at=tick.at, node_id=node_id, node_epoch=node.epoch, silent_s=silent_s))
        elif node.state is NodeState.SUSPECT:
            events.append(NodeRecovered(at=tick.at, node_id=node_id, node_epoch=node.epoch))
    return events[:DECIDED_MAX]


def _lost(cluster: Cluster, tick: Tick, node: Node) -> NodeLost | None:
    """The node is given up, if it was waited for as long as it pays, and as its agent said that its ranks may live."""
    silent_s = tick.silent[node.node_id]
    promised_s = tick.promised.get(node.node_id, 0.0)
    if silent_s < promised_s and may_restart(cluster, node):
        return None
    heard = node.silent_since or tick.at - timedelta(seconds=silent_s)
    cost = costs(cluster, node, heard)
    patience_s, patience = bounded(cost.even_s, cluster.policy)
    if silent_s < patience_s:
        return None
    if promised_s > patience_s and may_restart(cluster, node):
        patience_s, patience = promised_s, Patience.PROMISED
    return NodeLost(
        at=tick.at,
        node_id=node.node_id,
        node_epoch=node.epoch,
        silent_s=silent_s,
        patience=patience,
        patience_s=patience_s,
        waiting_gpu_s=round(cost.gpus * silent_s, 3),
        restart_gpu_s=cost.restart_gpu_s,
    )


# The network


def _of_the_network(cluster: Cluster, tick: Tick) -> list[Event]:
    """An alarm begins or ends. While it lasts, and in the round that ends it, nobody is given up."""
    raised, percent = AlarmCode.NETWORK_SUSPECTED in cluster.alarms, cluster.policy.silent_percent
    nodes, enough_s = cluster.nodes, cluster.policy.suspect_after_s
    silent = sorted(
        n for n, silent_s in tick.silent.items() if silent_s >= enough_s and n in nodes and _counts(nodes[n])
    )
    if not raised and len(silent) < SILENT_MIN:
        return []
    counted = sum(map(_counts, nodes.values()))
    suspected = len(silent) >= SILENT_MIN and percent > 0 and len(silent) * 100 > percent * counted
    if suspected == raised:
        return []
    if raised:
        return [AlarmCleared(at=tick.at, code=AlarmCode.NETWORK_SUSPECTED)]
    return [
        AlarmRaised(
            at=tick.at,
            code=AlarmCode.NETWORK_SUSPECTED,
            message=f"{len(silent)} of {counted} nodes are silent at once: none of them is given up.",
            hint=HINT,
            node_ids=tuple(silent[:ABOUT_MAX]),
            count=len(silent),
        )
    ]


def _counts(node: Node) -> bool:
    """Whether the node's silence says something: one that was given up, or emptied on purpose, may well be switched off."""
    drain = node.fitness.drain
    return not node.gone and not (drain is not None and drain.done)
