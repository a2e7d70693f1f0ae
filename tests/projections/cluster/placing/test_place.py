"""Placement, held to a reference that tries every combination of nodes on small random clusters."""

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from events.job import HoldCode
from events.policy import PlacePolicy
from projections.cluster.job import Shape
from projections.cluster.node import Node
from projections.cluster.placing.place import Misfit, Placement, Room, place
from tests.projections.cluster.placing.gangs import (
    BEST,
    Places,
    Spot,
    cluster_of,
    free_now,
    named,
    node,
    nodes,
    preference,
    reason,
    shapes,
    shares_of,
    spread_out,
    ways,
    well,
)


@given(nodes(), shapes(), st.sampled_from(PlacePolicy))
def test_a_gang_fits_if_anything_holds_it_and_else_the_gravest_reason_is_said(
    found: list[Node], shape: Shape, policy: PlacePolicy
) -> None:
    """Fit or not, by type, labels, taints, health and domain; what is given is one of the ways; else the code."""
    placed = place(Room(cluster_of(found, policy)), shape)

    held = ways(shape, free_now(found))
    if isinstance(placed, Misfit):
        event(placed.code.value)
        assert held == []
        assert placed.code is reason(shape, found)
    else:
        event(f"{len(placed.shares)} shares")
        assert shares_of(placed) in [named(some) for some in held]


@given(nodes(), shapes(), st.sampled_from(PlacePolicy))
def test_a_gang_is_as_close_together_as_any_way_to_hold_it(
    found: list[Node], shape: Shape, policy: PlacePolicy
) -> None:
    """In one rack if that can be, else in one spine: by best fit always, by another policy where it is wished."""
    placed = place(Room(cluster_of(found, policy)), shape)
    if isinstance(placed, Misfit) or (policy is not BEST and not shape.within):
        return
    held = ways(shape, free_now(found))
    best = min(map(spread_out, held))
    event(f"{best} of {len(placed.shares)} shares")

    assert best == min(spread_out(some) for some in held if named(some) == shares_of(placed))


@given(nodes(labelled=False), shapes(plain=True), st.sampled_from(PlacePolicy))
def test_where_no_rack_is_known_the_policy_alone_decides(found: list[Node], shape: Shape, policy: PlacePolicy) -> None:
    """Each node is the one that the policy prefers among those that will do."""
    placed = place(Room(cluster_of(found, policy)), shape)
    held = ways(shape, free_now(found))
    if isinstance(placed, Misfit):
        assert not held
        return

    def order(some: list[tuple[Spot, int]]) -> tuple[list[object], list[object]]:
        count = shape.nodes or len([gpus for spot, gpus in some if gpus == spot.node.size and spot.whole])
        ordered = sorted(some[:count], key=lambda of: preference(policy, of[0]))
        return [preference(policy, of[0]) for of in ordered], [preference(policy, of[0]) for of in some[count:]]

    assert shares_of(placed) == named(min(held, key=order))


@given(nodes(), shapes(), st.sampled_from(PlacePolicy))
def test_shares_are_free_slots_of_the_life_that_is(found: list[Node], shape: Shape, policy: PlacePolicy) -> None:
    """Each share names the node's present epoch and its lowest spare slots; all are of one accepted type."""
    placed = place(Room(cluster_of(found, policy)), shape)
    if isinstance(placed, Misfit):
        return
    by_id = {node.node_id: node for node in found}
    for share in placed.shares:
        node = by_id[share.node_id]
        lower = node.spare & ((1 << share.slots.bit_length()) - 1)
        assert (share.node_epoch, share.slots) == (node.epoch, lower)
        assert well(node)
    types = {by_id[share.node_id].gpu_type for share in placed.shares}
    assert len(types) == 1
    assert not shape.gpu_types or types <= set(shape.gpu_types)
    assert sum(share.slots.bit_count() for share in placed.shares) == shape.gpus


@given(nodes(), shapes(), st.sampled_from(PlacePolicy))
def test_the_order_in_which_nodes_came_does_not_matter(found: list[Node], shape: Shape, policy: PlacePolicy) -> None:
    """A cluster that came about in another way gives the same answer: so does one that was read from a snapshot."""
    assert place(Room(cluster_of(found[::-1], policy)), shape) == place(Room(cluster_of(found, policy)), shape)


@given(nodes(), shapes(), st.integers(1, 26), st.one_of(st.none(), st.integers(0, 26)), st.sampled_from(PlacePolicy))
def test_an_elastic_gang_gets_the_most_that_fits(
    found: list[Node], shape: Shape, least: int, most: int | None, policy: PlacePolicy
) -> None:
    """What it is given is what a gang of that size would be given, and no larger one it may have fits."""
    room = Room(cluster_of(found, policy))
    elastic = shape._replace(min_gpus=least if least < shape.gpus else 0)
    unit = shape.gpus_per_node or 1
    top = shape.gpus if most is None else min(most, shape.gpus)
    low = -(-(elastic.min_gpus or shape.gpus) // unit)
    sizes = [n * unit for n in range(top // unit, low - 1, -1)]
    tried = [place(room, shape._replace(gpus=n, nodes=n // unit if shape.nodes else 0)) for n in sizes]
    expected = next((placed for placed in tried if not isinstance(placed, Misfit)), None)
    placed = place(room, elastic, most=most)

    event("fits" if expected is not None else "does not fit")
    if expected is not None:
        assert placed == expected
    else:
        smallest = shape._replace(gpus=low * unit, nodes=low if shape.nodes else 0)
        assert placed == (place(room, smallest) if sizes else Misfit(HoldCode.NO_ROOM))


@pytest.mark.parametrize(
    ("shape", "most", "expected"),
    [
        (Shape(32, min_gpus=8), None, [("a", 8), ("b", 8), ("c", 4)]),
        (Shape(32, min_gpus=8), 16, [("a", 8), ("b", 8)]),
        (Shape(32, min_gpus=8), 11, [("a", 8), ("c", 3)]),
        (Shape(32, 4, 8, min_gpus=8), None, [("a", 8), ("b", 8)]),
        (Shape(32, 8, 4, min_gpus=5), 11, [("a", 4), ("c", 4)]),
    ],
)
def test_an_elastic_gang_starts_with_what_there_is(shape: Shape, most: int | None, expected: Places) -> None:
    """Two whole nodes and half of one; with `nodes` it is elastic in their number."""
    placed = place(Room(cluster_of([node("a"), node("b"), node("c", busy=4)])), shape, most=most)

    assert isinstance(placed, Placement)
    assert shares_of(placed) == expected


def test_a_gang_that_is_not_elastic_does_not_shrink() -> None:
    """`most` below what it needs is no room."""
    room = Room(cluster_of([node("a")]))

    assert place(room, Shape(4), most=3) == Misfit(HoldCode.NO_ROOM)
    assert place(room, Shape(8, min_gpus=4), most=3) == Misfit(HoldCode.NO_ROOM)
    assert isinstance(place(room, Shape(4), most=4), Placement)
