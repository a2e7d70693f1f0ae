"""Months of the clock, UTC, as they are written: `2026-11`. Their order is that of the texts."""

import re
from datetime import UTC, datetime
from typing import Final

MONTH: Final = re.compile(r"[1-8][0-9]{3}-(0[1-9]|1[0-2])")  # all of them have a next one that a clock can show


def is_month(text: str) -> bool:
    """Whether a text is a month."""
    return MONTH.fullmatch(text) is not None


def month_of(at: datetime) -> str:
    """The month that a time is in."""
    at = at.astimezone(UTC)
    return f"{at.year:04}-{at.month:02}"


def end_of(month: str) -> datetime:
    """When a month is over: the first moment of the next."""
    year, number = int(month[:4]), int(month[5:])
    return datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)


def month_after(month: str) -> str:
    """The month after that."""
    return month_of(end_of(month))
