"""What a job will have reserved: by whom, at which prices, for how long."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from events.accounts import Account, AccountsSet
from events.base import AccountId, JobId, Position, TeamId
from events.credit import CreditReserved, Rate
from events.job import HoldCode, JobSpec, Priority
from events.policy import ChargeFrom, PolicySet
from events.prices import ClassFactor, GpuPrice, PriceList, PricesSet
from events.queues import Queue
from projections.cluster.credit.payers import Payers
from projections.cluster.credit.price import cost_micro
from projections.cluster.credit.quote import AMOUNT_MAX, RATE_MAX, Market, Quote, may_get, quote, reservation
from projections.cluster.job import RUNTIME_MAX_S, Job, shape_of
from projections.cluster.quota.tree import Tree
from services.gate.prices import RATE_MAX as GATE_MAX

AT = datetime(2026, 5, 1, tzinfo=UTC)
CREDIT = 1_000_000
H100, A100 = GpuPrice("h100", 2 * CREDIT), GpuPrice("a100", CREDIT)
LIST = PriceList(prices=(H100, A100), factors=(ClassFactor(Priority.URGENT, 1_500),), step_s=60)


def market(*lists: PriceList, accounts: tuple[Account, ...] | None = None, **said: Any) -> Market:
    """A cluster with both GPU types, in which team `t` below `all` is paid for by account `a`."""
    pays = accounts if accounts is not None else (Account(name=AccountId("a"), queues=(TeamId("all"),)),)
    fields: dict[str, Any] = {
        "payers": Payers(AccountsSet(at=AT, accounts=pays)),
        "prices": PricesSet(at=AT, lists=lists or (LIST,)),
        "prices_since": tuple(Position(7) for _ in lists or (LIST,)),
        "tree": Tree({TeamId(n): Queue(name=TeamId(n), parent=p) for n, p in (("all", ""), ("t", "all"))}),
        "gpu_types": frozenset({"h100", "a100"}),
        "policy": PolicySet(at=AT, charge_from=ChargeFrom.PLACED, instalment_s=600),
    }
    return Market(**fields | said)


def spec(gpus: int = 8, **said: Any) -> JobSpec:
    """A spec that says no more than the least."""
    return JobSpec(name="x", command=("true",), gpus=gpus, **said)


def quoted(offer: Market, what: JobSpec, *, team: str = "t") -> Quote:
    """What is quoted for it; an error where it is a code."""
    found = quote(offer, team, what, AT)
    assert isinstance(found, Quote)
    return found


def test_all_gpus_are_reserved_for_the_declared_runtime_at_the_dearest_rate() -> None:
    """Which type it gets is not known before it is placed."""
    found = quoted(market(), spec(8, max_runtime_s=7_200))
    assert (found.account, found.amount_micro, found.covers_s, found.declared) == ("a", 8 * 2 * 2 * CREDIT, 7_200, True)
    assert found.rates == (Rate("a100", 1_000 * CREDIT), Rate("h100", 2_000 * CREDIT))
    assert found.dearest.gpu_type == "h100"
    assert (found.prices, found.charge_from) == (7, ChargeFrom.PLACED)


@pytest.mark.parametrize(
    ("said", "micro"),
    [
        ({"max_runtime_s": 3_600, "gpu_types": ("a100",)}, 8 * CREDIT),
        ({"max_runtime_s": 3_600, "gpu_types": ("a100", "none")}, 8 * CREDIT),  # there is no such GPU
        (
            {"max_runtime_s": 3_600, "gpu_types": ("h100", "a100"), "min_gpus": 2},
            16 * CREDIT,
        ),  # the most that it may get
        ({"max_runtime_s": 3_600, "gpu_types": ("a100",), "priority": Priority.URGENT}, 12 * CREDIT),
        ({"max_runtime_s": 3_541, "gpu_types": ("a100",)}, 8 * CREDIT),  # a begun step is a whole one
        ({"gpu_types": ("a100",)}, 8 * CREDIT // 6 + 1),  # an instalment
    ],
)
def test_what_a_job_asks_for_decides_what_it_costs(said: dict[str, Any], micro: int) -> None:
    """Its types, its class, its time; a gang that may start smaller pays for the most."""
    assert abs(quoted(market(), spec(8, **said)).amount_micro - micro) <= 1


def test_without_a_runtime_an_instalment_is_reserved() -> None:
    """More comes when it runs on."""
    found = quoted(market(), spec(6, gpu_types=("a100",)))
    assert (found.amount_micro, found.covers_s, found.declared) == (CREDIT, 600, False)


def test_no_quote_covers_more_than_what_counts_as_the_longest_runtime() -> None:
    """As everywhere else."""
    assert quoted(market(), spec(1, max_runtime_s=2**31 - 1)).covers_s == RUNTIME_MAX_S


def test_a_team_that_no_account_lists_is_not_charged() -> None:
    """Nothing is written then."""
    assert quote(market(), "other", spec(), AT) is None
    assert quote(market(accounts=()), "t", spec(), AT) is None


def test_an_account_that_may_not_be_charged_is_told_of() -> None:
    """One that is not its team's, and one that is closed."""
    assert quote(market(), "t", spec(account="b"), AT) is HoldCode.NO_ACCOUNT
    closed = (Account(name=AccountId("a"), queues=(TeamId("t"),), closed=True),)
    assert quote(market(accounts=closed), "t", spec(), AT) is HoldCode.NO_ACCOUNT


