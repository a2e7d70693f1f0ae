"""How drains and planned maintenance change the cluster: whoever began a drain, a node has one, and the gravest rules it."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from events.base import Recorded
from events.fleet import DrainCause, NodeDrainBegun, NodeDrained, NodeDrainEnded, NodeRetired
from events.operator import MaintenanceCancelled, MaintenancePlanned, NodeDrainAsked, NodeUndrainAsked
from projections.cluster.fitness import Drain, Fitness, Window
from projections.cluster.index import node_of, put_node
from projections.cluster.node import Node
from projections.cluster.state import Cluster

WINDOWS_MAX: Final = 64  # of one node: of more, those that begin first


def _change(cluster: Cluster, node: Node | None, **changes: Any) -> None:
    """A node that is retired stays as it is."""
    if node is not None and not node.fitness.retired:
        put_node(cluster, node.being(replace(node.fitness, **changes)))


def _drain_asked(cluster: Cluster, e: NodeDrainAsked, recorded: Recorded) -> None:
    """An operator's word replaces whatever drain there was; maintenance that has begun still has its deadline."""
    node = cluster.nodes.get(e.node_id)
    if node is not None:
        asked = Drain(e.cause, recorded.at, e.reason, e.deadline)
        _change(cluster, node, drain=_over(node.fitness.drain, asked))


def _drain_begun(cluster: Cluster, e: NodeDrainBegun, recorded: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is None:
        return
    unkillable = () if e.cause is DrainCause.UNKILLABLE else node.fitness.unkillable
    before, begun = node.fitness.drain, Drain(e.cause, recorded.at, e.reason, e.deadline, e.window)
    if before is not None and e.cause is DrainCause.MAINTENANCE:
        drain = replace(before, window=e.window, deadline=_earliest(before.deadline, e.deadline))
    elif before is None or before.cause is DrainCause.MAINTENANCE:
        drain = _over(before, begun)
    else:
        drain = before
    _change(cluster, node, drain=drain, unkillable=unkillable)


def _over(before: Drain | None, drain: Drain) -> Drain:
    """The drain in place of the one before: maintenance that has begun goes on under it, and the node is as empty as it was."""
    if before is None:
        return drain
    deadline = _earliest(drain.deadline, before.deadline) if before.window else drain.deadline
    return replace(drain, window=before.window, deadline=deadline, done=before.done)


def _earliest(*deadlines: datetime | None) -> datetime | None:
    return min((deadline for deadline in deadlines if deadline is not None), default=None)


def _drained(cluster: Cluster, e: NodeDrained, _: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is not None and node.fitness.drain is not None:
        _change(cluster, node, drain=replace(node.fitness.drain, done=True))


def _drain_ended(cluster: Cluster, e: NodeDrainEnded, _: Recorded) -> None:
    node = cluster.nodes.get(e.node_id)
    if node is None:
        return
    if e.window:
        _without(cluster, node, e.window)
    elif node.fitness.drain is not None and node.fitness.drain.cause is e.cause:
        _change(cluster, node, drain=None)


def _without(cluster: Cluster, node: Node, window: str, planned: Iterable[Window] = ()) -> None:
    """The window is no more, or `planned` anew: what it had begun ends with it. No other drain does."""
    kept = [one for one in node.fitness.windows if one.name != window]
    windows = sorted([*kept, *planned], key=lambda one: (one.starts, one.name))[:WINDOWS_MAX]
    _change(cluster, node, drain=_beside(node.fitness, window), windows=tuple(windows))


def _beside(fitness: Fitness, window: str) -> Drain | None:
    """What drains a node beside some maintenance."""
    drain = fitness.drain
    if drain is None or drain.window != window:
        return drain
    return None if drain.cause is DrainCause.MAINTENANCE else replace(drain, window="")


def _undrain_asked(cluster: Cluster, e: NodeUndrainAsked, recorded: Recorded) -> None:
    """Nothing drains the node any more: neither maintenance that has begun, nor what health knew of it by then."""
    node = cluster.nodes.get(e.node_id)
    if node is None:
        return
    fitness = node.fitness
    begun = fitness.drain.window if fitness.drain is not None else ""
    windows = tuple(window for window in fitness.windows if window.name != begun)
    ailments = {uuid: replace(one, whole_node=False) for uuid, one in fitness.ailments.items()}  # the GPU stays out
    _change(cluster, node, drain=None, windows=windows, ailments=ailments, unkillable=(), undrained_at=recorded.at)


def _retired(cluster: Cluster, e: NodeRetired, _: Recorded) -> None:
    _change(cluster, node_of(cluster, e.node_id, e.node_epoch), retired=True, windows=())


def _planned(cluster: Cluster, e: MaintenancePlanned, _: Recorded) -> None:
    node = cluster.nodes.get(e.node_id)
    if node is not None:
        _without(cluster, node, e.window, [Window(e.window, e.starts, e.ends, e.reason)])


def _cancelled(cluster: Cluster, e: MaintenanceCancelled, _: Recorded) -> None:
    node = cluster.nodes.get(e.node_id)
    if node is not None:
        _without(cluster, node, e.window)


DRAIN_CHANGES: Final[dict[type, Callable[[Cluster, Any, Recorded], None]]] = {
    NodeDrainAsked: _drain_asked,
    NodeDrainBegun: _drain_begun,
    NodeDrained: _drained,
    NodeDrainEnded: _drain_ended,
    NodeUndrainAsked: _undrain_asked,
    NodeRetired: _retired,
    MaintenancePlanned: _planned,
    MaintenanceCancelled: _cancelled,
}
