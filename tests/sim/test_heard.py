"""A silence that was none is noticed; one that was is not, nor one of another life, nor a beat that could not be looked at."""

from events.base import NodeEpoch, NodeId
from events.desired import Heartbeat
from events.fleet import NodeLost
from runtime.clock import SystemClock
from tests.sim.heard import Heard

NODE = NodeId("n1")


def test_who_beat_while_a_plane_slept_is_not_silent() -> None:
    """A beat six seconds ago, and the plane says that there was none for twelve."""
    now = 100.0
    heard = Heard(lambda: now)
    heard.beat("plane-0", Heartbeat(node_id=NODE, epoch=NodeEpoch(5), instance="i"))
    now = 106.0

    def said(plane: str, epoch: int, silent_s: float) -> int:
        lost = NodeLost(at=SystemClock().now(), node_id=NODE, node_epoch=NodeEpoch(epoch), silent_s=silent_s)
        return len(list(heard.against(plane, [lost])))

    assert said("plane-0", 5, 12.0) == 1
    assert (said("plane-0", 5, 6.0), said("plane-0", 6, 12.0), said("plane-1", 5, 12.0)) == (0, 0, 0)
    now = 102.0
    assert said("plane-0", 5, 12.0) == 0
