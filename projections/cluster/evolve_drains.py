"""How drains and planned maintenance change the cluster: by the rules that the tables follow too."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, get_args

from msgspec.structs import replace

from events.base import Recorded
from events.fleet import DrainCause, FleetEvent, NodeDrainBegun, NodeRetired
from events.node import NodeJoined
from events.operator import NodeUndrainAsked, OperatorEvent
from projections.cluster.drain_rules import Drains, DrainWord, after
from projections.cluster.fitness import Fitness
from projections.cluster.index import node_of, put_node, put_run
from projections.cluster.node import Node
from projections.cluster.state import Cluster


def drained(fitness: Fitness, word: DrainWord, at: datetime) -> Fitness:
    """What keeps a node from use once this is said; as it was, where that is the same."""
    before = Drains(fitness.drain, fitness.windows, fitness.retired)
    if (now := after(before, word, at)) == before:
        return fitness
    return replace(fitness, drain=now.drain, windows=now.windows, retired=now.retired)


def _said(cluster: Cluster, e: FleetEvent | OperatorEvent, recorded: Recorded) -> None:
    """A judgement is on one life of the node, an operator's word on all."""
    known = node_of(cluster, e.node_id, e.node_epoch) if isinstance(e, FleetEvent) else cluster.nodes.get(e.node_id)
    if known is None or known.fitness.retired:
        return
    fitness = drained(known.fitness, e, recorded.at)  # type: ignore[arg-type]  # by the table below
    match e:
        case NodeDrainBegun(cause=DrainCause.UNKILLABLE):
            fitness = replace(fitness, unkillable=())
        case NodeUndrainAsked():  # what health knew of the node by then drains it no more: GPUs that are out stay so
            ailments = {uuid: replace(one, whole_node=False) for uuid, one in fitness.ailments.items()}
            fitness = replace(fitness, ailments=ailments, unkillable=(), undrained_at=recorded.at)
        case _:
            pass
    put_node(cluster, known.being(fitness))
    if isinstance(e, NodeRetired):
        _give_up(cluster, known)


def _give_up(cluster: Cluster, node: Node) -> None:
    """A machine that is gone for good is never found clean: what waits for that goes on, by the word of who retired it."""
    for run_id in node.owed.keys() & cluster.runs.keys():
        run = cluster.runs[run_id]
        put_run(cluster, replace(run, clean=run.clean | run.bit(node.node_id)))


DRAIN_CHANGES: Final[dict[type, Callable[[Cluster, Any, Recorded], None]]] = {
    word: _said for word in get_args(DrainWord) if word is not NodeJoined
}
