"""What is set aside for a preemptor: nobody else gets it, and it is placed, or given up, as a whole."""

from events.base import JobId, NodeId
from events.fleet import NodeLost
from events.job import EarmarkCause, EarmarkDropped, HoldCode, JobPlaced, Priority
from tests.clusters import World, names


def preempting() -> World:
    """Two nodes are in use by two low jobs; an urgent gang has both set aside for it."""
    world = World({"n1": 8, "n2": 8})
    world.policy(min_runtime_s=0)
    for name in ("a", "b"):
        world.submit(name, 8, priority=Priority.LOW)
    world.rounds()
    for name in ("a", "b"):
        world.start(JobId(name))
    world.rounds()
    world.wait(60)
    world.submit("gang", 16, priority=Priority.URGENT)
    world.rounds()
    assert world.cluster.earmarks[JobId("gang")].victims == ("a-1", "b-1")
    return world


def test_what_comes_free_first_waits_for_the_rest() -> None:
    """A victim that ends early leaves no hole for others to fill; when the last has ended, the gang has its set."""
    world = preempting()
    world.submit("small", 1, priority=Priority.URGENT)
    world.end(JobId("a"))
    world.release(JobId("a"))
    decided = world.rounds()
    assert "JobPlaced" not in names(decided)
    assert world.cluster.jobs[JobId("gang")].hold is HoldCode.WAITS_FOR_PREEMPTED

    world.end(JobId("b"))
    world.release(JobId("b"))
    placed = [event.job_id for event in world.rounds() if isinstance(event, JobPlaced)]
    assert placed[0] == "gang"
    assert not world.cluster.earmarks
    world.assert_sound()


def test_a_lost_node_gives_up_all_of_it() -> None:
    """And the gang is tried anew, with what there is."""
    world = preempting()
    epoch = world.cluster.nodes[NodeId("n2")].epoch
    world.add(NodeLost(at=world.at, node_id=NodeId("n2"), node_epoch=epoch, silent_s=100))
    dropped = [event for event in world.rounds() if isinstance(event, EarmarkDropped)]

    assert [event.cause for event in dropped] == [EarmarkCause.NODE]
    assert not world.cluster.earmarks
    assert not any(node.marked for node in world.cluster.nodes.values())


def test_a_node_that_is_only_silent_keeps_it() -> None:
    """Who was stopped for it would have been stopped for nothing; nothing is placed there meanwhile."""
    world = preempting()
    for name in ("a", "b"):
        world.end(JobId(name))
        world.release(JobId(name))
    silent = dict.fromkeys(world.cluster.nodes, 40.0)
    world.round(silent)
    assert JobId("gang") in world.cluster.earmarks

    world.rounds()
    assert world.placed["gang"] == [("n1", 8), ("n2", 8)]


def test_a_cancelled_preemptor_keeps_nothing() -> None:
    """Its victims end all the same, and what they had is anyone's."""
    world = preempting()
    world.cancel(JobId("gang"))
    world.rounds()

    assert not world.cluster.earmarks
    assert not any(node.marked for node in world.cluster.nodes.values())
