"""Months of UTC, and what counts in them."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from events.base import Position
from projections.tables.charges import Scope, closed_at
from projections.tables.period_view import PeriodRow

MONTH: Final = re.compile(r"(2[0-9]{3})-(0[1-9]|1[0-2])")


class Month(NamedTuple):
    """A month of UTC."""

    year: int
    number: int

    def __str__(self) -> str:
        return f"{self.year:04}-{self.number:02}"

    @property
    def start(self) -> datetime:
        """Its first moment."""
        return datetime(self.year, self.number, 1, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        """The first moment after it."""
        return self.next.start

    @property
    def next(self) -> "Month":
        """The one after it."""
        return Month(self.year + self.number // 12, self.number % 12 + 1)

    @property
    def before(self) -> "Month":
        """The one before it."""
        return Month(self.year - (self.number == 1), (self.number - 2) % 12 + 1)


def month_typed(text: str) -> Month | None:
    """The month that is typed so: "2026-11"; None for any other text."""
    found = MONTH.fullmatch(text)
    return Month(int(found[1]), int(found[2])) if found else None


class Period(NamedTuple):
    """A month as it is exported."""

    month: Month
    through: Position  # the last position that counts
    closed: bool  # nothing of it will ever change


def period(months: Sequence[PeriodRow], month: Month, now: Position) -> Period:
    """The month, up to the record that closed it; an open one up to `now`, the position that the tables show."""
    closed = closed_at(months, str(month))
    return Period(month, now if closed is None else closed, closed is not None)


def scope(months: Sequence[PeriodRow], chosen: Period, *, account: str | None, team: str | None) -> Scope:
    """What counts in the month: what is of it and was stored up to its end; what is of an earlier one and was stored later.

    The first is all that there usually is. The second is what comes after an earlier month was closed, so that it is in
    the first month that was open then, and no record is in two months or in none.
    """
    return Scope(
        month=str(chosen.month),
        start=chosen.month.start,
        end=chosen.month.end,
        through=chosen.through,
        after=closed_at(months, str(chosen.month.before)),
        account=account,
        team=team,
    )
