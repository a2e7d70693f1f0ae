"""A node in words."""

from datetime import UTC, datetime
from typing import Any

import pytest

from services.cli.node_words import clock, state_of, why_of

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
DRAIN = {
    "cause": "lemon",
    "since": "2026-12-01T11:00:00Z",
    "by": "",
    "reason": "5 faults",
    "deadline": None,
    "drained_at": None,
}
WINDOW = {"window": "fans", "starts": "2026-12-01T14:00:00Z", "ends": "2026-12-02T16:00:00Z", "reason": ""}
NODE: dict[str, Any] = {"state": "up", "runs": 2, "gpus_used": 16, "windows": []}


@pytest.mark.parametrize(
    ("changed", "state", "why"),
    [
        ({}, "up", ""),
        ({"state": "suspect"}, "suspect", ""),
        ({"standing": "draining", "drain": DRAIN}, "draining", "2 runs, 16 GPUs; 1h 00m ago (lemon): 5 faults"),
        (
            {"standing": "maintenance", "drain": DRAIN | {"drained_at": "2026-12-01T11:30:00Z", "window": "fans"}},
            "maintenance",
            "1h 00m ago (lemon): 5 faults; maintenance fans",
        ),
        (
            {"standing": "drained", "state": "lost", "drain": DRAIN | {"drained_at": "x", "by": "api:ada"}},
            "lost, drained",
            "1h 00m ago by api:ada: 5 faults",
        ),
        (
            {"standing": "cordoned", "cordoned": True, "cordoned_at": "2026-12-01T11:59:00Z", "cordoned_by": "api:bob"},
            "cordoned",
            "cordoned 1m 00s ago by api:bob",
        ),
        ({"windows": [WINDOW]}, "up", "maintenance fans 14:00 to 2026-12-02 16:00 UTC"),
        (
            {"standing": "retired", "state": "lost", "retired_at": "2026-12-01T11:00:00Z"},
            "retired",
            "retired 1h 00m ago",
        ),
    ],
)
def test_state_and_reason(changed: dict[str, Any], state: str, why: str) -> None:
    """The gravest reason, since when, by whom, and what is waited for."""
    node = NODE | changed
    assert (state_of(node), why_of(node, NOW)) == (state, why)


def test_a_moment_has_its_date_where_that_is_another_one() -> None:
    """Days are those of UTC."""
    assert clock(NOW.replace(hour=23), NOW) == "23:00 UTC"
    assert clock(NOW.replace(day=2), NOW) == "2026-12-02 12:00 UTC"
