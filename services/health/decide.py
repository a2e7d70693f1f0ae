"""Whether nodes are there and fit for use: silence, verdicts on GPUs, drains and maintenance."""

from events.base import Event
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.health import drains, silent


def decide(cluster: Cluster, tick: Tick) -> list[Event]:
    """Health's part of a round."""
    return [*silent.decide(cluster, tick), *drains.decide(cluster, tick)]
