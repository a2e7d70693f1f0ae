"""A room over time: what counts rule out, no place would have held."""

from hypothesis import given, settings

from events.base import SlotMask
from events.job import NodeShare
from projections.cluster.job import Shape
from projections.cluster.placing.place import Placement, place
from projections.cluster.placing.room import Room
from services.scheduler.walk import Chances, Walk
from tests.clusters import World
from tests.histories import History, histories
from tests.services.scheduler.test_promised import share

SHAPES = (
    Shape(1),
    Shape(3),
    Shape(8),
    Shape(12, min_gpus=9),
    Shape(4, 2, 2),
    Shape(6, gpu_types=("h100",)),
    Shape(2, within="rack", required=True),
)


@settings(max_examples=30)
@given(histories())
def test_what_counts_rule_out_has_no_place(grown: History) -> None:
    """The quick no is never wrong, neither now nor after all has ended."""
    room = Room(grown.cluster)
    for shape in SHAPES:
        if isinstance(place(room, shape), Placement):
            assert Chances(room, shape).any
    later, walks = room.fork(), [Walk(room, shape) for shape in SHAPES]
    for node in grown.cluster.nodes.values():
        if node.pool:
            shares = [NodeShare(node.node_id, node.epoch, SlotMask(node.pool))]
            later.give(shares)
            for walk in walks:
                walk.free(shares)
    for shape, walk in zip(SHAPES, walks, strict=True):
        expected = place(later, shape)
        assert walk.find() == (expected.shares if isinstance(expected, Placement) else None)


def test_what_is_anothers_for_a_while_is_closed_for_that_while() -> None:
    """Twice over, if two have it in turn; and what ends meanwhile is open only afterwards."""
    world = World({"n1": 2})
    world.submit("runs", 2)
    world.rounds()
    walk, whole = Walk(Room(world.cluster), Shape(2)), [share(world, "n1", 0b11)]
    walk.shut(whole)
    walk.shut([share(world, "n1", 0b01)])
    walk.free(whole)
    assert walk.find() is None
    walk.reopen(whole)
    assert walk.find() is None
    walk.reopen([share(world, "n1", 0b01)])

    assert walk.find() == tuple(whole)
