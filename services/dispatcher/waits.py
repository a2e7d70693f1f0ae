"""When a node is told anew how long it is waited for: a checkpoint makes a restart cheaper, a policy sets other bounds."""

from collections.abc import Iterator
from typing import Final

from events.base import NodeId, Recorded
from events.desired import Waiting
from events.node import CheckpointSaved
from events.policy import PolicySet
from projections.cluster.state import Cluster

ALIKE: Final = 0.25  # a wait that is off by no more is not worth a write, however often a job saves


def waited_for(cluster: Cluster, recorded: Recorded) -> Iterator[NodeId]:
    """The nodes that may be waited for otherwise since this record, which `cluster` has folded, and not told yet."""
    match recorded.event:
        case CheckpointSaved() as e if e.run_id in cluster.runs:
            yield from (share.node_id for share in cluster.runs[e.run_id].shares)
        case PolicySet():
            yield from cluster.nodes
        case _:
            pass  # what places, stops or releases is told with what it changes


def alike(told: Waiting | None, now: Waiting | None) -> bool:
    """Whether a node that was told the one waits about as long as the other says; bounds are the same or not."""
    if told is None or now is None:
        return told is now
    if (told.least_s, told.most_s) != (now.least_s, now.most_s):
        return False
    before_s = told.after((now.at - told.at).total_seconds())
    now_s = now.after(0.0)
    return abs(before_s - now_s) <= ALIKE * max(before_s, now_s)
