"""For how long a node without contact goes on."""

import pytest

from agent.core.patience import beats_every_s, ended_by_s


@pytest.mark.parametrize(("patience_s", "ended_s"), [(3.0, 2.0), (30.0, 20.0), (90.0, 80.0), (900.0, 890.0)])
def test_all_has_ended_some_seconds_before_the_node_may_be_given_up(patience_s: float, ended_s: float) -> None:
    """A third of it, and no more than a heartbeat that was lost on the way."""
    assert ended_by_s(patience_s) == pytest.approx(ended_s)


@pytest.mark.parametrize(
    ("asked_s", "least_s", "every_s"), [(10.0, 90.0, 10.0), (10.0, 900.0, 10.0), (2.0, 90.0, 2.0), (10.0, 4.5, 0.5)]
)
def test_heartbeats_come_as_asked_or_as_often_as_the_least_patience_needs(
    asked_s: float, least_s: float, every_s: float
) -> None:
    """A few may be missed before the node is even suspect, which is at a third of it."""
    assert beats_every_s(asked_s, least_s) == every_s
