"""A node as a document, from its row."""

from datetime import timedelta
from typing import Any

import pytest

from events.base import JobId, NodeEpoch, NodeId, Position, RunId, TeamId
from events.fleet import DrainCause
from projections.cluster.fitness import Drain, Window
from projections.tables.node_view import Held, Node
from services.api.drain_schemas import DrainBody, MaintainBody
from services.api.fleet_schemas import Node as Shown
from services.api.node_documents import holding, node, standing
from tests.clusters import BEGIN

ROW: dict[str, Any] = {
    "node_id": NodeId("n1"), "epoch": NodeEpoch(1), "state": "up", "boot_id": "b", "instance": "i", "gpu_type": "h100",
    "gpus": 8, "address": "::1", "port_base": 20_000, "agent_version": "1", "labels": {"rack": "r1"}, "silent_s": None,
    "joined_at": BEGIN, "state_at": BEGIN, "position": Position(1), "taints": [],
}  # fmt: skip
DRAIN = Drain(DrainCause.OPERATOR, BEGIN, "fan", BEGIN, by="api:ada")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, "open"),
        ({"cordoned_at": BEGIN}, "cordoned"),
        ({"cordoned_at": BEGIN, "drain": DRAIN}, "draining"),
        ({"drain": Drain(DrainCause.GPU, BEGIN, done_at=BEGIN)}, "drained"),
        ({"drain": Drain(DrainCause.GPU, BEGIN, done_at=BEGIN, window="w")}, "maintenance"),
        ({"drain": DRAIN, "retired_at": BEGIN}, "retired"),
    ],
)
def test_the_gravest_reason_is_where_a_node_stands(changed: dict[str, Any], told: str) -> None:
    """Of several that keep new work from it."""
    assert standing(Node(**ROW | changed)) == told


def test_a_row_is_a_document() -> None:
    """Every field of it, with what drains the node and what is planned."""
    windows = (Window("w", BEGIN, BEGIN + timedelta(hours=1), "fans", "api:bob"),)
    row = Node(**ROW, drain=DRAIN, windows=windows, held=3, free=4, run_ids=["a", "b"], sick=1)
    shown = Shown(**node(row))
    assert (shown.gpus_out, shown.gpus_sick, shown.runs, shown.rack) == (1, 1, 2, "r1")
    assert shown.drain is not None
    assert (shown.drain.by, shown.drain.reason, shown.drain.deadline) == ("api:ada", "fan", BEGIN)
    assert [(one.window, one.by) for one in shown.windows] == [("w", "api:bob")]


def test_a_run_that_holds_gpus_ends_by_what_it_declared() -> None:
    """Counted from its start, or from when it was placed."""
    held = Held(RunId("j-1"), JobId("j"), TeamId("t"), "train", "placed", 2, BEGIN, None, 60)
    assert holding(held).ends_by == BEGIN + timedelta(seconds=60)
    assert holding(held._replace(started_at=BEGIN + timedelta(seconds=5))).ends_by == BEGIN + timedelta(seconds=65)
    assert holding(held._replace(max_runtime_s=None)).ends_by is None


def test_bodies_have_what_cannot_be_left_out() -> None:
    """A drain its reason, maintenance its name."""
    assert DrainBody.model_fields["reason"].is_required()
    assert MaintainBody.model_fields["window"].is_required()
