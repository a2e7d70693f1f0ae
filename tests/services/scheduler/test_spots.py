"""What a node could give: now, soon, or if runs ended; and which runs could."""

from typing import Any

import pytest

from events.base import JobId, NodeId, RunId
from events.job import Domain
from projections.cluster.job import Shape
from projections.cluster.node import Node
from services.scheduler.spots import Ground, domains_of, suits
from tests.services.scheduler.evicting import Stage


def test_a_node_has_what_is_free_what_ends_and_what_runs() -> None:
    """Slots of three kinds, and of none: set aside, reserved, or not found clean."""
    made = Stage({"n1": 8})
    made.policy(min_runtime_s=0)
    made.running("runs", {"n1": 2})
    made.running("ends", {"n1": 2})
    made.end(JobId("ends"))
    scene = made.scene()
    spot = Ground(scene, Shape(1), "h100").spots[NodeId("n1")]

    assert (spot.held, spot.soon, spot.now) == ((("runs-1", 0b11),), 0b1100, 0b11110000)
    assert Ground(scene, Shape(1), "h100", soon=False).spots[NodeId("n1")].soon == 0
    scene.room.reserve(made.cluster.runs[RunId("runs-1")].shares)
    scene.evicted.add(RunId("runs-1"))
    assert Ground(scene, Shape(1), "h100").spots[NodeId("n1")] == spot._replace(held=())


@pytest.mark.parametrize(
    ("within", "parts"),
    [
        ("", [["n1", "n2", "n3", "n4"]]),
        (Domain.RACK, [["n4"], ["n1"], ["n2", "n3"]]),
        (Domain.SPINE, [["n4"], ["n1", "n2", "n3"]]),
    ],
)
def test_nodes_are_parted_by_where_they_stand(within: str, parts: list[list[str]]) -> None:
    """One that nobody placed is alone: a gang of one node may be there."""
    made = Stage({})
    for name, rack in (("n1", "r1"), ("n2", "r2"), ("n3", "r2")):
        made.join(name, 4, labels={"rack": rack, "spine": "s"})
    made.join("n4", 4)

    assert [sorted(part) for part in Ground(made.scene(), Shape(1), "h100").split(within)] == parts


@pytest.mark.parametrize(
    ("within", "required", "domains"),
    [("", False, [""]), (Domain.RACK, True, ["rack"]), (Domain.RACK, False, ["rack", ""])],
)
def test_a_domain_is_looked_through_first_or_only(within: str, required: bool, domains: list[str]) -> None:
    """As the gang asks."""
    assert list(domains_of(Shape(8, within=within, required=required))) == domains


@pytest.mark.parametrize(
    ("node", "shape", "suit"),
    [
        ({}, {}, True),
        ({"labels": {"net": "ib"}}, {"labels": (("net", "ib"),)}, True),
        ({"labels": {"net": "eth"}}, {"labels": (("net", "ib"),)}, False),
        ({"taints": ("own",)}, {}, False),
        ({"taints": ("own",)}, {"tolerates": ("own", "more")}, True),
        ({"taints": ("own", "new")}, {"tolerates": ("own",)}, False),
    ],
)
def test_labels_and_taints_decide_where_a_gang_may_be(node: dict[str, Any], shape: dict[str, Any], suit: bool) -> None:
    """All labels, and no taint that it does not tolerate."""
    assert suits(Node(node_id=NodeId("n"), **node), Shape(1, **shape)) is suit
