"""Decimals of documents: what YAML and JSON make of them, exactly."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from events.amounts import MICRO
from services.gate.decimals import CREDITS_MAX, MILLI, credits_typed, decimal_schema, milli_typed, typed_decimal


@given(st.integers(0, CREDITS_MAX * MICRO))
def test_what_is_shown_means_the_amount(micro: int) -> None:
    """Through YAML and through JSON, to the last place of the largest."""
    shown = typed_decimal(micro)
    assert credits_typed(yaml.safe_load(yaml.safe_dump(shown))) == micro
    assert credits_typed(json.loads(json.dumps(shown))) == micro


@given(st.integers(0, 999_999_999_999_999))
def test_a_number_with_a_point_is_what_was_typed(micro: int) -> None:
    """Though it was a binary fraction on its way."""
    text = f"{micro // MICRO}.{micro % MICRO:06}"
    assert credits_typed(json.loads(text)) == micro == credits_typed(text)


@given(st.integers(0, 1_000_000))
def test_a_factor_is_exact_to_the_thousandth(milli: int) -> None:
    """As a number and as text."""
    shown = typed_decimal(milli * MILLI)
    assert milli_typed(shown) == milli_typed(str(shown)) == milli


@pytest.mark.parametrize("shown", [typed_decimal(2_500_000), typed_decimal(1), typed_decimal(3 * MICRO)])
def test_small_and_whole_numbers_are_shown_as_people_type_them(shown: object) -> None:
    """Never with an exponent: what is not short as a number is text."""
    assert str(shown) in {"2.5", "0.000001", "3"}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (-1, "must be 0 or more, not -1"),
        ("-0.5", "must be 0 or more, not '-0.5'"),
        (1e-7, "must be a decimal with up to 6 places, such as 192 or 0.5, not 1e-07"),
        (0.1234567, "must be a decimal with up to 6 places"),
        ("1,5", "must be a decimal"),
        (True, "must be a decimal with up to 6 places, such as 192 or 0.5, not true"),
        (None, "must be a decimal"),
        ([1], "must be a decimal"),
        (float("nan"), "must be a decimal"),
        (float("inf"), "must be a decimal"),
        (1_000_000_000.5, "1000000000.5 may not be what was typed"),
        (10**12 + 1, "must be 1000000000000 or less, not 1000000000001"),
        (10**30, "must be 1000000000000 or less"),
        ("1000000000000.000001", "must be 1000000000000 or less"),
    ],
)  # fmt: skip
def test_what_is_no_amount_of_credits_is_told(value: object, told: str) -> None:
    """Nothing is rounded, and nothing guessed."""
    with pytest.raises(PydanticCustomError) as raised:
        credits_typed(value)
    assert str(raised.value).startswith(told)


@pytest.mark.parametrize(
    ("value", "told"), [(1.2345, "must have up to 3 places, not 1.2345"), (-1, "must be 0 or more"), ("x", "must be a")]
)
def test_what_is_no_factor_is_told(value: object, told: str) -> None:
    """It is kept in thousandths."""
    with pytest.raises(PydanticCustomError) as raised:
        milli_typed(value)
    assert str(raised.value).startswith(told)


def test_the_schema_allows_numbers_and_text() -> None:
    """For editors."""
    assert [kind["type"] for kind in decimal_schema("x")["anyOf"]] == ["number", "string"]
