"""Accounts, and the reservations on them that are not settled yet."""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from events.base import AccountId, JobId, Position, RunId, TeamId
from events.credit import EndedAs, Rate
from events.policy import ChargeFrom
from projections.cluster.credit.price import MICRO, Priced, cost_micro, stepped_us
from projections.cluster.job import Mark

COVERED_MAX_S: Final = 1_000 * 366 * 86_400  # more counts as this: times end with the year 9999


class Terms(NamedTuple):
    """Who pays for a job that waits for GPUs, for which, at which prices; and what of the job decides that."""

    priced: Priced
    account: AccountId
    gpu_types: tuple[str, ...]  # that it may get, and is priced for
    team: TeamId
    named: str  # the account that its spec names
    accepts: tuple[str, ...]  # GPU types; none: any


class Book(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an account has. All in micro-credits."""

    account: AccountId
    entry: int = 0  # its last
    granted: int = 0
    adjusted: int = 0  # the sum of its adjustments
    committed: int = 0
    reserved: int = 0  # for runs that are not settled
    reservations: int = 0  # how many these are
    owed: int = 0  # what was used uncovered, is its to bear, and was not taken from it yet
    closed: bool = False  # for ever

    @property
    def balance(self) -> int:
        """What it has, less what is reserved; less than 0 where it is overdrawn."""
        return self.granted + self.adjusted - self.committed - self.reserved


class End(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How the run of a reservation ended."""

    outcome: EndedAs
    used_us: int = 0  # GPU-microseconds
    saved_us: int = 0  # of these, up to its last checkpoint
    began: datetime | None = None  # from when on it counted; None: it never did
    ended: datetime  # when its last GPU no longer counted
    marks: tuple[Mark, ...] = ()  # what it had used at hours of the clock that are not recorded yet
    evidence: tuple[str, ...] = ()  # CloudEvents ids of what ended it


class Bill(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A reservation that is not settled, and what was recorded of the run that it is for."""

    run_id: RunId
    job_id: JobId
    team: TeamId
    account: AccountId
    reservation: int  # the entry of its `CreditReserved`
    reserved_at: datetime
    reserved_micro: int  # now, with what was renewed and without what was given back
    age: Position  # of its job
    gpus: int  # the most that it may get; once placed, those that it has
    covers_s: int  # for so long, all of them
    declared: bool
    rates: tuple[Rate, ...]
    step_s: int
    charge_from: ChargeFrom
    prices: Position
    effective_from: datetime | None = None
    named: str = ""  # the account that its job names
    accepts: tuple[str, ...] = ()  # GPU types, its job; none: any
    gpu_type: str = ""  # once placed
    renews: bool = False  # it may run beyond what is covered, and more is reserved then
    grace_s: int = 0  # that its stop may take
    counts_from: datetime | None = None  # its use; None: not yet
    running_out: datetime | None = None  # what was told last: its account cannot pay for it beyond this
    recorded_us: int = 0  # GPU-microseconds in its usage records so far
    recorded_micro: int = 0
    recorded_until: datetime | None = None
    records: int = 0
    committed: bool = False  # what it used
    end: End | None = None  # once it is over: to be settled

    @property
    def priced(self) -> Priced:
        """Which prices it has."""
        return Priced(self.prices, self.effective_from)

    @property
    def terms(self) -> Terms:
        """What it depends on, beside the size of its job."""
        gpu_types = tuple(rate.gpu_type for rate in self.rates)
        return Terms(self.priced, self.account, gpu_types, self.team, self.named, self.accepts)

    @property
    def rate(self) -> Rate:
        """Its rate: of the type that it was placed on; not placed, or on a type that it was not priced for: the dearest."""
        for rate in self.rates:
            if rate.gpu_type == self.gpu_type:
                return rate
        return max(self.rates, key=lambda rate: rate.nano_per_gpu_hour)

    @property
    def covered_until(self) -> datetime | None:
        """Until when what is reserved lasts, if it keeps all its GPUs; None: it does not count yet."""
        if self.counts_from is None:
            return None
        return self.counts_from + timedelta(seconds=min(self.covers_s, COVERED_MAX_S))

    @property
    def needs_micro(self) -> int:
        """What so many GPUs cost for so long: what is reserved, once it is placed and what is too much was given back."""
        return self.costs_micro(self.covers_s)

    def costs_micro(self, covers_s: int) -> int:
        """What all its GPUs cost for so long."""
        return cost_micro(self.gpus * stepped_us(covers_s * MICRO, self.step_s), self.rate.nano_per_gpu_hour)
