"""Parquet files, as readers that are not ours see them."""

import io
from datetime import UTC, datetime
from decimal import Decimal, localcontext
from typing import Any

import pytest
from arro3.io import read_parquet
from hypothesis import given
from hypothesis import strategies as st

from services.billing.columns import COLUMNS, NAMES, Column, Kind, Value
from services.billing.exact import Exact
from services.billing.focus import row
from services.billing.parquet import ParquetFile, TooLarge
from tests.services.billing.charged import SOLD, used

FEW = (
    Column("Name"),
    Column("Maybe", nullable=True),
    Column("At", Kind.DATE_TIME, nullable=True),
    Column("Cost", Kind.DECIMAL, places=24),
    Column("Count", Kind.INTEGER, nullable=True),
)
TEXT = st.text(max_size=8) | st.sampled_from(["a", "b"])
ROWS = st.lists(
    st.tuples(
        TEXT,
        st.none() | TEXT,
        st.none() | st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
        st.builds(Exact, st.integers(min_value=-(10**13), max_value=10**13), st.integers(min_value=0, max_value=18)),
        st.none() | st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1),
    ),
    max_size=30,
)


def written(rows: list[tuple[Value, ...]], most: int, columns: tuple[Column, ...] = FEW, step: int = 7) -> bytes:
    """The file, with rows added a few at a time."""
    file = ParquetFile({"said": "so"}, columns, most)
    pieces = [file.begin()]
    pieces += [file.add(rows[first : first + step]) for first in range(0, len(rows), step)]
    return b"".join([*pieces, file.end()])


def read(data: bytes) -> list[tuple[Any, ...]]:
    """The rows of a file."""
    table = read_parquet(io.BytesIO(data)).read_all()
    columns = [[scalar.as_py() for scalar in table.column(name)] for name in table.schema.names]
    return list(zip(*columns, strict=True))


@given(ROWS, st.integers(min_value=1, max_value=50))
def test_what_is_written_is_read(rows: list[tuple[Value, ...]], most: int) -> None:
    """In groups of any size: repeated values, nulls, none at all; by a reader that others wrote."""
    with localcontext(prec=60):
        expected = [
            tuple(Decimal(value.units).scaleb(-value.places) if isinstance(value, Exact) else value for value in row)
            for row in rows
        ]
        assert read(written(rows, most)) == expected


@given(ROWS)
def test_bytes_depend_on_rows_and_not_on_how_they_came(rows: list[tuple[Value, ...]]) -> None:
    """A closed month is exported alike, whatever size the pages were in that it was read by."""
    assert written(rows, 9, step=1) == written(rows, 9, step=100)


def test_a_dataset_has_the_types_of_its_columns() -> None:
    """Decimals are decimals, times are times of UTC, and what may not be null is said to be so."""
    rows = [row(used(), SOLD)] * 3
    table = read_parquet(io.BytesIO(written(rows, 2, COLUMNS))).read_all()
    assert tuple(table.schema.names) == NAMES
    types = {column.name: (str(table.schema.field(column.name).type), column) for column in COLUMNS}
    assert "Decimal128(38, 24)" in types["EffectiveCost"][0]
    assert "Timestamp" in types["ChargePeriodStart"][0]
    assert "UTC" in types["ChargePeriodStart"][0]
    assert "Int64" in types["x_EventPosition"][0]
    assert all(table.schema.field(column.name).nullable == column.nullable for column in COLUMNS)
    assert table.num_rows == 3


def test_values_that_repeat_are_stored_once() -> None:
    """A month of a million records must not be a thousand bytes each."""
    rows: list[tuple[Value, ...]] = [("the same name in every row", None, None, Exact(1), 5)] * 10_000
    assert len(written(rows, 10_000)) < 1_000


def test_a_number_beyond_parquets_decimals_is_said_to_be() -> None:
    """Never cut off."""
    with pytest.raises(TooLarge, match="Cost 100000000000000 has more than 38 digits"):
        written([("a", None, None, Exact(10**14), None)], 1)
