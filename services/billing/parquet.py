"""FOCUS datasets as Parquet: written in row groups, never compressed, so that the same rows give the same bytes for ever.

Values that repeat are stored once in a group, and numbered. Source: Apache Parquet, file format, encodings and logical
types.
"""

import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from services.billing.columns import COLUMNS, PRECISION, Column, Kind, Value
from services.billing.exact import Exact
from services.billing.thrift import Long, Struct, joined, varint

MAGIC: Final = b"PAR1"
GROUP_ROWS: Final = 20_000  # held in memory
CREATED_BY: Final = "musterbook"
INT64, BYTE_ARRAY, FIXED = 2, 6, 7  # physical types
REQUIRED, OPTIONAL = 0, 1
UTF8, DECIMAL, TIMESTAMP_MICROS = 0, 5, 10  # converted types, for readers that know no logical ones
PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8  # encodings
DATA_PAGE, DICTIONARY_PAGE = 0, 2
UNCOMPRESSED: Final = 0
DECIMAL_BYTES: Final = 16
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
PACKED: Final = 8  # numbers in one group of packed ones


class TooLarge(Exception):
    """A number has more digits than Parquet's decimals."""


class ParquetFile:
    """Gives the file piece by piece. `metadata` is kept in it, by name."""

    def __init__(self, metadata: dict[str, str], columns: Sequence[Column] = COLUMNS, most: int = GROUP_ROWS) -> None:
        self._metadata = metadata
        self._columns = columns
        self._most = most
        self._rows: list[tuple[Value, ...]] = []
        self._groups: list[Struct] = []
        self._written = 0  # bytes
        self._count = 0  # rows

    def begin(self) -> bytes:
        """Its first bytes."""
        self._written = len(MAGIC)
        return MAGIC

    def add(self, rows: Iterable[tuple[Value, ...]]) -> bytes:
        """The bytes of these rows and earlier ones, as far as they fill groups. Raises `TooLarge`."""
        self._rows += rows
        found = b""
        while len(self._rows) >= self._most:
            found += self._group(self._rows[: self._most])
            del self._rows[: self._most]
        return found

    def end(self) -> bytes:
        """Its last bytes. Raises `TooLarge`."""
        last = self._group(self._rows) if self._rows else b""
        foot = bytes(
            Struct(
                (1, 2),
                (2, [Struct((4, "schema"), (5, len(self._columns))), *map(_element, self._columns)]),
                (3, Long(self._count)),
                (4, self._groups),
                (5, [Struct((1, name), (2, value)) for name, value in self._metadata.items()]),
                (6, CREATED_BY),
            )
        )
        return last + foot + struct.pack("<I", len(foot)) + MAGIC

    def _group(self, rows: list[tuple[Value, ...]]) -> bytes:
        chunks, parts, began = [], [], self._written
        for column, values in zip(self._columns, zip(*rows, strict=True), strict=True):
            part, chunk = _chunk(column, values, self._written)
            parts.append(part)
            chunks.append(chunk)
            self._written += len(part)
        self._groups.append(Struct((1, chunks), (2, Long(self._written - began)), (3, Long(len(rows)))))
        self._count += len(rows)
        return joined(parts)


def _element(column: Column) -> Struct:
    """The column in the schema."""
    repetition = OPTIONAL if column.nullable else REQUIRED
    physical = _physical(column)
    match column.kind:
        case Kind.DECIMAL:
            logical = Struct((5, Struct((1, column.places), (2, PRECISION))))
            return Struct(
                (1, physical), (2, DECIMAL_BYTES), (3, repetition), (4, column.name), (6, DECIMAL), (7, column.places),
                (8, PRECISION), (10, logical),
            )  # fmt: skip
        case Kind.DATE_TIME:
            logical = Struct((8, Struct((1, True), (2, Struct((2, Struct()))))))
            return Struct((1, physical), (3, repetition), (4, column.name), (6, TIMESTAMP_MICROS), (10, logical))
        case Kind.INTEGER:
            return Struct((1, physical), (3, repetition), (4, column.name))
        case Kind.STRING | Kind.JSON:
            return Struct((1, physical), (3, repetition), (4, column.name), (6, UTF8), (10, Struct((1, Struct()))))


