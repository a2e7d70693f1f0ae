"""Where in the network a gang goes: racks, spines, the order of ranks."""

import pytest
from hypothesis import given

from events.base import SlotMask
from events.job import Domain, HoldCode, NodeShare
from events.policy import PlacePolicy
from projections.cluster.job import Shape
from projections.cluster.node import Node, Place, Spare
from projections.cluster.placing.place import Misfit, Placement, Room, place
from tests.clusters import World
from tests.projections.cluster.placing.gangs import by_rack, cluster_of, node, nodes, placement, racks, shapes


@pytest.mark.parametrize(
    ("free", "wanted", "expected"),
    [
        ({"a": 3, "b": 3, "c": 2, "d": 1}, 7, {"a": 3, "b": 3, "d": 1}),  # Kueue's example
        ({"a": 3, "b": 3, "c": 2, "d": 1}, 8, {"a": 3, "b": 3, "c": 2}),
        ({"a": 8, "b": 4, "c": 2}, 2, {"c": 2}),  # the fullest that holds it
        ({"a": 8, "b": 4, "c": 2}, 3, {"b": 3}),
        ({"a": 8, "b": 4, "c": 2}, 9, {"a": 8, "c": 1}),
        ({"a": 3, "b": 3}, 5, {"a": 3, "b": 2}),  # racks that are alike are taken once
        ({"a": 8, "b": 4, "c": 2}, 1, {"c": 1}),  # also one whole node
    ],
)
def test_a_gang_goes_to_the_fewest_and_fullest_racks(
    free: dict[str, int], wanted: int, expected: dict[str, int]
) -> None:
    """Whole racks from the emptiest down, and for the last the fullest that holds it; likewise with `nodes` given."""
    room = Room(cluster_of(racks(**free)))

    assert by_rack(place(room, Shape(8 * wanted))) == expected
    assert by_rack(place(room, Shape(8 * wanted, wanted, 8))) == expected


def test_spines_are_filled_like_racks() -> None:
    """Spines of 3, 3, 2 and 1 nodes, in racks of one: seven nodes take 3 + 3 + 1, and no rack twice."""
    found = [
        node(f"{spine}{number}-0", labels={"rack": str(number), "spine": spine})
        for spine, count in (("a", 3), ("b", 3), ("c", 2), ("d", 1))
        for number in range(count)
    ]

    assert sorted(by_rack(place(Room(cluster_of(found)), Shape(56)))) == ["a0", "a1", "a2", "b0", "b1", "b2", "d0"]


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({"a": "s", "b": "s", "c": "far"}, "a"),
        ({"b": "s", "c": "far"}, "b"),
        ({"c": "far"}, "c"),
        ({}, None),
    ],
)
@pytest.mark.parametrize("within", ["", "rack"])
def test_a_remainder_stays_as_near_as_it_can(others: dict[str, str], expected: str | None, within: str) -> None:
    """20 GPUs: two whole nodes, and four in their rack, else in their spine, else anywhere, however full nodes are there."""
    busy = {"a": 1, "b": 2, "c": 4}
    found = [node(f"a-{number}", labels={"rack": "a", "spine": "s"}) for number in range(2)]
    found += [node(f"{at}-9", busy=busy[at], labels={"rack": at, "spine": others[at]}) for at in others]
    placed = place(Room(cluster_of(found)), Shape(20, within=within))

    if expected is None:
        assert isinstance(placed, Misfit)
    else:
        assert by_rack(placed) == ({"a": 3} if expected == "a" else {"a": 2, expected: 1})


@pytest.mark.parametrize("policy", PlacePolicy)
def test_a_required_rack_is_never_left(policy: PlacePolicy) -> None:
    """Three nodes in one rack: `a` has them; once it has not, the gang waits, however many there are elsewhere."""
    shape = Shape(24, within="rack", required=True)
    room = Room(cluster_of(racks(a=3, b=2, c=2), policy))

    placed = place(room, shape)
    assert by_rack(placed) == {"a": 3}
    assert isinstance(placed, Placement)
    room.take(placed.shares[:1])
    assert place(room, shape) == Misfit(HoldCode.NO_ROOM)
    assert by_rack(place(room, shape._replace(within="spine"))) != {}
    assert place(room, shape._replace(gpus=40)) == Misfit(HoldCode.EXCEEDS_DOMAIN)


