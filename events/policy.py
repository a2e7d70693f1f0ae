"""The policy family (`policy`, one literal subject): what the control plane obeys, each event the whole document."""

from typing import ClassVar

from events.base import POLICY, Event, Family, Seconds


class PolicySet(Event, kw_only=True, frozen=True, tag="musterbook.policy.set.v1"):
    """From here on the control plane decides by this policy. Replaces the one before, whole."""

    family: ClassVar[Family] = POLICY

    suspect_after_s: Seconds = 30.0  # silence after which nothing new is placed on a node
    lost_after_s: Seconds = 90.0  # silence after which a node is declared lost; more than suspect_after_s
