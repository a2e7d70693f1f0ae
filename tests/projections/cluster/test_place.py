"""Placement, held to a reference that tries every combination of nodes on small random clusters."""

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from events.base import GpuUuid, NodeEpoch, NodeId
from events.job import HoldCode, NodeShare
from projections.cluster.index import put_node
from projections.cluster.job import Shape
from projections.cluster.node import Node, NodeState
from projections.cluster.place import WHOLE_NODES_FROM, Misfit, Room, could_hold, place
from projections.cluster.state import Cluster


class Spot(NamedTuple):
    """A node as the reference sees it: `free` of its `size` GPUs may be given away."""

    busy: bool  # so that spots sort as best fit wants them: busy before empty, the fewest free, the smallest
    free: int
    size: int
    name: str


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    """Up to six nodes of two types, in any state."""
    found: list[Node] = []
    for number in range(draw(st.integers(0, 6))):
        size = draw(st.sampled_from((1, 2, 4, 4, 8, 8)))
        present = (1 << size) - 1
        free = draw(st.one_of(st.just(present), st.integers(0, present)))
        state = draw(st.sampled_from((NodeState.UP, NodeState.UP, NodeState.UP, NodeState.SUSPECT, NodeState.LOST)))
        found.append(
            Node(
                node_id=NodeId(f"n{number}"),
                epoch=NodeEpoch(100 + number),
                state=state,
                gpu_type=draw(st.sampled_from(("h100", "h100", "a100"))),
                uuids=tuple(GpuUuid(f"n{number}-{slot}") for slot in range(size)),
                present=present,
                pool=0 if state is NodeState.LOST else present,
                free=0 if state is NodeState.LOST else free,
            )
        )
    return found


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Gangs from one GPU to more than any cluster here has."""
    types = draw(st.sampled_from(((), (), ("h100",), ("a100", "h100"), ("b200",))))
    if draw(st.booleans()):
        return Shape(draw(st.integers(1, 26)), 0, 0, types)
    count, each = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    return Shape(count * each, count, each, types)


def cluster_of(found: list[Node]) -> Cluster:
    """A cluster of these nodes."""
    cluster = Cluster()
    for node in found:
        put_node(cluster, node)
    return cluster


def spots(found: list[Node], gpu_type: str, *, idle: bool = False) -> list[Spot]:
    """The nodes of one type that have something to give, best fit first; `idle`: as if no run had any GPU."""
    seen = [(node.size if idle else node.free.bit_count(), node) for node in found if node.gpu_type == gpu_type]
    return sorted(Spot(free == node.size, free, node.size, node.node_id) for free, node in seen if free)


def answers(shape: Shape, room: list[Spot]) -> Iterator[list[tuple[str, int]]]:
    """Every way to give the gang its GPUs on these nodes, the wanted one first."""
    if shape.nodes:
        able = [spot for spot in room if spot.free >= shape.gpus_per_node]
        yield from ([(s.name, shape.gpus_per_node) for s in some] for some in combinations(able, shape.nodes))
        return
    if shape.gpus < WHOLE_NODES_FROM:
        yield from ([(spot.name, shape.gpus)] for spot in room if spot.free >= shape.gpus)
    for size in sorted({spot.size for spot in room}, reverse=True):
        whole, rest = divmod(shape.gpus, size)
        empty = [spot for spot in room if spot.free == spot.size == size]
        for some in combinations(empty, whole):
            picked = [(spot.name, size) for spot in some]
            if not rest:
                yield picked
            others = (spot for spot in room if spot not in some and spot.free >= rest > 0)
            yield from ([*picked, (spot.name, rest)] for spot in others)


def wanted(shape: Shape, found: list[Node], *, idle: bool = False) -> list[tuple[str, int]] | None:
    """The nodes and how many GPUs of each that best fit gives; None where no combination holds the gang."""
    for gpu_type in shape.gpu_types or sorted({node.gpu_type for node in found}):
        if (best := next(answers(shape, spots(found, gpu_type, idle=idle)), None)) is not None:
            return sorted(best)
    return None


def reason(shape: Shape, found: list[Node]) -> HoldCode:
    """Why a gang that fits nowhere does not, from the gravest to the lightest."""
    if shape.gpu_types and not any(node.gpu_type in shape.gpu_types for node in found):
        return HoldCode.NO_SUCH_GPU
    if wanted(shape, found, idle=True) is None:
        return HoldCode.EXCEEDS_CLUSTER
    if wanted(shape, [node for node in found if node.state is NodeState.UP], idle=True) is None:
        return HoldCode.NODES_UNWELL
    types = {node.gpu_type for node in found if not shape.gpu_types or node.gpu_type in shape.gpu_types}
    free = [sum(s.free for s in spots([n for n in found if n.state is NodeState.UP], t)) for t in types]
    return HoldCode.SCATTERED if max(free, default=0) >= shape.gpus else HoldCode.NO_ROOM


@given(nodes(), shapes())
def test_a_gang_gets_the_best_fit_or_the_gravest_reason(found: list[Node], shape: Shape) -> None:
    """Fit or not, which nodes, how many GPUs of each, and the hold code are those of trying everything."""
    up = [node for node in found if node.state is NodeState.UP]
    placed = place(Room(cluster_of(found)), shape)

    expected = wanted(shape, up)
    if isinstance(placed, Misfit):
        event(placed.code.value)
        assert expected is None
        assert placed.code is reason(shape, found)
    else:
        event(f"{len(placed.shares)} shares")
        assert [(share.node_id, share.slots.bit_count()) for share in placed.shares] == expected


@given(nodes(), shapes())
def test_shares_are_free_slots_of_the_life_that_is(found: list[Node], shape: Shape) -> None:
    """Each share names the node's present epoch and its lowest free slots; all are of one accepted type."""
    placed = place(Room(cluster_of(found)), shape)
    if isinstance(placed, Misfit):
        return
    named = {node.node_id: node for node in found}
    for share in placed.shares:
        node = named[share.node_id]
        lower = node.free & ((1 << share.slots.bit_length()) - 1)
        assert (share.node_epoch, share.slots) == (node.epoch, lower)
        assert node.state is NodeState.UP
    types = {named[share.node_id].gpu_type for share in placed.shares}
    assert len(types) == 1
    assert not shape.gpu_types or types <= set(shape.gpu_types)
    assert sum(share.slots.bit_count() for share in placed.shares) == shape.gpus


