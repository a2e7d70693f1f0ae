"""Drains: when a node that is drained is empty, when maintenance begins and ends, and when a node is retired."""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from events.base import Event
from events.fleet import DrainCause, NodeDrainBegun, NodeDrained, NodeDrainEnded, NodeRetired
from projections.cluster.fitness import LEAD
from projections.cluster.node import Node
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick

DECIDED_MAX: Final = 1_000  # nodes in one round; the rest is the next round's


def decide(cluster: Cluster, tick: Tick) -> list[Event]:
    """What is to be said of drains: of nodes that emptied, and of those whose planned time has come.

    Nodes that are drained and empty, and windows that are far, are not looked at.
    """
    timely = cluster.windows.until(None, tick.at)  # of which a window is near, or over
    asking = sorted({*cluster.cases, *islice(timely, DECIDED_MAX)})
    said = (list(_said(cluster.nodes[node_id], tick)) for node_id in asking)
    return list(chain.from_iterable(islice(filter(None, said), DECIDED_MAX)))


def _said(node: Node, tick: Tick) -> Iterator[Event]:
    fitness = node.fitness
    over = [window for window in fitness.windows if window.ends <= tick.at]
    for window in over:
        yield NodeDrainEnded(
            at=tick.at,
            node_id=node.node_id,
            node_epoch=node.epoch,
            cause=DrainCause.MAINTENANCE,
            window=window.name,
        )
    near = (window for window in fitness.windows if window not in over and window.starts - LEAD <= tick.at)
    drain, due = fitness.drain, next(near, None)
    if due is not None and (drain is None or drain.window != due.name):
        yield NodeDrainBegun(
            at=tick.at,
            node_id=node.node_id,
            node_epoch=node.epoch,
            cause=DrainCause.MAINTENANCE,
            reason=due.reason,
            deadline=due.starts,
            window=due.name,
        )
    elif drain is not None and not any(drain.window == window.name for window in over):
        yield from _emptied(node, tick)


def _emptied(node: Node, tick: Tick) -> Iterator[Event]:
    """That nothing holds a drained node any more, said once of each of its lives; for good, where it is retired."""
    drain = node.fitness.drain
    assert drain is not None
    if not drain.done and not node.empty:
        return
    if not drain.done:
        took = tick.at - drain.since
        yield NodeDrained(
            at=tick.at, node_id=node.node_id, node_epoch=node.epoch, drain_s=max(0, int(took.total_seconds()))
        )
    if drain.cause is DrainCause.RETIRE:
        yield NodeRetired(at=tick.at, node_id=node.node_id, node_epoch=node.epoch)
