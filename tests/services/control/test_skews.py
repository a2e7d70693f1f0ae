"""How far clocks are off, by beats that take their time."""

from events.base import NodeEpoch, NodeId
from events.fleet import NodeClockJudged
from services.control.skews import BEATS, Skews
from tests.clusters import World

N1, GHOST = NodeId("n1"), NodeId("ghost")


def beats(world: World, skews: Skews, *ahead_s: float, node_id: NodeId = N1) -> None:
    """The node beats, and its clock seems to be so far ahead of ours."""
    for one in ahead_s:
        skews.heard(node_id, world.cluster.nodes[N1].epoch, one)


def test_a_clock_is_measured_by_the_beat_that_came_the_quickest() -> None:
    """One that was held up for seconds by a busy control plane makes no clock slow."""
    world, skews = World({"n1": 8}), Skews()
    beats(world, skews, 4.98, -3.0, 4.99, 4.5)
    assert skews.taken(world.cluster) == {N1: 4.99}
    assert skews.taken(world.cluster) == {}


def test_fewer_beats_measure_nothing() -> None:
    """Each time anew."""
    world, skews = World({"n1": 8}), Skews()
    for _ in range(2):
        beats(world, skews, *[9.0] * (BEATS - 1))
        assert skews.taken(world.cluster) == {}
        beats(world, skews, 9.0)
        assert skews.taken(world.cluster) == {N1: 9.0}


def test_only_what_would_be_told_is_taken() -> None:
    """Not what was told before, and not of lives and nodes that the log does not know."""
    world, skews = World({"n1": 8}), Skews()
    beats(world, skews, *[0.5] * BEATS)
    beats(world, skews, *[9.0] * BEATS, node_id=GHOST)
    assert skews.taken(world.cluster) == {}

    epoch = world.cluster.nodes[N1].epoch
    world.add(NodeClockJudged(at=world.at, node_id=N1, node_epoch=epoch, ahead_s=9.0))
    beats(world, skews, *[9.2] * BEATS)
    assert skews.taken(world.cluster) == {}

    beats(world, skews, *[60.0] * BEATS)
    world.join("n1", 8)
    assert skews.taken(world.cluster) == {}
    skews.heard(N1, NodeEpoch(epoch), 60.0)
    beats(world, skews, *[0.0] * BEATS)
    assert skews.taken(world.cluster) == {N1: 0.0}  # the machine is the same one, and its clock was set
