"""Amounts are read and spelled exactly, to the last of six places."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.amounts import MICRO, micro_credits, spelled_credits, told_credits

MICROS = st.integers(-(1 << 62), 1 << 62)


@given(MICROS)
def test_what_is_spelled_means_the_amount(micro: int) -> None:
    """Exactly, and as decimal arithmetic has it."""
    assert micro_credits(spelled_credits(micro)) == micro
    assert Decimal(spelled_credits(micro)) * MICRO == micro


@given(MICROS)
def test_an_amount_is_spelled_as_short_as_it_can_be(micro: int) -> None:
    """No zeros at its end, none before it, no exponent."""
    spelled = spelled_credits(micro)
    assert "." not in spelled or not spelled.endswith(("0", "."))
    assert set(spelled) <= set("-.0123456789")


@pytest.mark.parametrize(
    ("text", "micro"),
    [
        ("192", 192_000_000), ("0.5", 500_000), ("-0.25", -250_000), ("+3", 3_000_000), ("0.000001", 1), ("007", 7_000_000),
        ("1.50000000000", 1_500_000), ("-0", 0),
    ],
)  # fmt: skip
def test_a_decimal_is_read_exactly(text: str, micro: int) -> None:
    """Zeros at its end say nothing."""
    assert micro_credits(text) == micro


@pytest.mark.parametrize(
    "text",
    ["", ".", "1.", ".5", "0.0000001", "1e3", "1,5", "1 000", "1_000", " 1", "--1", "inf", "nan", "0x1", "٣", "1\n", "9" * 31],
)  # fmt: skip
def test_what_is_no_decimal_is_none(text: str) -> None:
    """Also what other programs would read, and a seventh place that is not 0."""
    assert micro_credits(text) is None


@pytest.mark.parametrize(
    ("micro", "told"),
    [(0, "0 credits"), (1_000_000, "1 credit"), (-1_000_000, "-1 credit"), (1_500_000, "1.5 credits")],
)
def test_one_credit_is_told_as_one(micro: int, told: str) -> None:
    """Whatever its sign; a part of one is of several."""
    assert told_credits(micro) == told
