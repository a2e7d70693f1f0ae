"""What bytes are a report: those of an agent's own events, and nothing else."""

import pytest

from events.ask import Refused, Report
from events.base import NodeEpoch, NodeId, RunId
from events.node import CheckpointSaved, NodeDescribed
from services.gate.reports import decoded, problem_of
from tests.histories import BEGIN

RELEASE = b"""{"type":"musterbook.node.gpus_released.v1","at":"2026-01-01T00:00:00Z","node_id":"n","node_epoch":7,
"run_id":"jx-1","slots":3}"""


def test_a_report_is_read() -> None:
    """With the events that it holds, in order."""
    report = decoded(b'{"instance":"i","reports":[%b,%b]}' % (RELEASE, RELEASE))
    assert isinstance(report, Report)
    assert [one.node_id for one in report.reports] == ["n", "n"]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b'{"instance":"i","reports":[{"type":"musterbook.job.placed.v1"}]}',
        b'{"instance":"i","reports":[%b]}' % RELEASE.replace(b'"slots":3', b'"slots":0'),
        b'{"instance":"i","reports":[%b]}' % RELEASE.replace(b'"node_epoch":7', b'"node_epoch":"7"'),
        b'{"instance":"i","reports":[%b]}' % RELEASE.replace(b',\n"run_id":"jx-1"', b""),
    ],
)
def test_what_is_no_report_is_refused_with_the_place(payload: bytes) -> None:
    """Truncated, of another kind, or with values that cannot be."""
    refused = decoded(payload)
    assert isinstance(refused, Refused)
    assert refused.message.startswith("the report cannot be read: ")


@pytest.mark.parametrize(
    ("labels", "taints", "said"),
    [
        ({"rack": "r1", "kernel": "6.1/lts"}, ("old",), ""),
        ({"a b": "x"}, (), "labels: 'a b' is no name or value of one"),
        ({"rack": ""}, (), "labels: '' is no name or value of one"),
        ({"rack": "r1,fabric=ib"}, (), "labels: 'r1,fabric=ib' is no name or value of one"),
        ({f"l{n}": "x" for n in range(65)}, (), "labels: are 65, 64 is the most"),
        ({}, ("a|b",), "taints: 'a|b' is none"),
        ({}, ("old", "old"), "taints: one is named twice"),
        ({}, tuple(map(str, range(65))), "taints: are 65, 64 is the most"),
    ],
)
def test_what_a_node_says_of_itself_has_few_letters(labels: dict[str, str], taints: tuple[str, ...], said: str) -> None:
    """Jobs ask for it, and it becomes one word: what separates words there cannot be in it."""
    one = NodeDescribed(at=BEGIN, node_id=NodeId("n"), node_epoch=NodeEpoch(7), labels=labels, taints=taints)
    refused = problem_of(NodeId("n"), Report(instance="i", reports=(one,)))
    assert (said in refused.message) if refused is not None else said == ""


def test_a_checkpoint_is_of_a_run_in_a_life() -> None:
    """Without one or the other it is refused."""
    for epoch, run, taken in ((7, "jx-1", True), (0, "jx-1", False), (7, "jx", False)):
        one = CheckpointSaved(
            at=BEGIN, node_id=NodeId("n"), node_epoch=NodeEpoch(epoch), run_id=RunId(run), number=1
        )  # fmt: skip
        assert (problem_of(NodeId("n"), Report(instance="i", reports=(one,))) is None) is taken
