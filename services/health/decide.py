"""Whether nodes are there and fit for use: silence, verdicts on GPUs, drains and maintenance."""

from events.base import Event
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.health import clocks, drains, silent, verdicts


def decide(cluster: Cluster, tick: Tick) -> list[Event]:
    """Health's part of a round. Of a node that is retired nothing is said any more: that was its last word."""
    deciders = (silent.decide, verdicts.decide, drains.decide, clocks.decide)
    return [event for decide_part in deciders for event in decide_part(cluster, tick)]
