"""What nodes and operators say, as the fold has it: places, labels, taints, cordons."""

from events.base import NodeId
from events.node import NodeDescribed
from events.operator import NodeCordoned, NodeUncordoned
from projections.cluster.node import Pool
from tests.clusters import World


def test_a_cordoned_node_takes_nothing_new_in_any_of_its_lives() -> None:
    """What runs there goes on, and counts; what is free there does not, until the cordon is lifted."""
    world = World({"n1": 4})
    world.submit("runs", 3)
    world.round()
    world.add(NodeCordoned(at=world.at, node_id=NodeId("n1"), reason="fan"))
    assert world.cluster.pools.groups() == []
    assert dict(world.cluster.capacity) == {"h100": 3}

    world.join("n1", 4)
    assert world.cluster.nodes[NodeId("n1")].cordoned
    assert dict(world.cluster.capacity) == {}

    world.add(NodeUncordoned(at=world.at, node_id=NodeId("n1")))
    assert world.cluster.pools.groups() == [Pool("h100", 4, 4)]
    assert dict(world.cluster.capacity) == {"h100": 4}


def test_a_word_on_a_node_that_never_joined_changes_nothing() -> None:
    """An operator's typing error is no node."""
    world = World({"n1": 4})
    world.add(NodeCordoned(at=world.at, node_id=NodeId("n9")))
    assert set(world.cluster.nodes) == {"n1"}


def test_labels_and_taints_make_a_pool_of_their_own_and_the_place_does_not() -> None:
    """Nodes of two racks are alike for a filter; a label or a taint tells them apart."""
    world = World()
    world.join("n1", 4, labels={"rack": "r1", "spine": "s1"})
    world.join("n2", 4, labels={"rack": "r2", "spine": "s1"})
    world.join("n3", 4, labels={"rack": "r2", "fabric": "ib"}, taints=("old",))
    assert world.cluster.pools.names(Pool("h100", 4, 4)) == ["n1", "n2"]
    assert world.cluster.pools.names(Pool("h100", 4, 4, "fabric=ib|old")) == ["n3"]
    node = world.cluster.nodes[NodeId("n2")]
    assert (node.rack, node.spine) == ("r2", "s1")


def test_a_description_holds_for_the_life_that_it_names_and_moves_nothing_that_runs() -> None:
    """The node is found by its new labels, what runs there goes on, and one of an earlier life changes nothing."""
    world = World()
    epoch = world.join("n1", 4, labels={"rack": "r1", "fabric": "ib"})
    job = world.submit("job", 1)
    world.rounds()
    described = NodeDescribed(
        at=world.at, node_id=NodeId("n1"), node_epoch=epoch, labels={"rack": "r2"}, taints=("old",)
    )  # fmt: skip
    world.add(described)
    node = world.cluster.nodes[NodeId("n1")]
    assert (node.rack, node.taints, node.epoch) == ("r2", ("old",), epoch)
    assert world.cluster.pools.names(Pool("h100", 4, 3, "|old")) == ["n1"]
    assert world.run(job) is not None

    world.join("n1", 4)
    world.add(described)
    assert world.cluster.nodes[NodeId("n1")].labels == {}
