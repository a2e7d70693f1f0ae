"""Events of credits, as a line tells them."""

from typing import Any

import pytest

from services.cli.credit_detail import TOLD
from services.cli.detail import detail

RED: dict[str, Any] = {"account": "red", "entry": 3, "run_id": "j1-1"}


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("accounts.set", {"accounts": [{}, {}]}, "2 accounts"),
        ("prices.set", {"lists": [{}]}, "1 price list"),
        ("period.closed", {"month": "2026-11"}, "2026-11"),
        ("credit.grant_asked", {**RED, "amount_micro": 5_000_000, "reason": "order"}, "+5 credits for red: order"),
        ("credit.adjustment_asked", {**RED, "amount_micro": -500_000}, "-0.5 credits for red"),
        ("credit.granted", {**RED, "amount_micro": 5_000_000}, "+5 credits for red"),
        (
            "credit.adjusted",
            {**RED, "amount_micro": -5_000_000, "cause": "uncovered", "of_entry": 7},
            "-5 credits for red, uncovered of entry 7",
        ),
        ("credit.ask_refused", {**RED, "code": "not_covered", "message": "has 3"}, "red: has 3 [not_covered]"),
        (
            "credit.reserved",
            {**RED, "amount_micro": 40_000_000, "gpus": 8, "covers_s": 7200},
            "40 credits of red for 8 GPUs for 2h 00m",
        ),
        ("credit.renewed", {**RED, "amount_micro": 1, "covers_s": 60}, "0.000001 credits of red for 1m 00s more"),
        (
            "credit.running_out",
            {**RED, "until": "2026-11-03T10:00:00Z"},
            "red can pay for j1-1 until 2026-11-03 10:00:00 UTC",
        ),
        (
            "credit.committed",
            {**RED, "amount_micro": 1_250_000, "gpu_us": 1_800_000_000, "outcome": "time_limit"},
            "1.25 credits of red for 0.500 GPU-hours: time limit",
        ),
        (
            "credit.refunded",
            {**RED, "amount_micro": 2_500_000, "gpu_us": 3_600_000_000, "cause": "interrupted"},
            "2.5 credits to red: interrupted, 1.000 GPU-hours not charged",
        ),
        (
            "credit.refunded",
            {**RED, "amount_micro": 2_500_000, "cause": "never_placed"},
            "2.5 credits to red: never placed",
        ),
        (
            "credit.usage_uncovered",
            {**RED, "amount_micro": 7, "bearer": "provider"},
            "0.000007 credits more than was reserved, borne by the provider",
        ),
        (
            "credit.usage_recorded",
            {**RED, "amount_micro": -7, "gpu_us": -3_600_000_000, "corrects": True, "cause": "preempted"},
            "-0.000007 credits for -1.000 GPU-hours, taken back: preempted",
        ),
        ("credit.account_closed", RED, "red"),
    ],
)
def test_an_event_is_told_in_a_line(name: str, data: dict[str, Any], told: str) -> None:
    """With its amounts; who asked comes after."""
    event = {"type": f"musterbook.{name}.v1", "data": data, "by": "api:ada"}
    assert detail(event) == f"{told} by api:ada"
    assert TOLD[name](data) == told
