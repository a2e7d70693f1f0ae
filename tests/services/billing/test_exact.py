"""Decimals that are exact."""

from decimal import Decimal, localcontext

from hypothesis import given
from hypothesis import strategies as st

from services.billing.exact import Exact, exact

WHOLE = st.integers(min_value=-(10**30), max_value=10**30)
PLACES = st.integers(min_value=0, max_value=24)


@given(WHOLE, PLACES)
def test_text_says_the_number_and_no_zero_too_much(units: int, places: int) -> None:
    """FOCUS: no plus sign, no exponent, one point at most; and two equal numbers have the same text."""
    with localcontext(prec=100):
        text = str(Exact(units, places))
        assert Decimal(text) == Decimal(units).scaleb(-places)
        assert text == str(Exact(units * 1000, places + 3))


@given(WHOLE, PLACES, WHOLE, PLACES)
def test_a_product_has_all_its_places(a: int, m: int, b: int, n: int) -> None:
    """Nothing is rounded on the way."""
    with localcontext(prec=100):
        found = Exact(a, m).times(Exact(b, n))
        assert Decimal(str(found)) == Decimal(a).scaleb(-m) * Decimal(b).scaleb(-n)
        assert -Exact(a, m) == Exact(-a, m)


def test_a_decimal_is_read_as_it_is_typed() -> None:
    """A rate has as few places as say it; what is no plain decimal is none at all."""
    assert [exact(text) for text in ("0.40", "2", "0.000001", "10.50")] == [
        Exact(4, 1), Exact(2), Exact(1, 6), Exact(105, 1)
    ]  # fmt: skip
    assert [exact(text) for text in ("", "-1", "+1", "1e3", ".5", "1.", "1,5", "٣", "nan", "1" * 40)] == [None] * 10
