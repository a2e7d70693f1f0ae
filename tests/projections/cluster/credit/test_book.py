"""What an account has, and what a reservation covers and costs."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from events.base import AccountId
from events.credit import Rate
from projections.cluster.credit.book import COVERED_MAX_S, Book
from projections.cluster.credit.price import Priced
from tests.purses import CREDIT, a_bill

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_balance_is_what_was_given_less_what_is_spent_or_reserved() -> None:
    """Whether that is spent in the end or not."""
    book = Book(account=AccountId("a"), granted=1_000, adjusted=-50, committed=300, reserved=700)

    assert book.balance == -50


def test_a_bill_has_the_dearest_rate_until_it_is_placed() -> None:
    """Then that of the type that it got; one that it was not priced for costs the dearest."""
    rates = (Rate("a100", 1_000), Rate("h100", 3_000))

    assert a_bill(rates=rates).rate.gpu_type == "h100"
    assert a_bill(rates=rates, gpu_type="a100").rate.nano_per_gpu_hour == 1_000
    assert a_bill(rates=rates, gpu_type="b200").rate.nano_per_gpu_hour == 3_000


def test_what_is_reserved_lasts_from_when_its_run_counts() -> None:
    """Before that it does not pass; and never beyond what a clock can show."""
    assert a_bill(covers_s=60).covered_until is None
    assert a_bill(covers_s=60, counts_from=BEGIN).covered_until == BEGIN + timedelta(seconds=60)
    end = a_bill(covers_s=1 << 40, counts_from=BEGIN).covered_until
    assert end == BEGIN + timedelta(seconds=COVERED_MAX_S)


def test_a_bill_knows_its_prices() -> None:
    """Document and list."""
    assert a_bill(effective_from=BEGIN).priced == Priced(a_bill().prices, BEGIN)


@given(st.integers(1, 100), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**10), st.integers(0, 90))
def test_instalments_add_up_to_the_whole(gpus: int, first_s: int, more_s: int, nano: int, step_s: int) -> None:
    """What each adds is what all cost less what those before it did."""
    bill = a_bill(gpus=gpus, rates=(Rate("h100", nano),), step_s=step_s)
    more = bill.costs_micro(first_s + more_s) - bill.costs_micro(first_s)

    assert more >= 0
    assert bill.costs_micro(first_s) + more == bill.costs_micro(first_s + more_s)


def test_eight_gpus_for_a_day_cost_192_credits() -> None:
    """At one credit an hour."""
    assert a_bill(gpus=8, covers_s=86_400).needs_micro == 192 * CREDIT
