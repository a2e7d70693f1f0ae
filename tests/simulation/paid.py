"""Days on which teams pay: rich and poor ones, instalments, prices that change, nodes that fail, jobs that are cancelled."""

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Final

from events.accounts import Account, AccountsSet
from events.base import AccountId, AskId, Event, GpuUuid, NodeEpoch, NodeId, TeamId
from events.credit import CreditRenewed, CreditReserved
from events.job import JobCancelRequested, JobEvent, Priority
from events.node import GpusFoundClean, NodeJoined
from events.policy import Bearer, ChargeFrom, Consolidation, Overrun, PolicySet, Waived
from events.prices import ClassFactor, GpuPrice, PriceList, PricesSet
from events.queues import QueuesSet
from events.teller import AdjustmentAsked, GrantAsked
from projections.cluster.tick import Tick
from services.control.round import decide_all
from services.simulate.engine import Simulation
from services.simulate.work import US, Work
from tests.simulation.days import TEAMS, Day, tree, works

DAWN: Final = datetime.fromisoformat("2026-01-31T23:59:30+00:00")  # an hour, a day and a month end soon
EVERY_US: Final = 4 * US  # time alone asks for decisions: instalments, hours
SILENT_S: Final = 100.0
GPUS: Final = 4
CREDIT: Final = 1_000_000  # micro-credits


