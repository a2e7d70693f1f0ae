"""Silence makes a node suspect, then lost; a beat makes it well again, if it was not lost."""

from msgspec.structs import replace

from events.base import NodeId
from events.fleet import DrainCause
from events.operator import NodeDrainAsked
from events.policy import PolicySet
from services.health.decide import decide
from tests.clusters import World, names
from tests.services.health.ward import Ward

N1 = NodeId("n1")


def test_silence_makes_suspect_then_lost() -> None:
    """By the policy in the log, each said once."""
    world = World({"n1": 8, "n2": 8})

    assert world.round({N1: 29.9}) == []
    assert names(world.round({N1: 30.0})) == ["NodeSuspected"]
    assert world.round({N1: 60.0}) == []
    assert names(world.round({N1: 90.0})) == ["NodeLost"]
    assert world.round({N1: 120.0}) == []
    world.assert_sound()


def test_a_suspect_that_is_heard_recovers() -> None:
    """And takes new work again."""
    world = World({"n1": 8})
    world.round({N1: 30.0})

    assert names(world.round()) == ["NodeRecovered"]
    assert world.free == 8


def test_the_policy_in_the_log_is_obeyed() -> None:
    """Replaced whole by the next."""
    world = World({"n1": 8})
    world.add(PolicySet(at=world.at, suspect_after_s=1.0, lost_after_s=3.0))

    assert names(world.round({N1: 3.0})) == ["NodeLost"]


def test_a_node_that_is_not_known_is_not_judged() -> None:
    """A beat of something that never joined."""
    assert World().round({N1: 1_000.0}) == []


def test_a_retired_node_has_had_its_last_word() -> None:
    """Its silence, its clock and its GPUs say nothing, whatever still runs there."""
    world = Ward({"n1": 8})
    world.add(NodeDrainAsked(at=world.at, node_id=N1, reason="old", cause=DrainCause.RETIRE))
    assert names(world.rounds()) == ["NodeDrained", "NodeRetired"]
    world.signal(79)

    for silent in ({N1: 30.0}, {N1: 10_000.0}):
        assert decide(world.cluster, replace(world.tick(silent), skews={N1: 99.0})) == []