@given(nodes(), st.lists(shapes(), max_size=6))
def test_what_a_room_gave_away_is_gone_as_if_it_were_folded(found: list[Node], asked: list[Shape]) -> None:
    """Placing one after the other in a room is placing each on a cluster where the ones before run."""
    cluster = cluster_of(found)
    room = Room(cluster)
    now = list(found)
    for shape in asked:
        placed = place(room, shape)
        assert placed == place(Room(cluster_of(now)), shape)
        if not isinstance(placed, Misfit):
            room.take(placed.shares)
            now = [_less(node, placed.shares) for node in now]
    assert [node.free for node in cluster.nodes.values()] == [node.free for node in found]


def _less(node: Node, shares: tuple[NodeShare, ...]) -> Node:
    for share in shares:
        if share.node_id == node.node_id:
            return node.taking("r", share.slots)  # type: ignore[arg-type]  # any run
    return node


@given(nodes(), shapes(), st.sets(st.sampled_from(list(NodeState))))
def test_could_hold_is_whether_it_would_fit_an_idle_cluster(
    found: list[Node], shape: Shape, states: set[NodeState]
) -> None:
    """Counting nodes by size answers as trying every combination does."""
    some = [node for node in found if node.state in states]

    assert could_hold(cluster_of(found), shape, tuple(states)) == (wanted(shape, some, idle=True) is not None)


@pytest.mark.parametrize(
    ("shape", "code"),
    [
        (Shape(1, 0, 0, ("b200",)), HoldCode.NO_SUCH_GPU),
        (Shape(17, 0, 0, ()), HoldCode.EXCEEDS_CLUSTER),
        (Shape(3, 3, 1, ()), HoldCode.EXCEEDS_CLUSTER),
        (Shape(16, 0, 0, ()), HoldCode.NODES_UNWELL),
        (Shape(8, 0, 0, ()), HoldCode.NO_ROOM),
    ],
)
def test_each_reason_has_its_case(shape: Shape, code: HoldCode) -> None:
    """Two nodes of eight: one has a GPU in use, the other is suspect."""
    uuids = tuple(GpuUuid(str(slot)) for slot in range(8))
    one = Node(node_id=NodeId("n1"), gpu_type="h100", uuids=uuids, present=255, pool=255, free=254)
    two = Node(node_id=NodeId("n2"), gpu_type="h100", uuids=uuids, present=255, state=NodeState.SUSPECT)

    assert place(Room(cluster_of([one, two])), shape) == Misfit(code)
