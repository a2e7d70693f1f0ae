"""Tables and times for people."""

from datetime import UTC, datetime

import pytest

from services.cli.table import Column, ago, duration, fit

COLUMNS = (Column("JOB"), Column("NAME", drop=2), Column("GPUS", right=True, drop=1))
ROWS = [["jabcdefghijkl", "train", "8"], ["jmnopqrstuvwx", "a-longer-name", "16"]]


def test_a_wide_terminal_shows_every_column() -> None:
    """All columns, padded to their longest cell; numbers to the right."""
    assert fit(COLUMNS, ROWS, 80) == [
        ["JOB          ", "NAME         ", "GPUS"],
        ["jabcdefghijkl", "train        ", "   8"],
        ["jmnopqrstuvwx", "a-longer-name", "  16"],
    ]


@pytest.mark.parametrize(("width", "titles"), [(34, 3), (33, 2), (19, 2), (18, 1), (5, 1)])
def test_a_narrow_terminal_drops_columns_and_never_cuts_an_id(width: int, titles: int) -> None:
    """The least important column goes first; the id stays whole, also where the line must wrap."""
    table = fit(COLUMNS, ROWS, width)
    assert len(table[0]) == titles
    assert [row[0] for row in table[1:]] == ["jabcdefghijkl", "jmnopqrstuvwx"]
    assert titles == 1 or sum(map(len, table[1])) + 2 * (titles - 1) <= width


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (60, "1m 00s"), (3599, "59m 59s"), (3600, "1h 00m"), (90000, "1d 1h"), (-3, "0s")],
)
def test_a_span_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    """Also one that clocks make negative."""
    assert duration(seconds) == text


def test_an_age_is_relative_to_the_time_given() -> None:
    """And empty where there is no time."""
    now = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    assert ago("2026-01-01T11:58:20Z", now) == "1m 40s ago"
    assert ago(None, now) == ""
