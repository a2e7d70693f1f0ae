"""Tables and times for people."""

from datetime import UTC, datetime

import pytest

from services.cli.table import Column, ago, credits_of, duration, fit, print_pages

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


def test_a_table_goes_on_under_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    """A cell that needs more room has it from its page on; without rows there is the header alone."""
    print_pages(COLUMNS, iter([[["j1", "a", "8"]], [["j22", "bb", "16"]], [["j333333", "c", "4"]]]))
    assert capsys.readouterr().out.splitlines() == [
        "JOB  NAME  GPUS",
        "j1   a        8",
        "j22  bb      16",
        "j333333  c        4",
    ]
    print_pages(COLUMNS, iter([[]]))
    assert capsys.readouterr().out == "JOB  NAME  GPUS\n"


@pytest.mark.parametrize(
    ("micro", "text"),
    [
        (0, "0"),
        (192_000_000, "192"),
        (500_000, "0.5"),
        (-1, "-0.000001"),
        (-1_250_000, "-1.25"),
        (10**19, "10000000000000"),
    ],
)
def test_credits_are_exact(micro: int, text: str) -> None:
    """No zeros at the end."""
    assert credits_of(micro) == text
