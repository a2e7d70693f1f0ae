"""The operator family (`operator.<node>`): what operators say of a node, whatever life it is in."""

from typing import ClassVar

from events.base import OPERATOR, Event, Family, GpuUuid, Moment, NodeId
from events.fleet import DrainCause


class OperatorEvent(Event, kw_only=True, frozen=True):
    """An operator's word on a node. Written by the gate; holds in all its lives."""

    family: ClassVar[Family] = OPERATOR

    node_id: NodeId
    reason: str = ""


class NodeCordoned(OperatorEvent, kw_only=True, frozen=True, tag="musterbook.node.cordoned.v1"):
    """Nothing new is placed on the node; what runs there goes on."""


class NodeUncordoned(OperatorEvent, kw_only=True, frozen=True, tag="musterbook.node.uncordoned.v1"):
    """The node takes new work again."""


class NodeDrainAsked(OperatorEvent, kw_only=True, frozen=True, tag="musterbook.node.drain_asked.v1"):
    """Nothing new is placed on the node; what runs there may finish until the deadline, then it is stopped and moved."""

    deadline: Moment | None = None  # None: what runs there may take its time
    cause: DrainCause = DrainCause.OPERATOR  # or `UPGRADE`, or `RETIRE`


class NodeUndrainAsked(OperatorEvent, kw_only=True, frozen=True, tag="musterbook.node.undrain_asked.v1"):
    """No drain of the node holds any more, whoever began it, and it is not to be retired."""


class MaintenancePlanned(OperatorEvent, kw_only=True, frozen=True, tag="musterbook.node.maintenance_planned.v1"):
    """The node is to be empty from `starts` to `ends`. The same window again replaces what was planned under its name."""

    window: str  # its name, of this node
    starts: Moment
    ends: Moment  # later


class MaintenanceCancelled(OperatorEvent, kw_only=True, frozen=True, tag="musterbook.node.maintenance_cancelled.v1"):
    """The window is not needed, or over already."""

    window: str


class GpuReturnAsked(OperatorEvent, kw_only=True, frozen=True, tag="musterbook.node.gpu_return_asked.v1"):
    """The GPU is sound, an operator says: it may be used again."""

    gpu_uuid: GpuUuid
