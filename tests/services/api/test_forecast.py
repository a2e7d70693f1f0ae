"""How long credits last: tables and laws."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.api.forecast import LEFT_MAX, Forecast, Recorded, Running, forecast

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
MICRO = 1_000_000
ONE = 1_000 * MICRO  # nano-credits: a credit for an hour of a GPU


def ago(**span: float) -> datetime:
    """So long before now."""
    return NOW - timedelta(**span)


@pytest.mark.parametrize(
    ("recorded", "running", "per_day", "left"),
    [
        (Recorded(70 * MICRO, ago(days=30)), [], 10 * MICRO, 10.0),
        (Recorded(20 * MICRO, ago(days=2)), [], 10 * MICRO, 10.0),  # as many days as there are
        (Recorded(0, ago(days=30)), [], 0, None),  # nothing of late
        (Recorded(-5 * MICRO, ago(days=30)), [], 0, None),  # more was taken back than used
        (Recorded(0, None), [Running(ago(hours=2), 8, ONE)], 192 * MICRO, 0.52),
        (Recorded(62 * MICRO, ago(days=7)), [Running(ago(minutes=30), 16, ONE)], 10 * MICRO, 10.0),
        (Recorded(0, None), [Running(ago(days=14), 1, ONE)], 24 * MICRO, 4.17),  # of the window alone
        (Recorded(1, ago(days=7)), [], 0, None),  # less than the least there is, a day
        (Recorded(7, ago(days=7)), [], 1, LEFT_MAX),
    ],
)
def test_the_pace_is_what_was_used_by_the_days(
    recorded: Recorded, running: list[Running], per_day: int, left: float | None
) -> None:
    """Of seven days at the most; what goes on counts up to now."""
    found = forecast(100 * MICRO, recorded, running, NOW)
    assert (found.per_day_micro, found.days_left) == (per_day, left)


def test_what_too_little_is_known_of_is_not_foretold() -> None:
    """Nothing at all, or less than an hour."""
    assert forecast(MICRO, Recorded(0, None), [], NOW) == Forecast(None, 0, None, None, "nothing was used yet")
    early = forecast(MICRO, Recorded(5 * MICRO, ago(minutes=59)), [], NOW)
    assert (early.used_micro, early.per_day_micro, early.days_left) == (5 * MICRO, None, None)
    assert early.basis.startswith("not enough is known: it was first used at 2026-11-30 11:01 UTC")
    assert forecast(MICRO, Recorded(5 * MICRO, ago(hours=1)), [], NOW).per_day_micro == 120 * MICRO


def test_the_basis_is_told() -> None:
    """Since when, how much, over how long."""
    assert forecast(MICRO, Recorded(84 * MICRO, ago(days=9)), [], NOW).basis == (
        "since 2026-11-23 12:00 UTC, 84 credits of recorded use and of runs that go on, over 7 days"
    )
    assert forecast(MICRO, Recorded(MICRO // 2, ago(hours=3.2)), [], NOW).basis == (
        "since 2026-11-30 08:48 UTC, 0.5 credits of recorded use and of runs that go on, over 3.2 hours"
    )


def test_who_has_nothing_has_no_day_left() -> None:
    """Nor who is overdrawn."""
    for balance in (0, -MICRO):
        assert forecast(balance, Recorded(MICRO, ago(days=1)), [], NOW).days_left == 0.0


@given(
    used=st.integers(0, 10**15),
    hours=st.integers(1, 1_000),
    gpus=st.integers(0, 10_000),
    running_h=st.integers(0, 1_000),
    balance=st.integers(-(10**12), 10**15),
)
def test_more_use_never_lasts_longer(used: int, hours: int, gpus: int, running_h: int, balance: int) -> None:
    """And what goes on counts as what is recorded of it would."""
    recorded, run = Recorded(used, ago(hours=hours)), Running(ago(hours=min(hours, running_h)), gpus, ONE)
    less, more = forecast(balance, recorded, [], NOW), forecast(balance, recorded, [run], NOW)
    counted_h = min(hours, running_h, 7 * 24)
    assert more.used_micro == used + gpus * counted_h * MICRO
    same = forecast(balance, Recorded(more.used_micro, recorded.first), [], NOW)
    assert (same.per_day_micro, same.days_left) == (more.per_day_micro, more.days_left)
    assert less.per_day_micro is not None
    assert more.per_day_micro is not None
    assert less.per_day_micro <= more.per_day_micro
    if less.days_left is not None:
        assert more.days_left is not None
        assert more.days_left <= less.days_left
