"""Why a gang does not fit, and whether the cluster could ever hold it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.base import GpuUuid, NodeId
from events.job import HoldCode
from projections.cluster.index import put_node
from projections.cluster.job import Shape
from projections.cluster.node import Node, NodeState
from projections.cluster.placing.place import Misfit, Placement, Room, could_hold, place
from tests.projections.cluster.placing.gangs import cluster_of, idle, node, nodes, shapes, ways


@given(nodes(), shapes(), st.sets(st.sampled_from(list(NodeState))))
def test_could_hold_is_whether_it_would_fit_an_idle_cluster(
    found: list[Node], shape: Shape, states: set[NodeState]
) -> None:
    """Counting nodes by kind answers as trying every combination does; asked again, it says the same."""
    some = [node for node in found if node.state in states]
    cluster = cluster_of(found)

    for _ in range(2):
        assert could_hold(cluster, shape, tuple(states)) == bool(ways(shape, idle(some)))
        unmarked = [node for node in some if not node.cordoned]
        assert could_hold(cluster, shape, tuple(states), closed=False) == bool(ways(shape, idle(unmarked)))


def test_what_could_be_held_changes_with_the_nodes() -> None:
    """An answer is not kept beyond what it is about, and a fork does not answer for the cluster."""
    node = Node(node_id=NodeId("n1"), gpu_type="h100", uuids=(GpuUuid("u"),), present=1, pool=1, free=1)
    cluster = cluster_of([node])
    fork = cluster.fork()
    assert not could_hold(fork, Shape(2), (NodeState.UP,))
    put_node(fork, Node(node_id=NodeId("n2"), gpu_type="h100", uuids=(GpuUuid("v"),), present=1, pool=1, free=1))

    assert could_hold(fork, Shape(2), (NodeState.UP,))
    assert not could_hold(cluster, Shape(2), (NodeState.UP,))


@pytest.mark.parametrize(
    ("shape", "code"),
    [
        (Shape(1, 0, 0, ("b200",)), HoldCode.NO_SUCH_GPU),
        (Shape(1, labels=(("fabric", "ib"),)), HoldCode.NO_SUCH_NODE),
        (Shape(1, 0, 0, ("a100",)), HoldCode.NO_SUCH_NODE),  # its only node has a taint
        (Shape(1, labels=(("rack", "r9"),)), HoldCode.NO_SUCH_NODE),
        (Shape(33), HoldCode.EXCEEDS_CLUSTER),
        (Shape(5, 5, 1), HoldCode.EXCEEDS_CLUSTER),
        (Shape(24, within="rack", required=True), HoldCode.EXCEEDS_DOMAIN),
        (Shape(32), HoldCode.NODES_UNWELL),
        (Shape(24, 3, 8), HoldCode.NODES_UNWELL),
        (Shape(16), HoldCode.NO_ROOM),
        (Shape(8), HoldCode.SCATTERED),
        (Shape(16, min_gpus=9), HoldCode.SCATTERED),
    ],
)
def test_each_reason_has_its_case(shape: Shape, code: HoldCode) -> None:
    """Two nodes of eight with 5 and 7 free GPUs; one is suspect, one cordoned; one of another type has a taint."""
    found = [
        node("n1", busy=1, labels={"rack": "r1"}),
        node("n2", busy=3, labels={"rack": "r2"}),
        node("n3", state=NodeState.SUSPECT, labels={"rack": "r1"}),
        node("n4", cordoned=True, labels={"rack": "r2"}),
        node("n5", gpu_type="a100", taints=("old",)),
    ]

    assert place(Room(cluster_of(found)), shape) == Misfit(code)


def test_a_scattered_rack_is_told_from_a_full_one() -> None:
    """For a gang that must stay in a rack only what one rack has counts."""
    shape = Shape(8, within="rack", required=True)
    one = [node("a", busy=4, labels={"rack": "r1"}), node("b", busy=4, labels={"rack": "r1"})]
    two = [one[0], node("b", busy=4, labels={"rack": "r2"})]
    full = node("c", busy=8, labels={"rack": "r1"})

    assert place(Room(cluster_of([*one, full])), shape) == Misfit(HoldCode.SCATTERED)
    assert place(Room(cluster_of([*two, full])), shape) == Misfit(HoldCode.NO_ROOM)


def test_labels_are_words_of_their_own() -> None:
    """A label that holds the marks between labels is not mistaken for two."""
    found = [node("a", labels={"zone": "x,fabric=ib|old"})]
    room = Room(cluster_of(found))

    assert place(room, Shape(1, labels=(("fabric", "ib"),))) == Misfit(HoldCode.NO_SUCH_NODE)
    assert isinstance(place(room, Shape(1, labels=(("zone", "x,fabric=ib|old"),))), Placement)
