"""Structures in Thrift's compact protocol, as far as the metadata of Parquet files needs it.

Source: Apache Thrift, compact protocol specification.
"""

from collections.abc import Iterable

BOOLEAN_TRUE = 1
BOOLEAN_FALSE = 2
I32 = 5
I64 = 6
BINARY = 8
LIST = 9
STRUCT = 12
SHORT_LIST_MAX = 14
SHORT_DELTA_MAX = 15


class Long(int):
    """A number of 64 bits; any other is one of 32."""


class Struct:
    """The bytes of a structure, to which fields are added by rising number. None is left out."""

    def __init__(self, *fields: tuple[int, "Field"]) -> None:
        self._bytes = bytearray()
        self._last = 0
        for number, value in fields:
            if value is not None:
                self._add(number, value)

    def _add(self, number: int, value: "Given") -> None:
        kind, delta = kind_of(value), number - self._last
        if isinstance(value, bool):
            kind = BOOLEAN_TRUE if value else BOOLEAN_FALSE
        assert 0 < delta <= SHORT_DELTA_MAX
        self._bytes.append(delta << 4 | kind)
        if not isinstance(value, bool):
            self._bytes += encoded(value)
        self._last = number

    def __bytes__(self) -> bytes:
        return bytes(self._bytes) + b"\0"


Given = bool | int | str | bytes | Struct | list[int] | list[str] | list[Struct]
Field = Given | None


def kind_of(value: Given) -> int:
    """Its type on the wire."""
    match value:
        case bool():
            return BOOLEAN_TRUE
        case Long():
            return I64
        case int():
            return I32
        case str() | bytes():
            return BINARY
        case Struct():
            return STRUCT
        case list():
            return LIST


def encoded(value: Given) -> bytes:
    """Its bytes, without its type."""
    match value:
        case int():
            return varint(value << 1 if value >= 0 else ((-value) << 1) - 1)
        case str():
            return encoded(value.encode())
        case bytes():
            return varint(len(value)) + value
        case Struct():
            return bytes(value)
        case list():
            kind = kind_of(value[0]) if value else STRUCT
            head = bytes([len(value) << 4 | kind]) if len(value) <= SHORT_LIST_MAX else _long(kind, len(value))
            return head + joined(map(encoded, value))


def varint(value: int) -> bytes:
    """A number of 0 or more, seven bits a byte, the lowest first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def joined(parts: Iterable[bytes]) -> bytes:
    """All of them, one after the other."""
    return b"".join(parts)


def _long(kind: int, length: int) -> bytes:
    return bytes([0xF0 | kind]) + varint(length)
