"""Times as people type them, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from services.gate.durations import duration, seconds, whole_seconds


@pytest.mark.parametrize(
    ("typed", "meant"), [(90, 90), ("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5_400), ("2d", 172_800), (0.5, 0.5)]
)
def test_a_time_is_read_in_seconds(typed: object, meant: float) -> None:
    """Numbers are seconds; text has units."""
    assert seconds(typed) == meant


@pytest.mark.parametrize("typed", ["", "x", "10 minutes", "-5s", None, True, [], "1.5h"])
def test_what_is_no_time_is_refused(typed: object) -> None:
    """Rather than taken for another."""
    with pytest.raises(PydanticCustomError):
        seconds(typed)


def test_whole_seconds_have_no_parts() -> None:
    """2.0 is 2; 2.5 is not."""
    assert whole_seconds(2.0) == 2
    with pytest.raises(PydanticCustomError):
        whole_seconds(2.5)


@given(st.integers(0, 31_536_000) | st.floats(0, 1_000))
def test_a_time_that_is_shown_can_be_typed(given_s: float) -> None:
    """In the largest unit that divides it."""
    assert seconds(duration(given_s)) == given_s


def test_the_unit_is_the_largest_that_divides_it() -> None:
    """90 s are no whole minutes."""
    assert [duration(given_s) for given_s in (0, 90, 120, 7_200, 172_800, 2.5)] == ["0s", "90s", "2m", "2h", "2d", 2.5]
