"""When a clock is said to be elsewhere: by a second, and by half."""

import pytest

from projections.cluster.clocks import changed


@pytest.mark.parametrize(
    ("said_s", "measured_s", "is_new"),
    [
        (0.0, 0.9, False),
        (0.0, 1.0, True),
        (0.0, -1.0, True),
        (60.0, 61.5, False),
        (60.0, 90.0, False),
        (60.0, 120.0, True),
        (60.0, 30.0, True),
        (60.0, 0.2, True),
        (2.0, 1.2, False),
        (5.0, -5.0, True),
    ],
)
def test_a_clock_is_elsewhere_by_a_second_and_by_half(said_s: float, measured_s: float, *, is_new: bool) -> None:
    """A clock that drifts is told of some times, not at every beat."""
    assert changed(said_s, measured_s) is is_new