@pytest.mark.parametrize(
    "lists",
    [
        (PriceList(prices=(H100,)),),  # none for a100
        (replace(LIST, effective_from=AT + timedelta(seconds=1)),),  # none yet
        (PriceList(prices=(GpuPrice("", 1 << 62),)),),  # times the factor of one in thousandths, no record can hold it
        (PriceList(prices=(GpuPrice("", RATE_MAX // 1_000 + 1),)),),  # nor what much use at it would cost
    ],
)
def test_a_type_without_a_price_is_told_of(lists: tuple[PriceList, ...]) -> None:
    """No list says it, none is in force yet, or no record can hold it."""
    assert quote(market(*lists), "t", spec(), AT) is HoldCode.NO_PRICE


def test_there_is_no_price_where_no_document_says_one() -> None:
    """Accounts without prices pay for nothing."""
    assert quote(market(prices=None), "t", spec(), AT) is HoldCode.NO_PRICE


def test_where_there_are_no_gpus_yet_all_that_are_accepted_count() -> None:
    """A client may ask before the first node joins."""
    empty = market(gpu_types=frozenset[str]())
    assert may_get(empty, ("h100", "h100", "b200")) == ("h100", "b200")
    assert may_get(empty, ()) == ("",)
    assert quote(empty, "t", spec(), AT) is HoldCode.NO_PRICE
    everywhere = PriceList(prices=(GpuPrice("", CREDIT),))
    assert quoted(market(everywhere, gpu_types=frozenset[str]()), spec(6, max_runtime_s=600)).amount_micro == CREDIT


def test_prices_are_those_of_the_list_in_force() -> None:
    """From the moment on that it says."""
    later = PriceList(effective_from=AT, prices=(GpuPrice("", 5 * CREDIT),))
    found = quoted(market(LIST, later), spec(1, max_runtime_s=3_600))
    assert (found.amount_micro, found.effective_from) == (5 * CREDIT, AT)
    assert found.priced == market(LIST, later).priced(AT)
    assert market(LIST, later).priced(AT - timedelta(seconds=1)) == quoted(market(), spec()).priced


def test_a_quote_says_all_of_a_reservation_but_its_entry() -> None:
    """The run is the job's next."""
    what = spec(8, max_runtime_s=60)
    job = Job(job_id=JobId("j1"), team=TeamId("t"), spec=what, shape=shape_of(what), submitted=Position(3), attempt=2)
    event = CreditReserved(at=AT, account=AccountId("a"), entry=1, **reservation(job, quoted(market(), what)))
    assert (event.run_id, event.gpus, event.covers_s, event.step_s) == ("j1-3", 8, 60, 60)


def test_no_price_is_so_high_that_what_a_large_gang_uses_in_years_is_more_than_a_record_can_hold() -> None:
    """What the gate takes has a price, and 10,000 GPUs may run at any that there is for five years."""
    highest = PriceList(prices=(GpuPrice("", GATE_MAX * 1_000_000),))
    found = quoted(market(highest), spec(1, max_runtime_s=3_600))

    assert found.amount_micro == GATE_MAX * 1_000_000
    assert cost_micro(10_000 * 5 * 366 * 86_400 * 1_000_000, RATE_MAX) < AMOUNT_MAX
