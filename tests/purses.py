"""Small clusters whose jobs are paid for: accounts, prices, asks, and reservations as admission makes them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from events.accounts import Account, AccountsSet
from events.base import AccountId, AskId, Event, JobId, NodeId, Position, TeamId, run_id_of
from events.credit import CreditEvent, CreditReserved, Rate
from events.job import JobAdmitted, RunStopping, StopCause
from events.policy import ChargeFrom
from events.prices import GpuPrice, PriceList, PricesSet
from events.teller import AdjustmentAsked, GrantAsked
from projections.cluster.audit.audit import audit
from projections.cluster.credit.book import Bill, Book
from projections.cluster.credit.price import cost_micro, list_at, rate_of, stepped_us
from projections.cluster.credit.quote import market_of
from tests.clusters import BEGIN, World

CREDIT: Final = 1_000_000
GPU_HOUR_US: Final = 3_600_000_000
A: Final = AccountId("a")
BY_HAND: Final = {
    "one leader",
    "stopped for a job",
    "admitted when paid for",
    "paid by its payer",
    "priced as the list says",
    "placed at the prices in force",
}  # laws of what these tests write in place of rounds


LOST_AFTER_S: Final = 90.0


class Purse(World):
    """A cluster with an account `a` that pays for team `t`, and a GPU-hour that costs 1 credit."""

    def __init__(self, nodes: Mapping[str, int] | None = None, *, granted: int = 1_000, **policy: Any) -> None:
        super().__init__(nodes)
        self.policy(**policy)
        self.accounts(Account(name=A, queues=(TeamId("t"),)))
        self.prices(h100=CREDIT)
        if granted:
            self.grant(granted * CREDIT)
            self.round()

    def accounts(self, *accounts: Account, closed_through: str = "") -> None:
        """These pay from now on."""
        self.add(AccountsSet(at=self.at, accounts=accounts, closed_through=closed_through))

    def prices(self, *, step_s: int = 0, effective_from: datetime | None = None, **micro: int) -> None:
        """A GPU-hour of these types costs so much from now on."""
        prices = tuple(GpuPrice(gpu_type, price) for gpu_type, price in micro.items())
        one = PriceList(effective_from=effective_from, prices=prices, step_s=step_s)
        self.add(PricesSet(at=self.at, lists=(one,)))

    def grant(self, micro: int, *, account: AccountId = A, key: str = "") -> AskId:
        """An operator wants the account to have so much more."""
        ask_id = AskId(f"a{key or len(self.records)}")
        ids: dict[str, Any] = {"at": self.at, "account": account, "ask_id": ask_id}
        self.add(GrantAsked(**ids, key=ask_id, request_hash="h", amount_micro=micro, reason="for tests"))
        return ask_id

    def adjust(self, micro: int, *, account: AccountId = A, key: str = "", **refunds: int) -> AskId:
        """An operator wants the balance corrected; `refunds`: of which commit, as the ask has it."""
        ask_id = AskId(f"a{key or len(self.records)}")
        ids: dict[str, Any] = {"at": self.at, "account": account, "ask_id": ask_id}
        said: dict[str, Any] = dict(refunds)
        self.add(AdjustmentAsked(**ids, key=ask_id, request_hash="h", amount_micro=micro, reason="for tests", **said))
        return ask_id

    def reserve(self, job_id: JobId, *, account: AccountId = A, covers_s: int = 0) -> JobId:
        """The job is admitted and credits are set aside for its run, as admission does it."""
        job, prices = self.cluster.jobs[job_id], self.cluster.credits.prices
        priced = list_at(prices, self.at)
        assert priced is not None
        kinds = job.spec.gpu_types or tuple(price.gpu_type for price in priced.prices)
        rates = tuple(rate for kind in kinds if (rate := rate_of(priced, kind, job.spec.priority)) is not None)
        covers_s = covers_s or job.spec.max_runtime_s or self.cluster.policy.instalment_s
        gpu_us = job.spec.gpus * stepped_us(covers_s * CREDIT, priced.step_s)
        self.add(
            JobAdmitted(at=self.at, team=job.team, job_id=job_id),
            CreditReserved(
                at=self.at,
                account=account,
                entry=self.book(account).entry + 1,
                run_id=run_id_of(job_id, job.attempt + 1),
                job_id=job_id,
                team=job.team,
                amount_micro=cost_micro(gpu_us, max(rate.nano_per_gpu_hour for rate in rates)),
                gpus=job.spec.gpus,
                covers_s=covers_s,
                declared=bool(job.spec.max_runtime_s),
                rates=rates,
                step_s=priced.step_s,
                charge_from=self.cluster.policy.charge_from,
                prices=market_of(self.cluster).since(priced),
                effective_from=priced.effective_from,
            ),
        )
        return job_id

    def policy(self, **said: Any) -> None:
        """As of any world; but a silent node is lost after the same time, whatever runs there."""
        super().policy(**{"lost_most_s": LOST_AFTER_S} | said)

    def paid(self, name: str, *, on: Mapping[str, int], covers_s: int = 0, **spec: Any) -> JobId:
        """A job that runs on so many GPUs of these nodes, and is paid for: all its ranks have started."""
        gpus = spec.pop("gpus", sum(on.values()))
        job_id = self.put(self.reserve(self.submit(name, gpus, **spec), covers_s=covers_s), **on)
        self.start(job_id)
        return job_id

    def stopped(self, job_id: JobId, cause: StopCause) -> None:
        """The run was told to stop, whatever a round would have said."""
        job, run = self.cluster.jobs[job_id], self.run(job_id)
        assert run is not None
        self.add(RunStopping(at=self.at, team=job.team, job_id=job_id, run_id=run.run_id, cause=cause))

    def book(self, account: AccountId = A) -> Book:
        """What the account has."""
        return self.cluster.credits.books[account]

    def bill(self, job_id: JobId) -> Bill:
        """The bill of the job's only run that is not settled."""
        (bill,) = (bill for bill in self.cluster.credits.bills.values() if bill.job_id == job_id)
        return bill

    def entries(self, account: AccountId = A) -> list[CreditEvent]:
        """All records of an account."""
        events: list[Event] = [recorded.event for recorded in self.records]
        return [event for event in events if isinstance(event, CreditEvent) and event.account == account]

    def round(self, silent: Mapping[NodeId, float] | None = None) -> list[Event]:
        """What one round decided, and is now in the log: nothing that contradicts it."""
        decided = super().round(silent)
        assert not self.cluster.unread
        return decided

    def assert_sound(self) -> None:
        """The independent reading of the log finds nothing, but in what no round decided here: see `reserve` and `put`."""
        assert [finding for finding in audit(self.records) if finding.law not in BY_HAND] == []
        assert not self.cluster.unread

    def until(self, at: str) -> None:
        """It is so late now: an ISO time, UTC."""
        self.at = datetime.fromisoformat(at).replace(tzinfo=UTC)

    @property
    def position(self) -> Position:
        """Of the last record."""
        return self.records[-1].position


def told(events: list[Event]) -> list[tuple[str, float]]:
    """Kinds and amounts of the entries among events, in credits."""
    return [
        (type(event).__name__, getattr(event, "amount_micro", 0) / CREDIT)
        for event in events
        if isinstance(event, CreditEvent)
    ]


def a_bill(job: str = "job", **said: Any) -> Bill:
    """A reservation for the first run of a job: one GPU for an hour, at 1 credit, but for what is said."""
    rates = (Rate("h100", CREDIT * 1_000),)
    return Bill(
        run_id=run_id_of(JobId(job), 1),
        job_id=JobId(job),
        team=TeamId("t"),
        **{
            "account": A,
            "reservation": 1,
            "reserved_at": BEGIN,
            "reserved_micro": CREDIT,
            "age": Position(1),
            "gpus": 1,
            "covers_s": 3_600,
            "declared": True,
            "rates": rates,
            "step_s": 0,
            "charge_from": ChargeFrom.STARTED,
            "prices": Position(1),
            **said,
        },
    )
