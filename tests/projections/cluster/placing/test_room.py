"""What a room gives away, gets back and keeps, held to clusters in which that is so."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from events.base import NodeEpoch, NodeId, SlotMask
from events.job import NodeShare
from events.policy import PlacePolicy
from projections.cluster.job import Shape
from projections.cluster.node import Node, NodeState
from projections.cluster.placing.place import Misfit, Room, place
from tests.projections.cluster.placing.gangs import cluster_of, node, nodes, placement, shapes, shares_of, well

MASKS = st.integers(1, 255)


@given(nodes(), st.lists(shapes(), max_size=6), st.sampled_from(PlacePolicy))
def test_what_a_room_gave_away_is_gone_as_if_it_were_folded(
    found: list[Node], asked: list[Shape], policy: PlacePolicy
) -> None:
    """Placing one after the other in a room is placing each on a cluster where the ones before run."""
    cluster = cluster_of(found, policy)
    room = Room(cluster)
    now = list(found)
    for shape in asked:
        placed = place(room, shape)
        assert placed == place(Room(cluster_of(now, policy)), shape)
        if not isinstance(placed, Misfit):
            room.take(placed.shares)
            now = [_less(node, placed.shares) for node in now]
    assert [node.free for node in cluster.nodes.values()] == [node.free for node in found]


def _less(node: Node, shares: tuple[NodeShare, ...]) -> Node:
    for share in shares:
        if share.node_id == node.node_id:
            return node.taking("r", share.slots)  # type: ignore[arg-type]  # any run
    return node


@given(nodes(), st.lists(st.tuples(st.sampled_from("tgrf"), shapes(), MASKS), max_size=8), st.sampled_from(PlacePolicy))
def test_a_room_is_what_was_done_to_it(
    found: list[Node], steps: list[tuple[str, Shape, int]], policy: PlacePolicy
) -> None:
    """Whatever was taken, given and reserved, in whatever order, a gang goes where it would in a cluster like that."""
    room = Room(cluster_of(found, policy))
    model = {node.node_id: node for node in found}
    kept = dict.fromkeys(model, 0)
    for step, shape, mask in steps:
        shares = [NodeShare(n.node_id, n.epoch, SlotMask(mask)) for n in found if mask % 3 != n.epoch % 3]
        if step == "t":
            placed = place(room, shape)
            shares = [] if isinstance(placed, Misfit) else list(placed.shares)
            room.take(shares)
        elif step == "g":
            room.give(shares)
        elif step == "r":
            room.reserve(shares)
        elif step == "f":
            fork = room.fork()  # the room sees nothing of what is done to it
            fork.reserve(shares[:1])
            fork.give(shares[1:])
        for share in shares:
            model[share.node_id], kept[share.node_id] = _after(
                step, model[share.node_id], kept[share.node_id], share.slots
            )
        now = cluster_of([model[node_id] for node_id in model], policy)
        assert place(room, shape) == place(Room(now), shape)
        assert [room.free(node) for node in found] == [n.spare if well(n) else 0 for n in model.values()]


def _after(step: str, node: Node, kept: int, slots: int) -> tuple[Node, int]:
    match step:
        case "t":
            return replace(node, free=node.free & ~slots), kept
        case "g":
            return replace(node, free=node.free | (slots & node.pool & ~kept)), kept
        case "r":
            return replace(node, free=node.free & ~slots), kept | slots
        case _:
            return node, kept


def test_what_is_said_of_another_life_of_a_node_changes_nothing() -> None:
    """Slots of a run that was there before the node joined anew are neither given nor kept."""
    room = Room(cluster_of([node("a", busy=4)]))
    stale = [
        NodeShare(NodeId("a"), NodeEpoch(99), SlotMask(0xFF)),
        NodeShare(NodeId("gone"), NodeEpoch(1), SlotMask(1)),
    ]
    room.give(stale)
    room.reserve(stale)

    assert shares_of(placement(room, Shape(4))) == [("a", 4)]
    assert isinstance(place(room, Shape(5)), Misfit)


def test_an_unwell_node_gives_nothing() -> None:
    """Not even what runs there would leave."""
    found = [node("a", busy=4, state=NodeState.SUSPECT), node("b", busy=4, cordoned=True)]
    room = Room(cluster_of(found))
    room.give([NodeShare(n.node_id, n.epoch, SlotMask(0xFF)) for n in found])

    assert isinstance(place(room, Shape(1)), Misfit)