class PaidDay(Day):
    """A day that makes sure, at each reservation, that its account could pay for it."""

    def __init__(self, random: Random) -> None:
        self.records = []
        self.over = []
        self.overdrawn: list[str] = []  # reservations that left less than the overdraft allows
        self.random = random
        self.asks = 0
        self.turns: list[tuple[int, Callable[[], None]]] = []  # what others do and when, in order
        Simulation.__init__(self, begin=DAWN)

    def record(self, *events: Event) -> None:
        """As in any day."""
        for event in events:
            super().record(event)
            if isinstance(event, CreditReserved | CreditRenewed) and event.amount_micro:
                headroom = self.cluster.credits.headroom(event.account)
                if headroom is not None and headroom < 0:
                    self.overdrawn.append(f"{event.account} entry {event.entry}: {headroom}")

    def _next_us(self) -> int:
        next_us = super()._next_us()
        if self.turns:
            next_us = min(next_us, self.turns[0][0])
        if self.cluster.runs or self.cluster.credits.bills:
            next_us = min(next_us, (self.now_us // EVERY_US + 1) * EVERY_US)
        return next_us

    def _settle(self) -> None:
        while self.turns and self.turns[0][0] <= self.now_us:
            self.turns.pop(0)[1]()
        super()._settle()

    def ask(self) -> None:
        """An operator gives an account some credits, or corrects its balance."""
        self.asks += 1
        account = AccountId(self.random.choice(TEAMS[:3]))
        amount = self.random.choice((CREDIT // 50, CREDIT // 20, CREDIT // 5, -CREDIT // 20))
        kind = GrantAsked if amount > 0 else AdjustmentAsked
        ask_id, key = AskId(f"a{self.asks}"), f"k{self.asks}"
        self.record(kind(at=self._at, account=account, ask_id=ask_id, key=key, request_hash="h", amount_micro=amount))

    def price(self) -> None:
        """Prices are others, at once and perhaps once more soon."""
        self.record(some_prices(self.random, self._at))

    def cancel(self) -> None:
        """A user no longer wants a job."""
        jobs = sorted(self.cluster.jobs)
        if jobs:
            job = self.cluster.jobs[self.random.choice(jobs)]
            self.record(JobCancelRequested(at=self._at, team=job.team, job_id=job.job_id))

    def fail(self) -> None:
        """A node begins a new life, or is silent for so long that it is lost; then it comes back."""
        node_id = self.random.choice(sorted(self.cluster.nodes))
        if self.random.random() < 0.5:
            tick = Tick(at=self._at, position=self.cluster.position, silent={node_id: SILENT_S})
            for event in decide_all(self.cluster, tick):
                self.record(event)
                if isinstance(event, JobEvent):
                    self._follow(event)
        self.come_back(node_id)

    def come_back(self, node_id: NodeId) -> None:
        """The node joins, and finds its GPUs clean."""
        uuids = tuple(GpuUuid(f"{node_id}-{slot}") for slot in range(GPUS))
        labels = dict(self.cluster.nodes[node_id].labels)
        said = {"boot_id": "", "instance": "", "gpu_type": "gpu", "address": "", "port_base": 0, "labels": labels}
        self.record(NodeJoined(at=self._at, node_id=node_id, gpu_uuids=uuids, **said))  # type: ignore[arg-type]
        epoch = NodeEpoch(self.cluster.position)
        self.record(GpusFoundClean(at=self._at, node_id=node_id, node_epoch=epoch, gpu_uuids=uuids))


def some_prices(random: Random, at: datetime) -> PricesSet:
    """Some 3.6 credits an hour, so that a GPU-second costs a thousandth; and other prices soon, or not."""

    def one(effective_from: datetime | None) -> PriceList:
        price = GpuPrice("", random.choice((0, 1_800_000, 3_600_000, 5_000_001)))
        factors = random.choice(((), (ClassFactor(Priority.URGENT, 1_500), ClassFactor(Priority.LOW, 500))))
        return PriceList(
            effective_from=effective_from, prices=(price,), factors=factors, step_s=random.choice((0, 1, 7))
        )

    later = [at + timedelta(seconds=random.choice((5, 20)))] if random.random() < 0.5 else []
    return PricesSet(at=at, lists=tuple(one(begins) for begins in (None, *later)))


def paid_day(seed: int, *, jobs: int = 20) -> tuple[PaidDay, list[Work]]:
    """A cluster whose teams are charged, all but one; what will be asked of it, and what happens to it."""
    random = Random(seed)
    grown = PaidDay(random)
    nodes = random.choice((2, 4))
    for number in range(nodes):
        grown.join([NodeId(f"n{number}")], GPUS, labels={"rack": f"r{number % 2}", "spine": "s"})
    if random.random() < 0.7:
        grown.record(QueuesSet(at=DAWN, queues=tree(random, nodes * GPUS)))
    grown.record(_policy(random))
    overdrafts = (None, CREDIT // 20, 0)
    accounts = tuple(
        Account(name=AccountId(name), queues=(TeamId(name),), overdraft_micro=overdraft)
        for name, overdraft in zip(TEAMS[:3], overdrafts, strict=True)
    )
    grown.record(AccountsSet(at=DAWN, accounts=accounts, closed_through=random.choice(("", "2026-01", "2026-01"))))
    grown.record(some_prices(random, DAWN))
    for _ in range(6):
        grown.ask()
    asked = works(random, nodes, jobs)
    last_us = asked[-1].arrives_us + 120 * US
    happens = [grown.ask] * 8 + [grown.price] * 2 + [grown.cancel] * 3 + [grown.fail] * 4
    grown.turns = sorted(((random.randrange(last_us), what) for what in happens), key=lambda turn: turn[0])
    return grown, asked


def _policy(random: Random) -> PolicySet:
    return PolicySet(
        at=DAWN,
        promises=random.choice((0, 1, 3)),
        overrun=random.choice((Overrun.KILL, Overrun.KILL, Overrun.EXTEND)),
        preemption=random.random() < 0.7,
        min_runtime_s=random.choice((0, 5)),
        evictions_max=random.choice((1, 3)),
        cool_down_s=0,
        consolidation=random.choice(list(Consolidation)),
        charge_from=ChargeFrom.PLACED,  # agents of a simulation do not say apart that ranks have started
        instalment_s=random.choice((4, 4, 15, 60)),
        waived_failed=random.choice(list(Waived)),
        waived_preempted=random.choice(list(Waived)),
        uncovered=random.choice(list(Bearer)),
        lost_most_s=90.0,  # whatever runs there
    )
