"""Moments as people type them."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic_core import PydanticCustomError

from services.gate.moments import moment

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("30m", NOW + timedelta(minutes=30)),
        ("1h30m", NOW + timedelta(minutes=90)),
        ("0s", NOW),
        (" 2026-12-01T14:00:00Z ", NOW + timedelta(hours=2)),
        ("2026-12-01T14:00+02:00", NOW),
        ("2026-11-30 12:00Z", NOW - timedelta(days=1)),
    ],
)
def test_a_moment_is_a_time_or_a_while_from_now(typed: str, meant: datetime) -> None:
    """With any zone."""
    assert moment(typed, NOW) == meant


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("2026-12-01T14:00:00", "with its zone"),
        ("soon", "how long from now"),
        ("", "how long from now"),
        ("400d", "within a year"),
    ],
)
def test_what_is_neither_is_said(typed: str, told: str) -> None:
    """Also a time of which nobody knows where."""
    with pytest.raises(PydanticCustomError, match=told):
        moment(typed, NOW)
