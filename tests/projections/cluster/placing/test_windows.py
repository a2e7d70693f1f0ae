"""Classes of runs by the maintenance before their end, and the rooms that are left to them."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from events.base import NodeEpoch, NodeId, SlotMask
from events.job import JobSpec, NodeShare
from events.operator import MaintenancePlanned, NodeDrainAsked
from projections.cluster.job import Shape
from projections.cluster.placing.place import Misfit, Room, place
from projections.cluster.placing.windows import Windows
from tests.clusters import World

HOUR = timedelta(hours=1)


def plan(world: World, node: str, starts: timedelta, ends: timedelta) -> None:
    """Maintenance of a node."""
    at = world.at
    world.add(MaintenancePlanned(at=at, node_id=NodeId(node), window="w", starts=at + starts, ends=at + ends))


def share(world: World, node: str) -> NodeShare:
    """All of a node."""
    return NodeShare(NodeId(node), NodeEpoch(world.cluster.nodes[NodeId(node)].epoch), SlotMask(0xFF))


def test_each_class_is_closed_to_what_the_one_before_is_and_more() -> None:
    """A drained node is closed to all, and in no class."""
    world = World({"n1": 8, "n2": 8, "n3": 8, "n4": 8})
    plan(world, "n1", 3 * HOUR, 4 * HOUR)
    plan(world, "n2", 6 * HOUR, 7 * HOUR)
    plan(world, "n3", 3 * HOUR, 5 * HOUR)
    plan(world, "n4", 4 * HOUR, 5 * HOUR)
    world.add(NodeDrainAsked(at=world.at, node_id=NodeId("n4"), reason="fan"))
    windows, at = Windows(world.cluster), world.at

    classes = [windows.class_of(at + hours * HOUR) for hours in (1, 3, 4, 6, 7)]

    assert classes == [0, 0, 1, 1, 2]
    assert windows.class_of(None) == 0
    assert [windows.latest(class_) - at for class_ in (1, 2)] == [3 * HOUR, 6 * HOUR]
    left = [windows.without(Room(world.cluster), class_) for class_ in range(3)]
    assert [sum(room.free(node).bit_count() for node in world.cluster.nodes.values()) for room in left] == [24, 8, 0]
    assert isinstance(place(left[2], Shape(8)), Misfit)


def test_maintenance_is_in_the_way_only_while_it_is_on() -> None:
    """A start after it is not in its way, and what declares no end is moved when it comes."""
    world = World({"n1": 8, "n2": 8})
    plan(world, "n1", 3 * HOUR, 4 * HOUR)
    windows, at = Windows(world.cluster), world.at
    one, other = [share(world, "n1")], [share(world, "n2")]

    assert windows.spare(one, at, at + 3 * HOUR)
    assert not windows.spare(one, at, at + 3 * HOUR + timedelta(seconds=1))
    assert windows.spare(other, at, at + 9 * HOUR)
    assert windows.spare(one, at + 4 * HOUR, at + 9 * HOUR)
    assert windows.spare(one, at, None)
    spec = JobSpec(name="j", command=("true",), gpus=8, max_runtime_s=3 * 3_600, stop_grace_s=60)
    assert not windows.spares(one, spec, at)  # with its graces it ends a minute too late


def test_without_maintenance_nothing_is_looked_at() -> None:
    """Every node is open to everything."""
    world = World({"n1": 8})
    windows = Windows(world.cluster)
    room = Room(world.cluster)
    assert windows.class_of(world.at + 10_000 * HOUR) == 0
    assert windows.without(room, 0) is room
    assert "closed" not in vars(windows)


@given(st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)), st.lists(st.integers(1, 20), max_size=4))
def test_nodes_that_are_closed_are_reserved_all_at_once(taken: set[int], gone: set[int], sizes: list[int]) -> None:
    """Law: whatever was given away before, and is looked for then."""
    world = World({f"n{index}": 4 + 4 * (index % 2) for index in range(8)})
    nodes = [world.cluster.nodes[NodeId(f"n{index}")] for index in range(8)]
    room = Room(world.cluster)
    room.take(NodeShare(nodes[index].node_id, nodes[index].epoch, SlotMask(1)) for index in sorted(taken))
    closed = [NodeShare(nodes[i].node_id, nodes[i].epoch, SlotMask(nodes[i].pool)) for i in sorted(gone)]
    one, other = room.fork(), room.fork()
    one.reserve(closed)
    other.close(closed)

    for looked_in in (one, other):
        looked_in.give([NodeShare(node.node_id, node.epoch, SlotMask(1)) for node in nodes])

    for node in nodes:
        assert one.free(node) == other.free(node)
    for gpus in sizes:
        found = place(one, Shape(gpus))
        assert place(other, Shape(gpus)) == found
        if not isinstance(found, Misfit):
            one.take(found.shares)
            other.take(found.shares)
    assert {p: one.pools.names(p) for p in one.pools.groups()} == {
        p: other.pools.names(p) for p in other.pools.groups()
    }
