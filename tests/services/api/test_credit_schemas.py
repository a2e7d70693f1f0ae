"""Amounts as the API writes them, and that the examples it gives can be sent."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.accounts import AccountsSet
from events.amounts import micro_credits
from events.prices import PricesSet
from services.api.credit_schemas import AdjustBody, Asked, GrantBody, gpu_hours, money
from services.api.credits import ACCOUNTS_EXAMPLE, PRICES_EXAMPLE
from services.gate.accounts import checked_accounts
from services.gate.prices import checked_prices


@given(st.integers(-(10**18), 10**18))
def test_an_amount_is_the_same_in_both_ways(micro: int) -> None:
    """As a decimal, and in whole micro-credits."""
    told = money(balance=micro)
    assert (micro_credits(told["balance"]), told["balance_micro"]) == (micro, micro)
    assert money(balance=None) == {"balance": None, "balance_micro": None}


@pytest.mark.parametrize(
    ("gpu_us", "hours"),
    [
        (0, "0"),
        (3_600_000_000, "1"),
        (1_800_000_000, "0.5"),
        (-3_600_000_000, "-1"),
        (56_000_000, "0.015556"),
        (1, "0"),
    ],
)
def test_time_of_gpus_is_told_in_hours(gpu_us: int, hours: str) -> None:
    """To the nearest millionth."""
    assert gpu_hours(gpu_us) == hours


def test_examples_can_be_sent() -> None:
    """Bodies and documents, as they stand in the OpenAPI document."""
    for model in (GrantBody, AdjustBody, Asked):
        examples = model.model_json_schema()["examples"]
        assert examples
        for example in examples:
            assert model.model_validate(example).model_dump(exclude_defaults=True).keys() <= example.keys()
    at = datetime(2026, 11, 30, tzinfo=UTC)
    assert isinstance(checked_accounts(ACCOUNTS_EXAMPLE, at), AccountsSet)
    assert isinstance(checked_prices(PRICES_EXAMPLE, at), PricesSet)
