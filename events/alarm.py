"""The alarms (`alarms`, one literal subject): what needs a person. Raised once, cleared when it is over."""

from enum import StrEnum
from typing import ClassVar

from events.base import ALARMS, Count, Event, Family, NodeId


class AlarmCode(StrEnum):
    """What is wrong. Stable: programs compare them."""

    NETWORK_SUSPECTED = (
        "network_suspected"  # so many nodes are silent at once that the way to them is doubted: none is given up
    )
    BREAKER = "breaker"  # so much was drained by itself that no more will be


class AlarmEvent(Event, kw_only=True, frozen=True):
    """About what needs a person. Written by the control plane."""

    family: ClassVar[Family] = ALARMS

    code: AlarmCode


class AlarmRaised(AlarmEvent, kw_only=True, frozen=True, tag="musterbook.alarm.raised.v1"):
    """A person is needed."""

    message: str  # one sentence with the numbers
    hint: str = ""  # what to do
    node_ids: tuple[NodeId, ...] = ()  # that it is about; the first few
    count: Count = 0  # of all of them


class AlarmCleared(AlarmEvent, kw_only=True, frozen=True, tag="musterbook.alarm.cleared.v1"):
    """It is over."""
