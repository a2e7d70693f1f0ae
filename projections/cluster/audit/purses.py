"""The auditor's books of credits: accounts, reservations with what their runs used, and the documents of the time."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final, Generic, NamedTuple, TypeVar

from events.accounts import AccountsSet
from events.base import START, AccountId, AskId, JobId, NodeEpoch, NodeId, Position, Recorded, RunId, TeamId
from events.credit import CreditEvent, CreditReserved, EndedAs, RefundCause
from events.job import StopCause
from events.policy import PolicySet
from events.prices import PricesSet
from events.queues import QueuesSet
from events.teller import AdjustmentAsked, GrantAsked

T = TypeVar("T")
US: Final = timedelta(microseconds=1)
SECOND: Final = 1_000_000  # microseconds
AGES: Final = timedelta(days=366_000)  # what lasts longer counts as this
NANO_US: Final = 3_600 * 10**6 * 10**3  # a GPU-hour in GPU-microseconds, times the nano-credits of a micro-credit


class Tally(NamedTuple):
    """What the entries of one kind add up to."""

    entries: int = 0
    amount: int = 0
    gpu_us: int = 0
    balances: int = 0  # after each of them


@dataclass
class Purse:
    """An account as the auditor has it: sums of what its entries say, whatever they ought to say."""

    entry: int = 0
    granted: int = 0
    adjusted: int = 0
    committed: int = 0
    reserved: int = 0  # with renewals, less what was committed and refunded
    reservations: int = 0  # that are not resolved
    closed: bool = False
    tallies: dict[type[CreditEvent], Tally] = field(default_factory=dict)

    @property
    def balance(self) -> int:
        """What is available, without any overdraft."""
        return self.granted + self.adjusted - self.committed - self.reserved

    def tally(self, e: CreditEvent) -> None:
        """The entry is counted, after it did what it does."""
        before = self.tallies.get(type(e), Tally())
        amount, gpu_us = getattr(e, "amount_micro", 0), getattr(e, "gpu_us", 0)
        after = before.entries + 1, before.amount + amount, before.gpu_us + gpu_us, before.balances + self.balance
        self.tallies[type(e)] = Tally(*after)


class Gone(NamedTuple):
    """GPUs of a run that no longer count."""

    until: datetime
    gpus: int
    learned: Position
    told: bool  # only then: they counted, as far as anybody knew, beyond `until`


class Loss(NamedTuple):
    """That a life of a node was declared over, and by which round: as of what that decided."""

    epoch: NodeEpoch
    decided_at: Position


class Over(NamedTuple):
    """How what a reservation was for ended."""

    outcome: EndedAs
    used_us: int
    began: datetime | None
    ended: datetime


@dataclass
class Charge:
    """A reservation that is not resolved, and what its run uses."""

    reserved: CreditReserved
    covers_s: int
    amount_micro: int  # with renewals
    committed_micro: int = -1  # -1: not yet
    charged_us: int = 0  # that are due by that
    uncovered_micro: int = 0
    uncovered_here: bool = False  # the account bears that
    refunded: Counter[RefundCause] = field(default_factory=Counter)
    recorded_us: int = 0
    recorded_micro: int = 0
    recorded_until: datetime | None = None
    records: int = 0
    corrected: bool = False
    # What its run uses, from the run's own records.
    placed: bool = False
    gpu_type: str = ""
    gpus: int = 0
    renews: bool = False
    shares: dict[NodeId, NodeEpoch] = field(default_factory=dict)  # where it is, and in which lives
    to_start: set[NodeId] = field(default_factory=set)
    since: datetime | None = None
    counting: int = 0
    gone: list[Gone] = field(default_factory=list)
    saved: int = -1
    saved_us: int = 0
    stopping: StopCause | None = None
    witnesses: set[str] = field(default_factory=set)  # ids of records that may prove how it ended
    over: Over | None = None

    @property
    def rest(self) -> int:
        """What is neither committed nor refunded."""
        return self.amount_micro - max(0, self.committed_micro) - self.refunded.total()

    @property
    def nano(self) -> int:
        """Its rate: of its type, or the dearest where it has none for that."""
        rates = {rate.gpu_type: rate.nano_per_gpu_hour for rate in self.reserved.rates}
        return rates.get(self.gpu_type, max(rates.values(), default=0))

    def leave(self, gpus: int, until: datetime, recorded: Recorded) -> None:
        """So many of its GPUs count until then, and no longer."""
        self.counting -= gpus
        if gpus and self.since is not None:
            self.gone.append(Gone(max(until, self.since), gpus, recorded.position, until != recorded.at))

    def used_us(self, at: datetime, *, decided_at: Position | None = None) -> int:
        """GPU-microseconds up to a time. `decided_at`: the most that could be thought then, or before all was told."""
        if self.since is None:
            return 0
        total = self.counting * self._stepped_us(at)
        for one in self.gone:
            sure = decided_at is None or (one.learned <= decided_at and not one.told)
            total += one.gpus * self._stepped_us(min(one.until, at) if sure else at)
        return total

    @property
    def needs_micro(self) -> int:
        """What all its GPUs cost for as long as is covered."""
        return cost(self.gpus * stepped(self.covers_s * SECOND, self.reserved.step_s), self.nano)

    @property
    def covered_until(self) -> datetime | None:
        """Until when what is reserved lasts."""
        return self.since + min(timedelta(seconds=self.covers_s), AGES) if self.since is not None else None

    def is_of(self, e: CreditEvent) -> bool:
        """Whether an entry that names its run is about this reservation in every other way too."""
        said = (e.account, getattr(e, "job_id", ""), getattr(e, "reservation", self.reserved.entry))
        return said == (self.reserved.account, self.reserved.job_id, self.reserved.entry)

    def _stepped_us(self, until: datetime) -> int:
        assert self.since is not None
        return stepped((until - self.since) // US, self.reserved.step_s)


def cost(gpu_us: int, nano_per_gpu_hour: int) -> int:
    """Micro-credits, to the nearest; of two equally near the even one, which is how a fraction rounds."""
    return round(Fraction(gpu_us * nano_per_gpu_hour, NANO_US))


def stepped(time_us: int, step_s: int) -> int:
    """So much time, in whole steps; begun ones count whole."""
    time_us, step_us = max(0, time_us), step_s * SECOND
    return time_us if not step_us else (time_us + step_us - 1) // step_us * step_us


def name_of(e: CreditEvent) -> str:
    """How findings name an entry."""
    run = f" for {run_id}" if (run_id := getattr(e, "run_id", "")) else ""
    return f"{type(e).__name__}, entry {e.entry} of {e.account}{run}"


class Debt(NamedTuple):
    """An entry of an account that is still owed, or may still be given back."""

    account: AccountId
    entry: int


class Admitted(NamedTuple):
    """A job that was admitted just now, and who pays for it."""

    position: Position
    job_id: JobId
    team: TeamId
    account: AccountId | None


class Payer(NamedTuple):
    """What who pays depends on: the documents of accounts and queues, the team, and what the job names."""

    accounts: Position
    queues: Position
    team: TeamId
    named: str


class Versions(Generic[T]):
    """A standing document with those before it."""

    def __init__(self, first: T) -> None:
        self._positions: list[Position] = [START]
        self._all: list[T] = [first]

    def put(self, position: Position, document: T) -> None:
        """It holds from here on."""
        self._positions.append(position)
        self._all.append(document)

    def at(self, decided_at: Position) -> T:
        """The one that held when something was decided."""
        return self._all[bisect_right(self._positions, decided_at) - 1]

    def position(self, decided_at: Position) -> Position:
        """Where that was set."""
        return self._positions[bisect_right(self._positions, decided_at) - 1]

    def since(self, decided_at: Position, holds: Callable[[T], bool]) -> Position:
        """The first of the documents, up to that one without a gap, of which something holds. It holds of that one."""
        index = bisect_right(self._positions, decided_at) - 1
        while index and holds(self._all[index - 1]):
            index -= 1
        return self._positions[index]


AGES_AGO: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass
class CreditBooks:
    """All that the auditor knows of credits."""

    accounts: Versions[AccountsSet] = field(default_factory=lambda: Versions(AccountsSet(at=AGES_AGO)))
    overdrafts: Versions[dict[AccountId, int | None]] = field(default_factory=lambda: Versions({}))  # as they say
    prices: Versions[PricesSet] = field(default_factory=lambda: Versions(PricesSet(at=AGES_AGO)))
    policies: Versions[PolicySet] = field(default_factory=lambda: Versions(PolicySet(at=AGES_AGO)))
    queues: Versions[QueuesSet] = field(default_factory=lambda: Versions(QueuesSet(at=AGES_AGO, queues=())))
    purses: dict[AccountId, Purse] = field(default_factory=dict)
    charges: dict[RunId, Charge] = field(default_factory=dict)  # that are not resolved
    waiting: dict[JobId, RunId] = field(default_factory=dict)  # of jobs that have no GPUs yet
    here: dict[NodeId, dict[RunId, int]] = field(default_factory=dict)  # slots of charged runs on living nodes
    lives: dict[NodeId, NodeEpoch] = field(default_factory=dict)
    silent: dict[NodeId, datetime] = field(default_factory=dict)  # suspects, and when they were heard last
    lost: dict[NodeId, Loss] = field(default_factory=dict)  # the last of each node
    asks: dict[AskId, GrantAsked | AdjustmentAsked] = field(default_factory=dict)
    asked: set[AskId] = field(default_factory=set)  # ever
    debts: dict[Debt, int] = field(default_factory=dict)
    commits: dict[Debt, int] = field(default_factory=dict)  # what may still be given back of each
    month: str = ""  # the last that is closed
    admitted: Admitted | None = None  # by the record before
    payers: dict[Payer, AccountId | None] = field(default_factory=dict)  # known ones
