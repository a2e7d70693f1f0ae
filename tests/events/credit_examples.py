"""One event about credits of every type with every field set, as `examples` has the others."""

from datetime import UTC, datetime
from typing import Any, Final

from events.accounts import Account, AccountsSet
from events.base import AccountId, AskId, Event, JobId, RunId, TeamId, position_of
from events.credit import (
    AccountClosed,
    AdjustCause,
    AskRefused,
    CreditAdjusted,
    CreditCommitted,
    CreditGranted,
    CreditRefunded,
    CreditRenewed,
    CreditReserved,
    CreditsRunningOut,
    EndedAs,
    Rate,
    RefundCause,
    UsageRecorded,
    UsageUncovered,
)
from events.job import Priority
from events.period import PeriodClosed
from events.policy import Bearer, ChargeFrom
from events.prices import ClassFactor, GpuPrice, PriceList, PricesSet
from events.teller import AdjustmentAsked, GrantAsked

SAID: Final[dict[str, Any]] = {
    "at": datetime(2026, 3, 14, 15, 9, 26, 535897, tzinfo=UTC),
    "by": "api:kim",
    "trace": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
}
ASK: Final = AskId("aab2c3d4e5f6g7")
OF_ACCOUNT: Final[dict[str, Any]] = {**SAID, "account": AccountId("vision-2026"), "entry": 42}
OF_RUN: Final[dict[str, Any]] = {**OF_ACCOUNT, "run_id": RunId("jab2c3d4e5f6g7-2"), "job_id": JobId("jab2c3d4e5f6g7")}
OF_BILL: Final[dict[str, Any]] = {**OF_RUN, "reservation": 40}
ASKED: Final[dict[str, Any]] = {
    **SAID,
    "account": AccountId("vision-2026"),
    "ask_id": ASK,
    "key": "q2-budget",
    "request_hash": "9f86d081884c7d65",
    "reason": "second quarter",
}
BEGAN: Final = datetime(2026, 3, 14, 14, 0, tzinfo=UTC)
ENDED: Final = datetime(2026, 3, 14, 15, 0, tzinfo=UTC)

CREDIT_EXAMPLES: Final[tuple[Event, ...]] = (
    AccountsSet(
        **SAID,
        replaces=position_of(1, 9),
        accounts=(
            Account(name=AccountId("vision-2026"), queues=(TeamId("vision"),), overdraft_micro=5_000_000),
            Account(name=AccountId("vision-2025"), queues=(TeamId("vision"),), overdraft_micro=None, closed=True),
        ),
        closed_through="2026-02",
    ),
    PricesSet(
        **SAID,
        replaces=position_of(1, 10),
        lists=(
            PriceList(prices=(GpuPrice("", 1_000_000),)),
            PriceList(
                effective_from=datetime(2026, 4, 1, tzinfo=UTC),
                prices=(GpuPrice("h100", 2_500_000), GpuPrice("", 1_000_000)),
                factors=(ClassFactor(Priority.URGENT, 1_500),),
                step_s=60,
            ),
        ),
    ),
    GrantAsked(**ASKED, amount_micro=1_000_000_000),
    AdjustmentAsked(
        **ASKED, amount_micro=12_000_000, refunds=position_of(1, 900), refunds_entry=41, refunds_micro=80_000_000
    ),
    CreditGranted(**OF_ACCOUNT, ask_id=ASK, amount_micro=1_000_000_000, reason="second quarter"),
    CreditAdjusted(
        **OF_ACCOUNT, amount_micro=-3, cause=AdjustCause.UNCOVERED, ask_id=ASK, of_entry=39, reason="as agreed"
    ),
    AskRefused(**OF_ACCOUNT, ask_id=ASK, code="not_covered", message="it has 3, and 5 were to be taken"),
    CreditReserved(
        **OF_RUN,
        team=TeamId("vision"),
        amount_micro=192_000_000,
        gpus=8,
        covers_s=86_400,
        declared=True,
        rates=(Rate("h100", 1_000_000_000), Rate("a100", 500_000_000)),
        step_s=60,
        charge_from=ChargeFrom.PLACED,
        prices=position_of(1, 10),
        effective_from=datetime(2026, 4, 1, tzinfo=UTC),
    ),
    CreditRenewed(**OF_BILL, amount_micro=8_000_000, covers_s=3_600),
    CreditsRunningOut(**OF_BILL, until=ENDED),
    CreditCommitted(
        **OF_BILL,
        team=TeamId("vision"),
        amount_micro=80_000_000,
        gpu_us=288_000_000_000,
        gpu_type="h100",
        nano_per_gpu_hour=1_000_000_000,
        began=BEGAN,
        ended=ENDED,
        outcome=EndedAs.INTERRUPTED,
    ),
    CreditRefunded(
        **OF_BILL,
        amount_micro=112_000_000,
        cause=RefundCause.INTERRUPTED,
        gpu_us=36_000_000,
        evidence=("01JDX3Q7M8ZK4T-7",),
    ),
    UsageUncovered(**OF_BILL, amount_micro=12, bearer=Bearer.ACCOUNT),
    UsageRecorded(
        **OF_RUN,
        team=TeamId("vision"),
        usage_id="jab2c3d4e5f6g7-2-3",
        gpu_type="h100",
        gpu_us=-28_800_000_000,
        amount_micro=-8_000_000,
        nano_per_gpu_hour=1_000_000_000,
        began=BEGAN,
        ended=ENDED,
        corrects=True,
        cause=RefundCause.INTERRUPTED,
        prices=position_of(1, 10),
    ),
    AccountClosed(**OF_ACCOUNT),
    PeriodClosed(**SAID, month="2026-02"),
)
