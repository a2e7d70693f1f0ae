"""The operator family (`operator.<node>`): what operators say of a node, whatever life it is in."""

from typing import ClassVar

from events.base import OPERATOR, Event, Family, NodeId


class OperatorEvent(Event, kw_only=True, frozen=True):
    """An operator's word on a node. Written by the gate; holds in all its lives."""

    family: ClassVar[Family] = OPERATOR

    node_id: NodeId
    reason: str = ""


class NodeCordoned(OperatorEvent, kw_only=True, frozen=True, tag="musterbook.node.cordoned.v1"):
    """Nothing new is placed on the node; what runs there goes on."""


class NodeUncordoned(OperatorEvent, kw_only=True, frozen=True, tag="musterbook.node.uncordoned.v1"):
    """The node takes new work again."""
