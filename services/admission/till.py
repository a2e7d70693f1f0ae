"""What accounts can still pay in a round: what is taken from them is counted along, and so are their entries."""

from datetime import datetime
from functools import cached_property
from typing import Final, TypedDict

from events.base import AccountId, TeamId, run_id_of
from events.credit import CreditReserved
from events.job import HoldCode
from projections.cluster.credit.book import Terms
from projections.cluster.credit.price import Priced
from projections.cluster.credit.quote import AMOUNT_MAX, Market, Quote, market_of, quote, reservation, stands
from projections.cluster.job import Job
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick

UNBOUNDED: Final = 1 << 60  # micro-credits below 0 to which an account without a bound may go

Quoted = Quote | HoldCode | None


class Entered(TypedDict):
    """What every record about an account says."""

    at: datetime
    account: AccountId
    entry: int


class Till:
    """The one place through which admission takes from accounts, so that no two records spend the same credits."""

    def __init__(self, cluster: Cluster, tick: Tick) -> None:
        self._cluster = cluster
        self._tick = tick
        self._credits = cluster.credits
        self._charges = bool(cluster.credits.payers)
        self._market: Market | None = None
        self._headrooms: dict[AccountId, int] = {}
        self._entries: dict[AccountId, int] = {}
        self._quotes: dict[tuple[object, ...], Quoted] = {}
        self._unsettled = bool(cluster.credits.settling)

    @property
    def market(self) -> Market:
        """What quotes depend on."""
        self._market = self._market or market_of(self._cluster)
        return self._market

    @cached_property
    def _priced(self) -> Priced | None:
        return self.market.priced(self._tick.at)

    @property
    def charges(self) -> bool:
        """Whether anybody is charged."""
        return self._charges

    def charges_team(self, team: TeamId) -> bool:
        """Whether somebody is to pay for jobs of the team that name no account."""
        return self._charges and self._credits.payers.payer(self._cluster.tree.path(team), "") is not None

    def stands(self, terms: Terms) -> bool:
        """Whether what is reserved on these terms would be so now."""
        return stands(self.market, terms, self._priced)

    def quote(self, job: Job) -> Quoted:
        """What the job's next run will have reserved; a code: why it waits; None: nobody charges it."""
        spec = job.spec
        if not self._charges and not spec.account:
            return None
        alike = (job.team, spec.account, spec.priority, spec.gpu_types, spec.gpus, spec.max_runtime_s)
        if alike not in self._quotes:
            self._quotes[alike] = quote(self.market, job.team, spec, self._tick.at)
        return self._quotes[alike]

    def unsettled(self, job: Job) -> bool:
        """Whether what was reserved for the job's next run, and never used, is not given back yet: there is one such at a time."""
        return self._unsettled and run_id_of(job.job_id, job.attempt + 1) in self._credits.settling

    def headroom(self, account: AccountId) -> int:
        """Micro-credits that the account can still pay; where it has no bound, so many that sums stay within 64 bits."""
        if account not in self._headrooms:
            headroom = self._credits.headroom(account)
            unbounded = self._credits.books[account].balance + UNBOUNDED
            self._headrooms[account] = unbounded if headroom is None else headroom
        return self._headrooms[account]

    def covers(self, account: AccountId, amount_micro: int) -> bool:
        """Whether the account can pay so much. What costs nothing can always be paid."""
        return amount_micro <= min(AMOUNT_MAX, max(self.headroom(account), 0))

    def pays(self, job: Job) -> bool:
        """Whether the job's next run can be paid for, or need not be."""
        quoted = self.quote(job)
        return quoted is None or (isinstance(quoted, Quote) and self.covers(quoted.account, quoted.amount_micro))

    def enter(self, account: AccountId, taken_micro: int = 0) -> Entered:
        """What the account's next record says in any case. So much less is there from now on."""
        entry = self._entries.get(account) or self._credits.books[account].entry
        self._entries[account] = entry + 1
        self._headrooms[account] = self.headroom(account) - taken_micro
        return Entered(at=self._tick.at, account=account, entry=entry + 1)

    def reserve(self, job: Job) -> CreditReserved | HoldCode | None:
        """What is reserved for the job's next run, and taken; a code where it cannot be; None where it need not be."""
        quoted = self.quote(job) if self._charges or job.spec.account else None
        if quoted is None or isinstance(quoted, HoldCode):
            return quoted
        if not self.covers(quoted.account, quoted.amount_micro):
            return HoldCode.CREDITS
        return CreditReserved(**self.enter(quoted.account, quoted.amount_micro), **reservation(job, quoted))
