"""Silences in few words."""

from typing import Any

import pytest

from services.cli.silence_detail import TOLD

LOST: dict[str, Any] = {"node_id": "n1", "silent_s": 125.2, "patience": "cost", "patience_s": 120.0}
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("node.suspected", {"node_id": "n1", "silent_s": 30.4}, "n1, silent for 30s"),
    ("node.lost", {"node_id": "n1", "silent_s": 92.0}, "n1, silent for 1m 32s"),
    ("node.lost", LOST, "n1, silent for 2m 05s; given up after 2m 00s (cost)"),
    (
        "node.lost",
        LOST | {"waiting_gpu_s": 960.4, "restart_gpu_s": 940.0},
        "n1, silent for 2m 05s; given up after 2m 00s (cost): waiting 960 GPU-seconds, a restart 940",
    ),
    ("node.clock_judged", {"node_id": "n1", "ahead_s": -2.04}, "n1, 2.0 s behind the control plane's"),
    ("node.clock_judged", {"node_id": "n1", "ahead_s": 61}, "n1, 61.0 s ahead of the control plane's"),
]


@pytest.mark.parametrize(("kind", "data", "said"), CASES)
def test_a_silence_says_its_length_and_its_cost(kind: str, data: dict[str, Any], said: str) -> None:
    """As docs/silence.md promises of `muster events`; what an older control plane wrote says less."""
    assert TOLD[kind](data) == said
