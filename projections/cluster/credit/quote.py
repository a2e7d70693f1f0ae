"""What a job will have reserved before it may run: by whom it is paid, at which prices, for how long."""

from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final, TypedDict

import msgspec

from events.base import AccountId, JobId, Position, RunId, TeamId, run_id_of
from events.credit import Rate
from events.job import HoldCode, JobSpec
from events.policy import ChargeFrom, PolicySet
from events.prices import PriceList, PricesSet
from projections.cluster.credit.book import Terms
from projections.cluster.credit.payers import Payers
from projections.cluster.credit.price import MICRO, Priced, cost_micro, list_at, rate_of, stepped_us
from projections.cluster.job import RUNTIME_MAX_S, Job
from projections.cluster.quota.tree import Tree
from projections.cluster.state import Cluster

AMOUNT_MAX: Final = 1 << 62  # micro-credits that a record can hold: what costs more is never paid
# Nano-credits for an hour of a GPU; the gate takes no price of so much. At a higher one, what a gang used beyond its
# reservation could be more than a record can hold, and deciding would stop at that.
RATE_MAX: Final = 1 << 43


class Market(msgspec.Struct, frozen=True, kw_only=True):
    """All that a quote depends on but the job: documents, the tree, and which GPUs there are."""

    payers: Payers
    prices: PricesSet | None
    prices_since: tuple[Position, ...]  # of each list in it, the document that it first stood in
    tree: Tree
    gpu_types: AbstractSet[str]  # of all nodes, whatever their state
    policy: PolicySet

    def priced(self, at: datetime) -> Priced | None:
        """Which prices are in force; None: none are."""
        prices = list_at(self.prices, at)
        return Priced(self.since(prices), prices.effective_from) if prices is not None else None

    def since(self, prices: PriceList) -> Position:
        """The document in which a list of the one that holds first stood: one that comes again unchanged is the same."""
        lists = self.prices.lists if self.prices is not None else ()
        return dict(zip(lists, self.prices_since, strict=True))[prices]


class Quote(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a run of a job will have reserved, and how that is worked out."""

    account: AccountId
    amount_micro: int  # of all its GPUs at the dearest rate, for as long as is covered
    gpus: int  # the most that it may get
    covers_s: int
    declared: bool  # that is its declared runtime; False: an instalment
    rates: tuple[Rate, ...]  # of each GPU type that it may get
    step_s: int
    charge_from: ChargeFrom
    prices: Position
    effective_from: datetime | None = None

    @property
    def priced(self) -> Priced:
        """Which prices it has."""
        return Priced(self.prices, self.effective_from)

    @property
    def dearest(self) -> Rate:
        """The rate that it is worked out by."""
        return max(self.rates, key=lambda rate: rate.nano_per_gpu_hour)


class Reservation(TypedDict):
    """The fields of a `CreditReserved`, but for its time, its account and its entry."""

    run_id: RunId
    job_id: JobId
    team: TeamId
    amount_micro: int
    gpus: int
    covers_s: int
    declared: bool
    rates: tuple[Rate, ...]
    step_s: int
    charge_from: ChargeFrom
    prices: Position
    effective_from: datetime | None


def market_of(cluster: Cluster) -> Market:
    """What quotes depend on, as the cluster is."""
    return Market(
        payers=cluster.credits.payers,
        prices=cluster.credits.prices,
        prices_since=cluster.credits.prices_since,
        tree=cluster.tree,
        gpu_types=frozenset(kind.gpu_type for kind in cluster.sizes if kind.size),
        policy=cluster.policy,
    )


def quote(market: Market, team: str, spec: JobSpec, at: datetime) -> Quote | HoldCode | None:
    """What a run of such a job will have reserved, were it admitted at `at`; None: nobody charges it; a code: why it waits."""
    account = market.payers.payer(market.tree.path(team), spec.account)
    if account is None or isinstance(account, HoldCode):
        return account
    prices = list_at(market.prices, at)
    rates = _rates(market, prices, spec) if prices is not None else None
    if prices is None or not rates:
        return HoldCode.NO_PRICE
    covers_s = min(spec.max_runtime_s or max(1, market.policy.instalment_s), RUNTIME_MAX_S)
    dearest = max(rate.nano_per_gpu_hour for rate in rates)
    return Quote(
        account=account.name,
        amount_micro=cost_micro(spec.gpus * stepped_us(covers_s * MICRO, prices.step_s), dearest),
        gpus=spec.gpus,
        covers_s=covers_s,
        declared=bool(spec.max_runtime_s),
        rates=rates,
        step_s=prices.step_s,
        charge_from=market.policy.charge_from,
        prices=market.since(prices),
        effective_from=prices.effective_from,
    )


def stands(market: Market, terms: Terms, priced: Priced | None) -> bool:
    """Whether what is reserved on these terms stays so: no other account pays by now, nor nobody, for other GPUs or at other prices.

    Where no account may pay for anything new, what one has reserved is good. `priced`: the prices in force.
    """
    if terms.priced != priced:
        return False
    account = market.payers.payer(market.tree.path(terms.team), terms.named)
    if account is None or not (isinstance(account, HoldCode) or account.name == terms.account):
        return False
    return set(terms.gpu_types).issuperset(may_get(market, terms.accepts))


def may_get(market: Market, accepts: tuple[str, ...]) -> tuple[str, ...]:
    """The GPU types that a job may get: those of the ones it accepts that there are; all that it accepts where there are none.

    An empty name stands for any type: of a job that accepts any, where there is no GPU yet.
    """
    accepted = accepts or tuple(sorted(market.gpu_types))
    known = tuple(gpu_type for gpu_type in accepted if gpu_type in market.gpu_types)
    return tuple(dict.fromkeys(known or accepted or ("",)))


def _rates(market: Market, prices: PriceList, spec: JobSpec) -> tuple[Rate, ...] | None:
    """What an hour of each GPU type costs that the job may get; None where one has no price."""
    rates = []
    for gpu_type in may_get(market, spec.gpu_types):
        rate = rate_of(prices, gpu_type, spec.priority)
        if rate is None or rate.nano_per_gpu_hour > RATE_MAX:
            return None
        rates.append(rate)
    return tuple(rates)


def reservation(job: Job, quoted: Quote) -> Reservation:
    """What a `CreditReserved` says of the run that the job will have."""
    return Reservation(
        run_id=run_id_of(job.job_id, job.attempt + 1),
        job_id=job.job_id,
        team=job.team,
        amount_micro=quoted.amount_micro,
        gpus=quoted.gpus,
        covers_s=quoted.covers_s,
        declared=quoted.declared,
        rates=quoted.rates,
        step_s=quoted.step_s,
        charge_from=quoted.charge_from,
        prices=quoted.prices,
        effective_from=quoted.effective_from,
    )
