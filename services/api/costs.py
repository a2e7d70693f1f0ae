"""What jobs cost: who pays, what is set aside for them or will be, what their runs were charged, and why."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

from events.accounts import AccountsSet
from events.amounts import spelled_credits
from events.base import Event, JobId, Position
from events.job import HoldCode, JobSpec, Priority
from events.log.port import Reader, Unknown
from events.policy import Bearer, PolicySet
from events.prices import PricesSet
from events.queues import QueuesSet
from projections.cluster.credit.payers import Payers
from projections.cluster.credit.price import NANO, half_even
from projections.cluster.credit.quote import Market, Quote, quote
from projections.cluster.quota.tree import Tree
from projections.cluster.state import NO_POLICY
from projections.tables import job_view, spending
from projections.tables.bill_view import BillRow
from projections.tables.job_view import JobState
from projections.tables.spending import Cost
from runtime.clock import Clock
from runtime.postgres import Connection
from services.api.credit_schemas import Bill, gpu_hours, money

READ_S: Final = 1.0  # for the documents that a quote depends on
PAUSE_S: Final = 5.0  # after they could not be read: lists of jobs do not wait for a log that is away

E = TypeVar("E", bound=Event)


class Money(NamedTuple):
    """What a job costs."""

    account: str = ""  # that pays, or would; empty: nobody is charged for it, or nobody can be
    reserves_micro: int | None = None  # set aside for its run, or to be once it may run; None: nothing, or not known
    charged_micro: int = 0  # for its runs so far
    given_back_micro: int = 0  # of that, by operators

    @property
    def cost_micro(self) -> int:
        """What it costs so far."""
        return self.charged_micro - self.given_back_micro


class Markets:
    """Reads what a quote depends on from the log, where its documents are the truth."""

    def __init__(self, log: Reader, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._not_before_s = 0.0

    async def now(self, db: Connection) -> Market | None:
        """As it is now; None: the log does not answer, or no account pays for anything."""
        if self._clock.monotonic() < self._not_before_s:
            return None
        try:
            async with asyncio.timeout(READ_S):
                return await self._read(db)
        except (TimeoutError, Unknown):
            self._not_before_s = self._clock.monotonic() + PAUSE_S
            return None

    async def _read(self, db: Connection) -> Market | None:
        accounts, _ = await self._last("accounts", AccountsSet)
        if accounts is None:
            return None
        (prices, at), (queues, _), (policy, _) = await asyncio.gather(
            self._last("prices", PricesSet), self._last("queues", QueuesSet), self._last("policy", PolicySet)
        )
        return Market(
            payers=Payers(accounts),
            prices=prices,
            prices_since=tuple(at for _ in prices.lists) if prices is not None else (),  # amounts do not depend on it
            tree=Tree({queue.name: queue for queue in queues.queues} if queues is not None else {}),
            gpu_types=frozenset(await spending.gpu_types(db)),
            policy=policy or NO_POLICY,
        )

    async def _last(self, subject: str, kind: type[E]) -> tuple[E | None, Position]:
        recorded = await self._log.last(subject)
        if recorded is None or not isinstance(recorded.event, kind):
            return None, Position(0)
        return recorded.event, recorded.position


async def costs_of(markets: Markets, db: Connection, rows: Sequence[job_view.Job], now: datetime) -> dict[JobId, Money]:
    """What each of these jobs costs."""
    job_ids = [row.job_id for row in rows]
    known = await spending.costs(db, job_ids)
    back: Counter[JobId] = Counter()
    for one in await spending.given_back(db, job_ids):
        back[one.job_id] += one.micro
    waits = any(row.state == JobState.QUEUED for row in rows)
    market = await markets.now(db) if waits else None
    return {
        row.job_id: _money(row, known.get(row.job_id), market, now)._replace(given_back_micro=back[row.job_id])
        for row in rows
    }


def _money(row: job_view.Job, cost: Cost | None, market: Market | None, now: datetime) -> Money:
    charged = cost.charged_micro if cost is not None else 0
    if cost is not None and cost.reserved:
        return Money(cost.account, cost.reserved_micro, charged)
    if row.state == JobState.QUEUED and market is not None:
        match quote(market, row.team, _spec_of(row), now):
            case Quote() as quoted:
                return Money(quoted.account, quoted.amount_micro, charged)
            case HoldCode():
                return Money(row.account, None, charged)
            case None:
                pass
    return Money(cost.account if cost is not None else "", None, charged)


def _spec_of(row: job_view.Job) -> JobSpec:
    """As much of what the user asked for as a quote depends on."""
    return JobSpec(
        name=row.name,
        command=(),
        gpus=row.gpus,
        gpu_types=tuple(row.gpu_types.split(",")) if row.gpu_types else (),
        priority=Priority(row.priority),
        max_runtime_s=row.max_runtime_s,
        min_gpus=row.min_gpus,
        account=row.account,
    )


def bill_of(row: BillRow, given_back_micro: int = 0) -> Bill:
    """A bill as the API shows it, with what operators gave back of what it charged."""
    borne = row.uncovered_micro if row.bearer == Bearer.ACCOUNT else 0
    return Bill(
        run_id=row.run_id,
        job_id=row.job_id,
        account=row.account,
        reservation=row.reservation,
        state=row.state,
        declared=row.declared,
        covers_s=row.covers_s,
        bearer=row.bearer or "",
        gpu_type=row.gpu_type or "",
        per_gpu_hour=spelled_credits(half_even(row.nano_per_gpu_hour, NANO)),
        nano_per_gpu_hour=row.nano_per_gpu_hour,
        gpu_hours=gpu_hours(row.gpu_us),
        gpu_us=row.gpu_us,
        waived_gpu_hours=gpu_hours(row.waived_us),
        waived_us=row.waived_us,
        outcome=row.outcome or "",
        running_out=row.running_out,
        evidence=row.evidence,
        prices=row.prices,
        reserved_at=row.reserved_at,
        settled_at=row.settled_at,
        **money(
            reserved=row.reserved_micro,
            charged=row.committed_micro + borne,
            refunded=row.refunded_micro,
            given_back=given_back_micro,
            uncovered=row.uncovered_micro,
        ),
    )
