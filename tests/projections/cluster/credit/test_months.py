"""Months of the clock."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from projections.cluster.credit.months import end_of, is_month, month_after, month_of


@given(st.timedeltas(timedelta(0), timedelta(days=7_000 * 365)))
def test_a_time_is_in_one_month(since: timedelta) -> None:
    """Which ends after it, and the next begins there."""
    at = datetime(1001, 1, 1, tzinfo=UTC) + since
    month = month_of(at)

    assert is_month(month)
    assert month_of(end_of(month)) == month_after(month) > month
    assert at < end_of(month)
    assert month_of(end_of(month) - timedelta(microseconds=1)) == month


def test_a_time_of_another_zone_is_in_the_month_of_utc() -> None:
    """The last hour of a month further west is in the next."""
    assert month_of(datetime.fromisoformat("2026-01-31T23:30:00-05:00")) == "2026-02"


def test_other_texts_are_no_months() -> None:
    """Nor is one that has no end that a clock can show."""
    assert [
        text for text in ("2026-1", "2026-00", "2026-13", "26-01", "9999-12", "2026-01 ", "") if is_month(text)
    ] == []
