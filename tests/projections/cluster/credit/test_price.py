"""What GPUs cost: lists in force, rates, rounding."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from events.job import Priority
from events.prices import ClassFactor, GpuPrice, PriceList, PricesSet
from projections.cluster.credit.price import (
    HOUR_US,
    MICRO,
    Priced,
    cost_micro,
    half_even,
    list_at,
    rate_of,
    stepped_us,
)

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
LATER = BEGIN + timedelta(days=1)


def test_the_list_in_force_is_the_last_that_has_begun() -> None:
    """None, where none has."""
    first, second = PriceList(), PriceList(effective_from=LATER)
    always, later = PricesSet(at=BEGIN, lists=(first, second)), PricesSet(at=BEGIN, lists=(second,))

    assert list_at(None, BEGIN) is None
    assert list_at(later, BEGIN) is None
    assert list_at(always, BEGIN) is first
    assert list_at(always, LATER - timedelta(microseconds=1)) is first
    assert list_at(always, LATER) is second


def test_a_rate_is_the_price_of_the_type_times_the_factor_of_the_class() -> None:
    """A type that is not named has the price of the others, if there is one; a class that is not has the factor 1."""
    named = PriceList(prices=(GpuPrice("h100", 2_500_000),), factors=(ClassFactor(Priority.URGENT, 1_500),))
    all_of_them = PriceList(prices=(GpuPrice("h100", 2_500_000), GpuPrice("", 1_000_000)))

    assert rate_of(named, "a100", Priority.NORMAL) is None
    normal, urgent = rate_of(named, "h100", Priority.NORMAL), rate_of(named, "h100", Priority.URGENT)
    assert (normal and normal.nano_per_gpu_hour, urgent and urgent.nano_per_gpu_hour) == (2_500_000_000, 3_750_000_000)
    other = rate_of(all_of_them, "a100", Priority.URGENT)
    assert other is not None
    assert (other.gpu_type, other.nano_per_gpu_hour) == ("a100", 1_000_000_000)


def test_prices_are_known_by_document_and_list() -> None:
    """Before there are any, by nothing."""
    assert Priced() == (0, None)


@given(st.integers(-(10**30), 10**30), st.integers(1, 10**15))
def test_rounding_is_to_the_nearest_and_half_to_even(numerator: int, denominator: int) -> None:
    """As Python's own fractions are rounded."""
    assert half_even(numerator, denominator) == round(Fraction(numerator, denominator))


def test_halves_go_to_the_even_neighbour() -> None:
    """Up and down."""
    assert [half_even(n, 2) for n in (-3, -1, 1, 3, 5)] == [-2, 0, 0, 2, 2]


@given(st.integers(0, 10**18), st.integers(0, 10**18), st.integers(0, 10**13))
def test_more_time_never_costs_less(one: int, more: int, nano: int) -> None:
    """What is committed never exceeds what a longer time would have cost."""
    assert cost_micro(one, nano) <= cost_micro(one + more, nano)


def test_an_hour_costs_its_price() -> None:
    """To the unit."""
    assert cost_micro(HOUR_US, 2_500_000_000) == 2_500_000


@given(st.integers(-(10**15), 10**15), st.integers(0, 10**5))
def test_time_is_charged_in_whole_steps_begun_ones_whole(duration_us: int, step_s: int) -> None:
    """The least number of steps that covers it; never less than none."""
    charged = stepped_us(duration_us, step_s)
    step_us = step_s * MICRO

    assert charged >= max(0, duration_us)
    assert charged == max(0, duration_us) if not step_us else charged % step_us == 0
    assert charged - max(0, duration_us) < max(1, step_us)
