"""Moments of the past: every way of typing one, and what is said of those that are none."""

from datetime import UTC, datetime, timedelta

import pytest

from events.base import Position, position_of
from services.api.moment import Moment, moment_of
from services.api.problems import Troubled

NOW = datetime(2026, 3, 1, 14, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "time"),
    [
        ("2026-02-28T14:30:00Z", datetime(2026, 2, 28, 14, 30, tzinfo=UTC)),
        ("2026-02-28T14:30:00.5+02:00", datetime(2026, 2, 28, 12, 30, 0, 500_000, tzinfo=UTC)),
        ("2026-02-28 14:30", datetime(2026, 2, 28, 14, 30, tzinfo=UTC)),
        ("2026-02-28", datetime(2026, 2, 28, tzinfo=UTC)),
        ("14:30", NOW),
        ("14:31", NOW + timedelta(minutes=1, days=-1)),
        ("00:05:30", datetime(2026, 3, 1, 0, 5, 30, tzinfo=UTC)),
        ("10m ago", NOW - timedelta(minutes=10)),
        ("1d2h ago", NOW - timedelta(hours=26)),
        (" 90s ago ", NOW - timedelta(seconds=90)),
        ("999999d ago", datetime.min.replace(tzinfo=UTC)),
    ],
)
def test_a_time_may_be_typed_as_people_say_it(typed: str, time: datetime) -> None:
    """Where it says no zone, and none of a day, the last such time in UTC."""
    assert moment_of(typed, NOW) == Moment(typed, None, time)


@pytest.mark.parametrize(
    ("typed", "position"), [("1:27", position_of(1, 27)), ("2:1", position_of(2, 1)), ("1099511627803", 1099511627803)]
)
def test_a_position_is_one_as_events_are_shown_with(typed: str, position: int) -> None:
    """Or its one number. An hour has two digits, a chapter so far one."""
    assert moment_of(typed, NOW) == Moment(typed, Position(position), None)


@pytest.mark.parametrize(
    "typed", ["", "yesterday", "ago", "10 ago", "1:", ":27", "1:2:3", "1:9999999999999", "25h61", "x" * 100, "-5m ago"]
)
def test_what_is_no_moment_is_told_with_what_would_be_one(typed: str) -> None:
    """As a problem with the field's name."""
    with pytest.raises(Troubled) as raised:
        moment_of(typed, NOW)
    assert raised.value.problem.status == 422
    assert raised.value.problem.detail.startswith("at: ")
    assert "10m ago" in raised.value.problem.hint


def test_what_has_not_come_is_no_past() -> None:
    """With the time here: clocks differ."""
    with pytest.raises(Troubled, match="has not come: it is 2026-03-01T14:30:00Z here"):
        moment_of("2026-03-01T14:30:01Z", NOW)
