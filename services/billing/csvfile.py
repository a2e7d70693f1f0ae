"""FOCUS datasets as CSV: a line with the names of the columns, then a line a row. Source: RFC 4180; null is empty.

Decimals always have a point, so that programs that guess types from values guess the same in every file.
"""

import csv
import io
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from types import NoneType
from typing import Any, Final

from services.billing.columns import NAMES, Value
from services.billing.exact import Exact


class CsvFile:
    """Gives the file piece by piece."""

    def begin(self) -> bytes:
        """Its first bytes."""
        return _lines([NAMES])

    def add(self, rows: Iterable[tuple[Value, ...]]) -> bytes:
        """The bytes of these rows."""
        return _lines(map(_text, row) for row in rows)

    def end(self) -> bytes:
        """Its last bytes."""
        return b""


def _lines(rows: Iterable[Iterable[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()


def _text(value: Value) -> str:
    return TEXTS[type(value)](value)


def _decimal(value: Exact) -> str:
    return text if "." in (text := str(value)) else f"{text}.0"


@lru_cache(maxsize=1_000)  # many rows have the same times
def _time(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


TEXTS: Final[dict[type, Callable[[Any], str]]] = {
    NoneType: lambda _: "",
    str: str,
    int: str,
    Exact: _decimal,
    datetime: _time,
}
