"""How words on drains change the cluster: the node as it is looked up, and what health knew of it."""

from typing import Any, get_args

from msgspec.structs import replace

from events.base import NodeEpoch, NodeId
from events.fleet import DrainCause, NodeDrainBegun, NodeDrained, NodeRetired
from events.node import NodeJoined, RanksUnkillable
from events.operator import NodeDrainAsked, NodeUndrainAsked
from projections.cluster.drain_rules import DrainWord
from projections.cluster.evolve_drains import DRAIN_CHANGES
from projections.cluster.fitness import Fitness
from projections.cluster.node import NodeState
from tests.clusters import World

N1 = NodeId("n1")


def fitness(world: World) -> Fitness:
    """Of the node."""
    return world.cluster.nodes[N1].fitness


def test_every_word_is_heard() -> None:
    """But for a joining, which is told to the rest of the fold too."""
    assert DRAIN_CHANGES.keys() == set(get_args(DrainWord)) - {NodeJoined}


def test_a_drained_node_is_no_room_for_anything_until_it_is_undrained() -> None:
    """It is in no pool, and counts as closed."""
    world = World({"n1": 8})
    assert [pool.free for pool in world.cluster.pools.groups()] == [8]
    world.add(NodeDrainAsked(at=world.at, node_id=N1, reason="fan"))
    assert world.cluster.pools.groups() == []
    assert [kind.closed for kind in world.cluster.sizes] == [True]
    world.add(NodeUndrainAsked(at=world.at, node_id=N1))
    assert [pool.free for pool in world.cluster.pools.groups()] == [8]


def test_what_is_said_of_another_life_changes_nothing() -> None:
    """A judgement is on one life; an operator's word on all."""
    world = World({"n1": 8})
    old = NodeEpoch(world.cluster.nodes[N1].epoch)
    world.join("n1", 8)
    before = fitness(world)
    world.add(NodeDrainBegun(at=world.at, node_id=N1, node_epoch=old, cause=DrainCause.LEMON))
    world.add(NodeDrained(at=world.at, node_id=N1, node_epoch=old))
    world.add(NodeRetired(at=world.at, node_id=N1, node_epoch=old))
    world.add(NodeUndrainAsked(at=world.at, node_id=NodeId("nobody")))
    assert fitness(world) == before


def test_processes_that_outlive_kill_are_asked_about_once() -> None:
    """The drain for them says what follows; an undrain that nothing does."""
    for word in ("drain", "undrain"):
        world = World({"n1": 8})
        world.submit("a", 8)
        world.rounds()
        node = world.cluster.nodes[N1]
        (run_id,) = node.held
        world.add(RanksUnkillable(at=world.at, node_id=N1, node_epoch=node.epoch, run_id=run_id))
        assert fitness(world).unkillable == (run_id,)
        if word == "drain":
            of: dict[str, Any] = {"at": world.at, "node_id": N1, "node_epoch": node.epoch}
            world.add(NodeDrainBegun(**of, cause=DrainCause.UNKILLABLE))
        else:
            world.add(NodeUndrainAsked(at=world.at, node_id=N1))
        assert fitness(world).unkillable == ()


def test_a_retired_node_counts_no_more() -> None:
    """Neither in what the cluster could hold, nor in what it has."""
    world = World({"n1": 8, "n2": 4})
    node = world.cluster.nodes[N1]
    world.add(NodeDrainAsked(at=world.at, node_id=N1, reason="old", cause=DrainCause.RETIRE))
    world.add(NodeRetired(at=world.at, node_id=N1, node_epoch=node.epoch))
    assert [kind.size for kind in world.cluster.sizes] == [4]
    assert dict(world.cluster.capacity) == {"h100": 4}
    assert world.cluster.nodes[N1].asks is False


def test_what_was_not_found_clean_keeps_a_node_from_being_empty() -> None:
    """Of a lost one nothing is known, and nothing waited for; nor for GPUs that it has no more."""
    world = World({"n1": 8})
    world.submit("a", 8)
    world.rounds()
    held = world.cluster.nodes[N1]
    world.join("n1", 8, clean=False)
    owing = world.cluster.nodes[N1]
    assert (held.empty, owing.empty) == (False, False)
    assert replace(owing, state=NodeState.LOST).empty
    assert replace(owing, present=0).empty
    assert replace(owing, pool=owing.present).empty
