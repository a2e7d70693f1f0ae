"""Clocks."""

from datetime import UTC, datetime, timedelta

from runtime.clock import MANUAL_START, Clock, ManualClock, SystemClock


def test_the_systems_clock_is_aware_and_goes_forward() -> None:
    """Its time of day is UTC, and its seconds never go back."""
    clock: Clock = SystemClock()
    assert clock.now().utcoffset() == timedelta(0)
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)


def test_a_manual_clock_moves_only_when_moved() -> None:
    """A jump of the time of day is not a passing of time."""
    clock = ManualClock()
    clock.advance(1.5)
    assert (clock.now() - MANUAL_START, clock.monotonic()) == (timedelta(seconds=1.5), 1.5)
    clock.jump(datetime(2020, 1, 1, tzinfo=UTC))
    assert (clock.now().year, clock.monotonic()) == (2020, 1.5)