def _physical(column: Column) -> int:
    match column.kind:
        case Kind.DECIMAL:
            return FIXED
        case Kind.DATE_TIME | Kind.INTEGER:
            return INT64
        case Kind.STRING | Kind.JSON:
            return BYTE_ARRAY


def _chunk(column: Column, values: Sequence[Value], offset: int) -> tuple[bytes, Struct]:
    """A column of a group, which begins at `offset` in the file: its pages, and what the file's end says of it."""
    there = [_plain(column, value) for value in values if value is not None]
    distinct = {value: number for number, value in enumerate(dict.fromkeys(there))}
    numbered = len(distinct) * 2 <= len(there)
    levels = b""
    if column.nullable:
        levels = packed([int(value is not None) for value in values], 1)
        levels = struct.pack("<I", len(levels)) + levels
    if numbered:
        width = max(1, (len(distinct) - 1).bit_length())
        body = bytes([width]) + packed([distinct[value] for value in there], width)
        known = joined(distinct)
        dictionary = _page(DICTIONARY_PAGE, (7, Struct((1, len(distinct)), (2, PLAIN))), known)
    else:
        body, dictionary = joined(there), b""
    encoding = RLE_DICTIONARY if numbered else PLAIN
    head = (5, Struct((1, len(values)), (2, encoding), (3, RLE), (4, RLE)))
    pages = dictionary + _page(DATA_PAGE, head, levels + body)
    told = Struct(
        (1, _physical(column)),
        (2, [PLAIN, RLE, RLE_DICTIONARY] if numbered else [PLAIN, RLE]),
        (3, [column.name]),
        (4, UNCOMPRESSED),
        (5, Long(len(values))),
        (6, Long(len(pages))),
        (7, Long(len(pages))),
        (9, Long(offset + len(dictionary))),
        (11, Long(offset) if numbered else None),
    )
    return pages, Struct((2, Long(offset)), (3, told))


def _page(kind: int, head: tuple[int, Struct], body: bytes) -> bytes:
    return bytes(Struct((1, kind), (2, len(body)), (3, len(body)), head)) + body


def _plain(column: Column, value: str | int | datetime | Exact) -> bytes:
    """The value as a column of its kind stores it. Raises `TooLarge`."""
    match value:
        case Exact():
            units = value.at(column.places)
            if abs(units) >= 10**PRECISION:
                raise TooLarge(f"{column.name} {value} has more than {PRECISION} digits")
            return units.to_bytes(DECIMAL_BYTES, "big", signed=True)
        case str():
            text = value.encode()
            return struct.pack("<I", len(text)) + text
        case datetime():
            since = value - EPOCH
            return struct.pack("<q", (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)
        case int():
            return struct.pack("<q", value)


def packed(numbers: Sequence[int], width: int) -> bytes:
    """Numbers of `width` bits: in runs where that is shorter, else eight by eight."""
    size = (width + 7) // 8
    runs = [(number, sum(1 for _ in run)) for number, run in groupby(numbers)]
    if len(runs) * (size + 2) <= len(numbers) * width // 8 + 1 or len(runs) == 1:
        return joined(varint(count << 1) + number.to_bytes(size, "little") for number, count in runs)
    groups = -(-len(numbers) // PACKED)
    filled = [*numbers, *[0] * (groups * PACKED - len(numbers))]
    return varint(groups << 1 | 1) + joined(
        _eight(filled[first : first + PACKED], width) for first in range(0, len(filled), PACKED)
    )


def _eight(numbers: Sequence[int], width: int) -> bytes:
    """Eight numbers, the first in the lowest bits."""
    bits = 0
    for place, number in enumerate(numbers):
        bits |= number << (place * width)
    return bits.to_bytes(width, "little")
