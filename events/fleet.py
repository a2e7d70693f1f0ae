"""The fleet family (`fleet.<node>`): what health says of a node."""

from typing import ClassVar

from events.base import FLEET, Event, Family, NodeEpoch, NodeId


class FleetEvent(Event, kw_only=True, frozen=True):
    """A judgement on one life of a node. Written by the control plane."""

    family: ClassVar[Family] = FLEET

    node_id: NodeId
    node_epoch: NodeEpoch  # the life that is judged; in a later one this says nothing


class NodeSuspected(FleetEvent, kw_only=True, frozen=True, tag="musterbook.node.suspected.v1"):
    """The node has been silent: nothing new is placed there, what runs goes on."""

    silent_s: float


class NodeRecovered(FleetEvent, kw_only=True, frozen=True, tag="musterbook.node.recovered.v1"):
    """A suspect node was heard again."""


class NodeLost(FleetEvent, kw_only=True, frozen=True, tag="musterbook.node.lost.v1"):
    """The node is gone: its runs end, and its GPUs are out of the pool until a new epoch finds them clean."""

    silent_s: float