def test_a_full_rack_counts_with_what_its_runs_would_leave() -> None:
    """A gang that must stay in a rack finds it once the runs there are taken to be gone: also where it looked before."""
    found = [node(f"a-{number}", busy=8, labels={"rack": "a", "spine": "s"}) for number in range(2)]
    room = Room(cluster_of([*found, *racks(b=1)]))
    shape = Shape(16, within="rack", required=True)
    assert place(room, shape) == Misfit(HoldCode.NO_ROOM)
    room.give(NodeShare(held.node_id, held.epoch, SlotMask(0xFF)) for held in found)

    assert by_rack(place(room, shape)) == {"a": 2}


@pytest.mark.parametrize("within", Domain)
def test_nodes_that_do_not_say_where_they_stand_are_in_no_domain_together(within: Domain) -> None:
    """A rack or spine that must not be left is not made up; on one node the gang is within any."""
    room = Room(cluster_of([node("a"), node("b")]))

    assert place(room, Shape(16, within=within, required=True)) == Misfit(HoldCode.EXCEEDS_DOMAIN)
    assert isinstance(place(room, Shape(8, within=within, required=True)), Placement)
    assert isinstance(place(room, Shape(16, within=within)), Placement)


def test_racks_of_one_name_in_two_spines_are_two() -> None:
    """A rack is one of its spine."""
    found = [node(f"{spine}-0", labels={"rack": "r1", "spine": spine}) for spine in ("s1", "s2")]

    assert place(Room(cluster_of(found)), Shape(16, within="rack", required=True)) == Misfit(HoldCode.EXCEEDS_DOMAIN)


def test_a_rack_can_be_asked_for_by_its_label() -> None:
    """Small or large, the job goes nowhere else."""
    room = Room(cluster_of(racks(a=2, b=1)))
    at_a = (("rack", "a"),)

    assert by_rack(place(room, Shape(1, labels=at_a))) == {"a": 1}
    assert by_rack(place(room, Shape(16, labels=at_a))) == {"a": 2}
    assert place(room, Shape(24, labels=at_a)) == Misfit(HoldCode.NO_ROOM)
    assert place(room, Shape(32, labels=at_a)) == Misfit(HoldCode.EXCEEDS_CLUSTER)


@given(nodes(), shapes())
def test_ranks_go_along_the_network(found: list[Node], shape: Shape) -> None:
    """Neighbours in rank stand in one rack, as far as that can be; an order that is that of the shares is not written."""
    placed = place(Room(cluster_of(found)), shape)
    if isinstance(placed, Misfit):
        return
    by_id = {node.node_id: node for node in found}
    order = placed.ranks or range(len(placed.shares))
    along = [by_id[placed.shares[index].node_id] for index in order]

    assert along == sorted(along, key=lambda node: (node.spine, node.rack, node.node_id))
    assert placed.ranks != tuple(range(len(placed.shares)))


def test_ranks_follow_the_racks() -> None:
    """Nodes named across the racks: the ranks of each rack are neighbours."""
    found = [node(f"n{number}", labels={"rack": "ab"[number % 2]}) for number in range(4)]

    assert placement(Room(cluster_of(found)), Shape(32)).ranks == (0, 2, 1, 3)


def test_an_elastic_gang_gets_the_most_that_one_rack_has() -> None:
    """It must stay in a rack: two whole nodes of one, and four GPUs more there, though the cluster has others free."""
    found = [*racks(a=2, b=2), node("a-9", busy=4, labels={"rack": "a", "spine": "s"})]
    shape = Shape(48, min_gpus=8, within="rack", required=True)
    placed = place(Room(cluster_of(found)), shape)

    assert by_rack(placed) == {"a": 3}
    assert isinstance(placed, Placement)
    assert sum(share.slots.bit_count() for share in placed.shares) == 20


def test_a_node_that_joins_elsewhere_stands_there_alone() -> None:
    """It was carried to another rack: nothing is left of it where it stood."""
    world = World()
    world.join("n1", 8, labels={"rack": "a", "spine": "s"})
    world.join("n2", 8, labels={"rack": "a", "spine": "s"})
    shape = Shape(16, within="rack", required=True)
    assert by_rack(place(Room(world.cluster), shape)) == {"n1": 1, "n2": 1}
    world.join("n2", 8, labels={"rack": "b", "spine": "s"})

    assert place(Room(world.cluster), shape) == Misfit(HoldCode.EXCEEDS_DOMAIN)
    assert world.cluster.places.names(Place("s", "a")) == ["n1"]
    assert dict(world.cluster.spares) == {Spare("h100", "", Place("s", rack)): 8 for rack in "ab"}
    assert not world.cluster.unread
