"""What is kept of a node's health, and when health has to look at it."""

from typing import Any

import pytest
from msgspec.structs import replace

from events.base import GpuUuid, Position, RunId
from events.fleet import DrainCause
from events.gpu import GpuAction, GpuSignal, Recovery
from projections.cluster.fitness import (
    FIT,
    GRAVITY,
    HISTORY_MAX,
    LEMON_FAULTS,
    OUT,
    Ailment,
    Drain,
    Fault,
    Pending,
    Remedy,
)
from tests.clusters import BEGIN

GPU = GpuUuid("n1-0")
OUT_OF_USE = Ailment(GpuAction.EVICT, GpuSignal.XID, 79, BEGIN, (Recovery.REBOOT,), "t", "xid 79")
FAULT = Fault(BEGIN, GPU, GpuSignal.XID, 79, GpuAction.EVICT)


def test_actions_are_ordered_by_gravity() -> None:
    """The graver of two verdicts holds, and a record alone is no fault."""
    assert sorted(GpuAction, key=GRAVITY.__getitem__) == list(GpuAction)
    assert GRAVITY[GpuAction.LOG] == 0
    assert min(GRAVITY[action] for action in OUT) > GRAVITY[GpuAction.RESTART]


@pytest.mark.parametrize(
    "said",
    [
        {"pending": (Pending(Position(1), BEGIN, GPU, GpuSignal.HOT, 99),)},
        {"remedies": (Remedy(GPU, Recovery.RESET),)},
        {"unkillable": (RunId("j-1"),)},
        {"ailments": {GPU: replace(OUT_OF_USE, whole_node=True)}},
        {"history": (FAULT,) * LEMON_FAULTS},
    ],
)
def test_health_looks_where_there_may_be_something_to_say(said: dict[str, Any]) -> None:
    """Each of these alone brings a node before the deciders."""
    assert replace(FIT, **said).asks


def test_health_need_not_look_at_a_node_of_which_all_is_said() -> None:
    """A GPU that is out waits for a remedy, not for a round."""
    assert not FIT.asks
    assert not replace(FIT, ailments={GPU: OUT_OF_USE}, history=(FAULT,)).asks


def test_health_need_not_look_at_what_makes_no_lemon_or_is_drained() -> None:
    """Faults that took no GPU out, however many; and a node that is to be empty anyway."""
    harmless = replace(FAULT, action=GpuAction.RESTART)
    assert not replace(FIT, history=(harmless,) * HISTORY_MAX + (FAULT,)).asks
    drained = replace(FIT, drain=Drain(DrainCause.OPERATOR, BEGIN), unkillable=(RunId("j-1"),))
    assert not replace(drained, history=(FAULT,) * LEMON_FAULTS).asks


def test_a_node_is_closed_by_a_drain_or_for_good() -> None:
    """A GPU that is out closes nothing."""
    assert not replace(FIT, ailments={GPU: OUT_OF_USE}).closed
    assert replace(FIT, drain=Drain(DrainCause.LEMON, BEGIN)).closed
    assert replace(FIT, retired=True).closed
