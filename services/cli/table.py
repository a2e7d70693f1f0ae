"""Tables and times for people: columns that fit the terminal, ids never cut, plain text when piped."""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

GAP: Final = "  "
MINUTE_S: Final = 60
HOUR_S: Final = 3600
DAY_S: Final = 86400
WRAPPED: Final = 24  # columns that a text which wraps has at the least
MICRO: Final = 1_000_000
STYLES: Final[Mapping[str, str]] = {  # of states, as SGR parameters
    "running": "32",
    "succeeded": "32;2",
    "up": "32",
    "failed": "31",
    "lost": "31",
    "rejected": "31",
    "timed_out": "31",
    "cancelled": "2",
    "suspect": "33",
    "stopping": "33",
    "placed": "36",
    "cordoned": "33",
    "draining": "33",
    "drained": "36",
    "maintenance": "36",
    "retired": "2",
    "kept": "32",
    "late": "31",
    "paused": "33",
    "on hold": "31",
}


class Column(NamedTuple):
    """A column of a table. Those with the highest `drop` go first where the terminal is narrow; 0 stays."""

    title: str
    drop: int = 0
    right: bool = False
    wraps: bool = False  # the last one of a table: what finds no room on its line goes on below


def fit(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """The cells, header first, padded to their columns, of as many columns as `width` holds; no cell is cut."""
    table = [[column.title for column in columns], *[list(row) for row in rows]]
    widths = _widths(columns, table)
    return [_padded(columns, row, widths, _kept(columns, widths, width)) for row in table]


def _widths(columns: Sequence[Column], table: Sequence[Sequence[str]]) -> list[int]:
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    return [min(width, WRAPPED) if column.wraps else width for column, width in zip(columns, widths, strict=True)]


def _kept(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """The columns for which there is room."""
    kept = list(range(len(columns)))
    while sum(widths[i] for i in kept) + len(GAP) * (len(kept) - 1) > width:
        droppable = [i for i in kept if columns[i].drop]
        if not droppable:
            break  # a line longer than the terminal wraps: better than half an id
        kept.remove(max(droppable, key=lambda i: (columns[i].drop, i)))
    return kept


def _padded(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int], kept: Sequence[int]) -> list[str]:
    return [row[i].rjust(widths[i]) if columns[i].right else row[i].ljust(widths[i]) for i in kept]


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """The table is on stdout: as wide as the terminal, or with every column when piped."""
    print_pages(columns, [rows])


def print_pages(columns: Sequence[Column], pages: Iterable[Sequence[Sequence[str]]]) -> None:
    """A table of any length is on stdout, a page at a time. The first one says which columns there is room for.

    A column that has to become wider on a later page is so from there on.
    """
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else sys.maxsize
    colour = terminal and "NO_COLOR" not in os.environ
    titles = [column.title for column in columns]
    widths: list[int] = []
    kept: list[int] = []
    for rows in pages:
        if not widths:
            widths = _widths(columns, [titles, *rows])
            kept = _kept(columns, widths, width)
            print(GAP.join(_padded(columns, titles, widths, kept)).rstrip())
        widths = [max(pair) for pair in zip(widths, _widths(columns, [titles, *rows]), strict=True)]
        for row in rows:
            cells = _padded(columns, row, widths, kept)
            *before, last = [styled(cell) if colour else cell for cell in cells]
            if columns[kept[-1]].wraps and before:
                taken = sum(widths[i] + len(GAP) for i in kept[:-1])
                last = _wrapped(last, width - taken, taken)
            print(GAP.join([*before, last]).rstrip())


def _wrapped(text: str, width: int, taken: int) -> str:
    """The text, in lines of so many columns, those below the first one moved to the right by what stands before it."""
    lines = textwrap.wrap(text, max(width, WRAPPED), break_on_hyphens=False, break_long_words=False)
    return ("\n" + " " * taken).join(lines)


def print_wrapped(text: str, before: str) -> None:
    """The text is on stdout, after what stands before it; on a terminal wrapped to its width, below its first word."""
    if not sys.stdout.isatty():
        print(before + text)
        return
    width = max(40, shutil.get_terminal_size().columns)
    after = " " * len(before)
    print(textwrap.fill(text, width, initial_indent=before, subsequent_indent=after, break_on_hyphens=False))


def styled(cell: str) -> str:
    """The cell in the colour of the state that it names, if it names one."""
    style = STYLES.get(cell.strip())
    return f"\x1b[{style}m{cell}\x1b[0m" if style else cell


def parse_time(text: Any) -> datetime | None:  # noqa: ANN401  # a value of a JSON document
    """The time that a JSON document gives, or None where it gives none."""
    return datetime.fromisoformat(text) if isinstance(text, str) and text else None


def credits_of(micro: int) -> str:
    """Micro-credits as people read them, exactly: `192`, `0.5`, `-0.000001`."""
    whole, rest = divmod(abs(micro), MICRO)
    places = f".{rest:06}".rstrip("0") if rest else ""
    return f"{'-' if micro < 0 else ''}{whole}{places}"


def credits_told(amount: str) -> str:
    """`192 credits`, `1 credit`, of a decimal."""
    return f"{amount} credit" if amount.removeprefix("-") == "1" else f"{amount} credits"


def counted(number: int, thing: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def duration(seconds: float) -> str:
    """A span in its two largest units: 45s, 3m 20s, 2h 05m, 4d 3h."""
    s = max(0, int(seconds))
    if s < MINUTE_S:
        return f"{s}s"
    if s < HOUR_S:
        return f"{s // MINUTE_S}m {s % MINUTE_S:02d}s"
    if s < DAY_S:
        return f"{s // HOUR_S}h {s % HOUR_S // MINUTE_S:02d}m"
    return f"{s // DAY_S}d {s % DAY_S // HOUR_S}h"


def ago(then: Any, now: datetime) -> str:  # noqa: ANN401  # a value of a JSON document
    """How long before `now` that was; empty where there is no time."""
    at = parse_time(then)
    return f"{duration((now - at).total_seconds())} ago" if at else ""
