"""What GPUs cost: the list in force, the rates of a run, and the one way in which an amount is worked out."""

from datetime import datetime
from typing import Final, NamedTuple

from events.base import START, Position
from events.credit import Rate
from events.job import Priority
from events.prices import PriceList, PricesSet

MILLI: Final = 1_000  # a factor of one
MICRO: Final = 1_000_000
HOUR_US: Final = 3_600 * MICRO
NANO: Final = 1_000  # nano-credits of a micro-credit


class Priced(NamedTuple):
    """Which list of which document."""

    prices: Position = START
    effective_from: datetime | None = None


def list_at(prices: PricesSet | None, at: datetime) -> PriceList | None:
    """The list in force at a time; None: none is yet."""
    found = None
    for one in prices.lists if prices is not None else ():
        if one.effective_from is None or one.effective_from <= at:
            found = one
    return found


def rate_of(prices: PriceList, gpu_type: str, priority: Priority) -> Rate | None:
    """What an hour of such a GPU costs a job of that class; None: the list has no price for it."""
    by_type = {price.gpu_type: price.micro_per_gpu_hour for price in prices.prices}
    micro = by_type.get(gpu_type, by_type.get(""))
    if micro is None:
        return None
    factor = next((factor.milli for factor in prices.factors if factor.priority is priority), MILLI)
    return Rate(gpu_type, micro * factor)


def cost_micro(gpu_us: int, nano_per_gpu_hour: int) -> int:
    """What so many GPU-microseconds cost, in micro-credits: exact but for one rounding, half to even."""
    return half_even(gpu_us * nano_per_gpu_hour, HOUR_US * NANO)


def half_even(numerator: int, denominator: int) -> int:
    """The quotient as the nearest integer, of two equally near the even one. Source: IEEE 754-2019, section 4.3.1."""
    quotient, rest = divmod(numerator, denominator)
    return quotient + (2 * rest > denominator or (2 * rest == denominator and quotient & 1))


def stepped_us(duration_us: int, step_s: int) -> int:
    """The time that is charged for one of so long: whole steps, begun ones whole; never less than 0."""
    step_us = step_s * MICRO
    duration_us = max(0, duration_us)
    return -(-duration_us // step_us) * step_us if step_us else duration_us
