"""The fleet family (`fleet.<node>`): what health says of a node."""

from enum import StrEnum
from typing import ClassVar

from events.base import FLEET, Count, Event, Family, Moment, NodeEpoch, NodeId


class DrainCause(StrEnum):
    """Why a node is drained."""

    OPERATOR = "operator"
    MAINTENANCE = "maintenance"  # a planned window begins
    RETIRE = "retire"  # for good
    UPGRADE = "upgrade"  # its agent is replaced
    GPU = "gpu"  # what a GPU of it showed concerns the whole node
    UNKILLABLE = "unkillable"  # processes there outlive KILL
    LEMON = "lemon"  # it has failed too often


AUTOMATIC = frozenset({DrainCause.GPU, DrainCause.UNKILLABLE, DrainCause.LEMON})  # which the breaker counts


class Patience(StrEnum):
    """What ended the wait for a silent node."""

    LEAST = "least"  # the least that the policy waits: a restart costs less than that
    COST = "cost"  # waiting any longer costs more than a restart
    MOST = "most"  # the most that the policy waits
    PROMISED = "promised"  # its agent had said that it would go on for so long without contact


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
    patience: Patience = Patience.LEAST
    patience_s: float = 0.0  # how long it was waited for
    waiting_gpu_s: float = 0.0  # what the wait cost: GPUs of the gangs that it holds up, times seconds
    restart_gpu_s: float = 0.0  # what a restart costs: their GPUs times (seconds since the last checkpoint + start-up)


class NodeClockJudged(FleetEvent, kw_only=True, frozen=True, tag="musterbook.node.clock_judged.v1"):
    """How far the node's clock is from the control plane's, when that has changed much. Nothing is decided by it."""

    ahead_s: float  # less than 0: it is behind


class NodeDrainBegun(FleetEvent, kw_only=True, frozen=True, tag="musterbook.node.drain_begun.v1"):
    """The control plane drains the node: nothing new is placed there, what runs may finish until the deadline."""

    cause: DrainCause
    reason: str = ""
    deadline: Moment | None = None  # when what still runs is stopped and moved; None: never
    window: str = ""  # of the maintenance that begins


class NodeDrained(FleetEvent, kw_only=True, frozen=True, tag="musterbook.node.drained.v1"):
    """Nothing runs any more on a node that is drained."""

    drain_s: Count = 0  # how long it took


class NodeDrainEnded(FleetEvent, kw_only=True, frozen=True, tag="musterbook.node.drain_ended.v1"):
    """A drain of the control plane's own is over: the node takes new work again."""

    cause: DrainCause  # of the drain
    window: str = ""  # of the maintenance that is over


class NodeRetired(FleetEvent, kw_only=True, frozen=True, tag="musterbook.node.retired.v1"):
    """The node was drained for good: it counts no more, and may not join again under its name."""
