"""What a drain asks of the runs on its node: by when each is to be told, so that it is gone when it has to be."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from events.base import RunId
from projections.cluster.fitness import LEAD, Drain
from projections.cluster.job import grace
from projections.cluster.node import Node
from projections.cluster.state import Cluster

NONE: Final = timedelta()


def due(cluster: Cluster, at: datetime) -> Iterator[RunId]:
    """The runs that a drain wants told to stop by now, of the nodes whose deadline is nearest first."""
    for node_id in cluster.deadlines.until(None, at + LEAD):
        node = cluster.nodes[node_id]
        drain = node.fitness.drain
        assert drain is not None
        for run_id in sorted(node.held):
            run = cluster.runs[run_id]
            if run.stopping is None and _told_at(cluster, node, drain, run_id) <= at:
                yield run_id


def _told_at(cluster: Cluster, node: Node, drain: Drain, run_id: RunId) -> datetime:
    """At the deadline a run is told. Maintenance finds the node empty: a run has its graces before that, within the lead."""
    assert drain.deadline is not None
    begun = any(window.name == drain.window and window.starts == drain.deadline for window in node.fitness.windows)
    graces = min(grace(cluster.jobs[cluster.runs[run_id].job_id].spec), LEAD) if begun else NONE
    return drain.deadline - graces
