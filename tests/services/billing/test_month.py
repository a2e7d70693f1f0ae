"""Months, and up to where each counts."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from events.base import Position
from projections.tables.period_view import PeriodRow
from services.billing.month import Month, Period, month_typed, period, scope

AT = datetime(2026, 11, 1, tzinfo=UTC)
OCTOBER, NOVEMBER, DECEMBER = Month(2026, 10), Month(2026, 11), Month(2026, 12)
CLOSED = [PeriodRow("2026-10", AT, Position(100)), PeriodRow("2026-11", AT, Position(200))]


def test_months_follow_each_other_over_years() -> None:
    """The end of one is the start of the next."""
    assert (DECEMBER.next, Month(2027, 1).before) == (Month(2027, 1), DECEMBER)
    assert (NOVEMBER.next, NOVEMBER.before) == (DECEMBER, OCTOBER)
    assert (NOVEMBER.start, NOVEMBER.end) == (AT, datetime(2026, 12, 1, tzinfo=UTC))
    assert [month_typed(text) for text in ("2026-11", "2026-13", "26-11", "2026-1", "")] == [NOVEMBER, *[None] * 4]


def test_a_closed_month_counts_up_to_its_end_and_an_open_one_up_to_now() -> None:
    """A month before the first that was closed was closed with it: nothing was ever to be added to it."""
    now = Position(900)
    assert period(CLOSED, NOVEMBER, now) == Period(NOVEMBER, Position(200), closed=True)
    assert period(CLOSED, DECEMBER, now) == Period(DECEMBER, now, closed=False)
    assert period(CLOSED, Month(2026, 8), now) == Period(Month(2026, 8), Position(100), closed=True)


@given(st.integers(min_value=1, max_value=400), st.sampled_from([OCTOBER, NOVEMBER, DECEMBER]))
def test_what_is_stored_counts_in_one_month(position: int, of: Month) -> None:
    """Whenever it comes: in its own if that is open then, else in the first that is."""
    now = Position(400)
    counted = []
    for month in (Month(2026, 9), OCTOBER, NOVEMBER, DECEMBER, Month(2027, 1)):
        chosen = scope(CLOSED, period(CLOSED, month, now), account=None, team=None)
        own = month == of
        late = of < month and chosen.after is not None and position > chosen.after
        if position <= chosen.through and (own or late):
            counted.append(month)
    first_open = OCTOBER if position <= 100 else NOVEMBER if position <= 200 else DECEMBER
    assert counted == [max(of, first_open)]
