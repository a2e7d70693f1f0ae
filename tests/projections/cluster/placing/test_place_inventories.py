"""Placement on whole clusters: the worked example, and real inventories of nodes where they are at hand."""

import csv
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from events.policy import PlacePolicy
from projections.cluster.job import Shape
from projections.cluster.node import Node, NodeState
from projections.cluster.placing.place import Misfit, Placement, Room, place
from tests.projections.cluster.placing.gangs import BEST, FIRST, SPREAD, cluster_of, node, placement
from tests.recordings import recording

ROOT = Path(__file__).resolve().parents[4]


def inventory(name: str) -> list[dict[str, str]]:
    """The rows of an inventory; skips where it is not at hand."""
    with recording(f"traces/{name}").open(newline="") as file:
        return list(csv.DictReader(file))


def fill(room: Room, shapes: list[Shape]) -> list[Placement | Misfit]:
    """Where each goes, in order; one that does not fit is skipped."""
    placed: list[Placement | Misfit] = []
    for shape in shapes:
        placed.append(found := place(room, shape))
        if isinstance(found, Placement):
            room.take(found.shares)
    return placed


def left(room: Room) -> tuple[int, int]:
    """GPUs that are free, and nodes with nothing on them."""
    nodes = room.cluster.nodes.values()
    free = {node.node_id: room.free(node).bit_count() for node in nodes}
    return sum(free.values()), sum(free[node.node_id] == node.size for node in nodes)


@pytest.mark.parametrize(
    ("policy", "rejected", "free", "whole"), [(BEST, 0, 1_012, 126), (FIRST, 0, 1_012, 126), (SPREAD, 55, 2_492, 0)]
)
def test_the_worked_example_comes_out_as_stated(policy: PlacePolicy, rejected: int, free: int, whole: int) -> None:
    """862 jobs on 1,250 nodes of 8: spread alone rejects some, and leaves no whole node."""
    gpus = [int(line) for line in (ROOT / "examples" / "worked-example.txt").read_text().split()]
    room = Room(cluster_of([node(f"n{number:04d}") for number in range(1_250)], policy))

    placed = fill(room, [Shape(count) for count in gpus])

    assert len(gpus) == 862
    assert sum(isinstance(found, Misfit) for found in placed) == rejected
    assert left(room) == (free, whole)


def openb() -> list[Node]:
    """1,213 nodes of 1, 2, 4 and 8 GPUs of twelve types; some GPUs broken, some nodes unwell or cordoned."""
    random = Random(1)
    return [
        node(
            row["node_id"],
            int(row["gpus"]),
            gpu_type=row["gpu_type"],
            broken=int(random.random() < 0.02),
            cordoned=random.random() < 0.01,
            state=NodeState.SUSPECT if random.random() < 0.01 else NodeState.UP,
        )
        for row in inventory("alibaba-openb-2023-nodes.csv")
    ]


def test_a_cluster_of_many_kinds_is_filled_by_type_and_node() -> None:
    """Every gang is whole, on one accepted type, on good nodes; best fit leaves the most nodes whole, spread the fewest."""
    found = openb()
    random = Random(2)
    accepted: tuple[tuple[str, ...], ...] = ((), ("G2", "G3"), ("V100M32", "V100M16"), ("T4",), ("P100", "T4"))
    asked = [Shape(random.choice((1, 1, 1, 2, 4, 8, 16)), gpu_types=random.choice(accepted)) for _ in range(900)]
    whole: dict[PlacePolicy, int] = {}
    by_id = {node.node_id: node for node in found}
    for policy in PlacePolicy:
        room = Room(cluster_of(found, policy))
        for shape, placed in zip(asked, fill(room, asked), strict=True):
            if isinstance(placed, Placement):
                nodes = [by_id[share.node_id] for share in placed.shares]
                assert sum(share.slots.bit_count() for share in placed.shares) == shape.gpus
                assert len({node.gpu_type for node in nodes}) == 1
                assert nodes[0].gpu_type in (shape.gpu_types or {nodes[0].gpu_type})
                assert all(node.state is NodeState.UP and not node.cordoned for node in nodes)
        whole[policy] = left(room)[1]

    assert whole[BEST] >= whole[FIRST] > whole[SPREAD]


def lingjun() -> list[Node]:
    """847 hosts of 8 GPUs under three spines and 119 leaves."""
    return [
        node(row["node_id"], labels={"spine": row["spine"], "rack": row["leaf"]})
        for row in inventory("alibaba-lingjun-2023-topology.csv")
    ]


def test_gangs_fill_leaf_by_leaf() -> None:
    """Gangs of 8 hosts each get a leaf of their own while there is one; then every gang spans as few as it must."""
    found = lingjun()
    room = Room(cluster_of(found))
    by_id = {node.node_id: node for node in found}
    leaves = Counter(node.place for node in found)
    eights = sum(count == 8 for count in leaves.values())

    for _ in range(eights):
        gang = placement(room, Shape(64, within="rack", required=True))
        room.take(gang.shares)
        assert len({by_id[share.node_id].place for share in gang.shares}) == 1
    assert isinstance(place(room, Shape(64, within="rack", required=True)), Misfit)
    while isinstance(scattered := place(room, Shape(64)), Placement):
        free = Counter(node.place for node in found if room.free(node))
        in_spine = {spine: sum(n for place, n in free.items() if place.spine == spine) for spine, _ in free}
        places = {by_id[share.node_id].place for share in scattered.shares}
        if max(in_spine.values()) >= 8:
            (spine,) = {place.spine for place in places}
            largest = sorted((n for place, n in free.items() if place.spine == spine), reverse=True)
            assert len(places) == next(k for k in range(1, 9) if sum(largest[:k]) >= 8)
        room.take(scattered.shares)
    assert left(room)[1] < 8


def test_a_gang_that_must_stay_within_a_spine_does_so() -> None:
    """300 hosts fit the two larger spines only; two of them fill both, and the third waits: no spine ever has so many."""
    found = lingjun()
    room = Room(cluster_of(found))
    by_id = {node.node_id: node for node in found}
    shape = Shape(2_400, within="spine", required=True)
    first = placement(room, shape)
    room.take(first.shares)
    second = placement(room, shape)
    room.take(second.shares)

    spines = [{by_id[share.node_id].spine for share in gang.shares} for gang in (first, second)]
    assert sorted(map(len, spines)) == [1, 1]
    assert spines[0] != spines[1]
    assert isinstance(place(room, shape), Misfit)
    assert isinstance(place(room, Shape(1_600)), Placement)
