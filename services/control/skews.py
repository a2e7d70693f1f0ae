"""How far the clocks of nodes are from ours, by their heartbeats: measured for people, and for nothing that is decided."""

from typing import Final, NamedTuple

from events.base import NodeEpoch, NodeId
from projections.cluster.clocks import changed
from projections.cluster.state import Cluster

BEATS: Final = 4  # of one measurement: the way of a beat takes time, so the one that seems furthest ahead tells best


class Sample(NamedTuple):
    """What the beats of one life have shown since its last measurement."""

    epoch: NodeEpoch
    beats: int
    ahead_s: float


class Skews:
    """Keeps a measurement of each node until it is taken."""

    def __init__(self) -> None:
        self._samples: dict[NodeId, Sample] = {}
        self._measured: dict[NodeId, Sample] = {}

    def heard(self, node_id: NodeId, epoch: NodeEpoch, ahead_s: float) -> None:
        """A node beat, and its clock then seemed to be so far ahead of ours."""
        before = self._samples.get(node_id)
        if before is None or before.epoch != epoch:
            sample = Sample(epoch, 1, ahead_s)
        else:
            sample = Sample(epoch, before.beats + 1, max(before.ahead_s, ahead_s))
        if sample.beats >= BEATS:
            self._measured[node_id] = sample
            sample = Sample(epoch, 0, float("-inf"))
        self._samples[node_id] = sample

    def taken(self, cluster: Cluster) -> dict[NodeId, float]:
        """What was measured since this was asked last, of nodes whose clock is said to be elsewhere."""
        measured, self._measured = self._measured, {}
        return {
            node_id: sample.ahead_s
            for node_id, sample in measured.items()
            if (node := cluster.nodes.get(node_id)) is not None
            and node.epoch == sample.epoch
            and changed(node.fitness.ahead_s, sample.ahead_s)
        }
