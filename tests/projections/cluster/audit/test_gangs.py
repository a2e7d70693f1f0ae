"""The auditor on the shares of a gang: elastic ones, the order of ranks, labels, taints, racks."""

from typing import Any

import pytest
from msgspec.structs import replace

from events.base import START, NodeEpoch, NodeId, SlotMask
from events.job import Domain, JobSpec, NodeShare, Topology
from events.node import NodeDescribed
from projections.cluster.audit.audit import audit
from projections.cluster.audit.books import Books, NodeBook
from projections.cluster.audit.gangs import gang_faults
from services.control.round import decide_all
from tests.clusters import World

NEAR = Topology(within=Domain.RACK)


def faults(masks: dict[str, int], ranks: tuple[int, ...] = (), **spec: Any) -> list[str]:
    """What is wrong with these shares; nodes a1 and a2 are in one rack, b1 in another, x1 in none and tainted."""
    books = Books()
    for name, labels in (("a1", {"rack": "a", "net": "ib"}), ("a2", {"rack": "a"}), ("b1", {"rack": "b"}), ("x1", {})):
        taints = ("own",) if name == "x1" else ()
        books.nodes[NodeId(name)] = NodeBook(epoch=1, alive=True, gpu_type="h100", labels=labels, taints=taints)
    shares = tuple(NodeShare(NodeId(name), NodeEpoch(1), SlotMask(mask)) for name, mask in masks.items())
    return list(gang_faults(books, JobSpec(name="j", command=("true",), **spec), shares, ranks, START))


@pytest.mark.parametrize(
    ("masks", "spec", "wrong"),
    [
        ({"a1": 0b11}, {"gpus": 4, "min_gpus": 2}, False),
        ({"a1": 0b1111}, {"gpus": 4, "min_gpus": 2}, False),
        ({"a1": 0b1}, {"gpus": 4, "min_gpus": 2}, True),
        ({"a1": 0b11111}, {"gpus": 4, "min_gpus": 2}, True),
        ({"a1": 0b11}, {"gpus": 4}, True),
        ({"a1": 0b11, "a2": 0b11}, {"gpus": 6, "min_gpus": 4, "nodes": 3, "gpus_per_node": 2}, False),
        ({"a1": 0b111, "a2": 0b1}, {"gpus": 6, "min_gpus": 4, "nodes": 3, "gpus_per_node": 2}, True),
        ({"a1": 0b1}, {"gpus": 1, "labels": {"net": "ib"}}, False),
        ({"a2": 0b1}, {"gpus": 1, "labels": {"net": "ib"}}, True),
        ({"x1": 0b1}, {"gpus": 1, "tolerates": ("own",)}, False),
        ({"x1": 0b1}, {"gpus": 1}, True),
        ({"a1": 0b1, "a2": 0b1}, {"gpus": 2, "topology": NEAR}, False),
        ({"a1": 0b1, "b1": 0b1}, {"gpus": 2, "topology": NEAR}, True),
        ({"a1": 0b1, "b1": 0b1}, {"gpus": 2, "topology": Topology(within=Domain.RACK, required=False)}, False),
        ({"x1": 0b1}, {"gpus": 1, "topology": NEAR, "tolerates": ("own",)}, False),
        ({"a1": 0b1, "x1": 0b1}, {"gpus": 2, "topology": NEAR, "tolerates": ("own",)}, True),
    ],
)
def test_shares_are_held_to_what_was_asked(masks: dict[str, int], spec: dict[str, Any], wrong: bool) -> None:
    """One sentence for what is wrong, none for what is right."""
    assert bool(faults(masks, **spec)) == wrong


@pytest.mark.parametrize(("ranks", "wrong"), [((), False), ((1, 0), False), ((0, 0), True), ((0,), True)])
def test_ranks_are_an_order_of_all_shares(ranks: tuple[int, ...], wrong: bool) -> None:
    """Each share once."""
    assert bool(faults({"a1": 1, "a2": 1}, ranks, gpus=2)) == wrong


@pytest.mark.parametrize(("late", "findings"), [(True, 0), (False, 1)])
def test_a_node_is_judged_by_the_words_that_the_decision_knew(findings: int, *, late: bool) -> None:
    """Other labels that land between a decision and its commit are no fault of it; those before it are."""
    world = World()
    epoch = world.join("n1", 2, labels={"net": "ib"})
    world.submit("job", 2, labels={"net": "ib"})
    decided = decide_all(world.cluster, world.tick())
    described = NodeDescribed(at=world.at, node_id=NodeId("n1"), node_epoch=epoch, labels={"net": "eth"})
    world.add(described)
    if not late:
        decided = [replace(decided[0], decided_at=world.tick().position), *decided[1:]]
    world.add(*decided)
    assert len(audit(world.records)) == findings
