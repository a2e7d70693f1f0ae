"""Thrift's compact protocol, as its specification spells it out."""

import pytest

from services.billing.thrift import Long, Struct, encoded, varint


def test_numbers_are_as_short_as_they_can_be() -> None:
    """Seven bits a byte; signed ones fold, so that small negative ones are short too."""
    assert [varint(0), varint(127), varint(128), varint(50_399)] == [b"\0", b"\x7f", b"\x80\x01", b"\xdf\x89\x03"]
    assert [encoded(value) for value in (0, -1, 1, -2, 2)] == [b"\0", b"\1", b"\2", b"\3", b"\4"]


def test_a_field_says_its_distance_and_its_type() -> None:
    """And what is not there is left out."""
    assert bytes(Struct((1, 3), (2, None), (4, "ab"), (5, True), (6, Long(3)))) == b"\x15\x06\x38\x02ab\x11\x16\x06\0"


def test_lists_say_their_type_once() -> None:
    """Up to fourteen in one byte with their number."""
    assert encoded([1, 2]) == b"\x25\x02\x04"
    assert encoded(["a"] * 15) == b"\xf8\x0f" + b"\x01a" * 15
    assert encoded([]) == b"\x0c"


def test_fields_come_by_rising_number() -> None:
    """Readers add up distances: one that falls would be read as another field."""
    with pytest.raises(AssertionError):
        Struct((2, 1), (1, 1))
