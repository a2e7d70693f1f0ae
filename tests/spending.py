"""What operators of random histories say of credits: accounts of every kind, price lists, what they give and take back."""

from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from events.accounts import Account, AccountsSet
from events.base import AccountId, AskId, Recorded, TeamId
from events.credit import CreditCommitted
from events.job import Priority
from events.policy import Bearer, ChargeFrom, Waived
from events.prices import ClassFactor, GpuPrice, PriceList, PricesSet
from events.teller import AdjustmentAsked, GrantAsked

CREDIT: Final = 1_000_000  # micro-credits
NAMES: Final = (AccountId("alpha"), AccountId("beta"), AccountId("gamma"))


def some_accounts(random: Random, at: datetime) -> AccountsSet:
    """Up to three, of a team, of the queue above two, or of none; poor, trusted, boundless; seldom one that is closed."""
    queues = random.choice((("t", "u", "v"), ("org", "v", "t"), ("t", "t", "u"), ("org", "u", "u")))
    listed = tuple(
        Account(
            name=name,
            queues=(TeamId(queue),) if random.random() < 0.9 else (),
            overdraft_micro=random.choice((0, 0, 0, CREDIT, None)),
            closed=random.random() < 0.05,
        )
        for name, queue in zip(NAMES[: random.choice((1, 2, 3, 3))], queues, strict=False)
    )
    return AccountsSet(at=at, accounts=listed, closed_through=random.choice(("", "", "2025-11", "2025-12", "2026-01")))


def some_prices(random: Random, at: datetime) -> PricesSet:
    """A list, and perhaps another that comes into force soon; seldom one that has no price for a type."""

    def one(effective_from: datetime | None) -> PriceList:
        micro = (random.randrange(1, 9) * CREDIT, random.randrange(3_600_000), 0)
        h100, other = random.choice(micro), random.choice(micro)
        prices = random.choice(((GpuPrice("h100", h100), GpuPrice("", other)),) * 9 + ((GpuPrice("h100", h100),),))
        factors = random.choice(((), (), (ClassFactor(Priority.URGENT, 1_500), ClassFactor(Priority.LOW, 333))))
        step_s = random.choice((0, 1, 1, 60))
        return PriceList(effective_from=effective_from, prices=prices, factors=factors, step_s=step_s)

    later = [at + timedelta(seconds=random.choice((30, 300, 3_000)))] if random.random() < 0.3 else []
    return PricesSet(at=at, lists=tuple(one(begins) for begins in (None, *later)))


def charging(random: Random) -> dict[str, Any]:
    """What a policy says of charging: instalments are short, so that runs outlast them."""
    return {
        "charge_from": random.choice(list(ChargeFrom)),
        "instalment_s": random.choice((20, 60, 600, 3_600)),
        "waived_failed": random.choice(list(Waived)),
        "waived_preempted": random.choice(list(Waived)),
        "uncovered": random.choice(list(Bearer)),
    }


def an_ask(random: Random, number: int, at: datetime, commits: list[Recorded]) -> GrantAsked | AdjustmentAsked:
    """An operator gives, corrects, or gives back what a run was charged, in part, whole, or too much."""
    of: dict[str, Any] = {
        "at": at,
        "by": "ops",
        "account": random.choice(NAMES),
        "ask_id": AskId(f"a{number}"),
        "key": f"k{number}",
        "request_hash": "h",
    }
    kind = random.random()
    if commits and kind < 0.2:
        paid = random.choice(commits)
        assert isinstance(paid.event, CreditCommitted)
        amount = max(1, random.choice((paid.event.amount_micro // 2, paid.event.amount_micro)))
        refunds = {
            "refunds": paid.position,
            "refunds_entry": paid.event.entry,
            "refunds_micro": paid.event.amount_micro,
        }
        return AdjustmentAsked(**of | {"account": paid.event.account}, amount_micro=amount, **refunds)
    if kind < 0.4:
        return AdjustmentAsked(**of, amount_micro=random.choice((-1, -CREDIT // 3, -9 * CREDIT, 1, CREDIT)))
    return GrantAsked(**of, amount_micro=random.choice((1, CREDIT // 7, CREDIT, 20 * CREDIT)))
