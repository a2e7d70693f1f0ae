"""Jobs that were held since nobody could pay for them: which of them somebody can pay for by now. No look at the others."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from events.base import AccountId, JobId, TeamId
from events.job import HoldCode
from events.queues import QueueOrder
from projections.cluster.credit.quote import Quote
from projections.cluster.job import OrderKey
from projections.cluster.state import Cluster, Line, Purse
from services.admission.till import Till

TRIED_MAX: Final = 10_000  # of one purse, the cheapest, in one round


class Unpaid:
    """What holds by now for jobs that the log says nobody can pay for.

    Those of a line are as many purses as accounts are named in it; in one, the first is the cheapest: if that cannot be
    paid for, none can. In strict queues they are tried in order all the same, since the first holds up those behind it.
    """

    def __init__(self, cluster: Cluster, till: Till) -> None:
        self.codes: dict[JobId, HoldCode] = {}  # of jobs that wait for another of these reasons than the log says
        self._cluster = cluster
        self._till = till
        self._payable: dict[Line, list[tuple[OrderKey, JobId]]] = {}
        self._wanting: dict[Line, int] = {}
        self._spent: dict[AccountId, int] = {}  # by those that want GPUs again
        for purse in sorted(cluster.unpaid.groups()):
            self._look_into(purse)
        for payable in self._payable.values():
            payable.sort()

    def in_turn(self, line: Line) -> Iterator[tuple[OrderKey, JobId]]:
        """The jobs of a line that are tried, in order of the policy: those that can be paid for, each on its own."""
        if line.hold is HoldCode.CREDITS and self._strict(line.team):
            return self._cluster.queue.line(line)
        return iter(self._payable.get(line, ()))

    def _strict(self, team: TeamId) -> bool:
        queue = self._cluster.tree.queues.get(team)
        return queue is not None and queue.order is QueueOrder.STRICT

    def wanting(self, line: Line) -> int:
        """How many of those can be, one after the other: they want GPUs again."""
        return self._wanting.get(line, 0)

    def _look_into(self, purse: Purse) -> None:
        cluster, line = self._cluster, purse.line
        entries = list(islice(cluster.unpaid.line(purse), 1))
        quoted = self._till.quote(cluster.jobs[entries[0][1]])
        if isinstance(quoted, HoldCode):
            self._tell(purse, quoted, 0)
            return
        if quoted is None:
            payable = [job_id for _, job_id in islice(cluster.unpaid.line(purse), TRIED_MAX)]
            wanting = cluster.unpaid.count(purse)
        else:
            payable = self._affordable(purse, quoted)
            wanting = self._in_turn(quoted, len(payable))
            self._tell(purse, HoldCode.CREDITS, len(payable))
        if payable:
            jobs = (cluster.jobs[job_id] for job_id in payable)
            self._payable.setdefault(line, []).extend((cluster.key(job), job.job_id) for job in jobs)
            self._wanting[line] = self._wanting.get(line, 0) + wanting

    def _affordable(self, purse: Purse, first: Quote) -> list[JobId]:
        """The jobs that their account can pay for, each on its own, the cheapest first."""
        most = TRIED_MAX
        if not purse.declared and first.amount_micro:  # all cost the same: no more than these
            most = min(most, max(0, self._till.headroom(first.account)) // first.amount_micro)
        found: list[JobId] = []
        for _, job_id in islice(self._cluster.unpaid.line(purse), most):
            quoted = self._till.quote(self._cluster.jobs[job_id])
            if not isinstance(quoted, Quote) or not self._till.covers(quoted.account, quoted.amount_micro):
                break
            found.append(job_id)
        return found

    def _in_turn(self, first: Quote, payable: int) -> int:
        """How many of the payable ones the account can pay for besides those of other purses: at the most so many."""
        if not first.amount_micro:
            return payable
        spent = self._spent.get(first.account, 0)
        jobs = min(payable, max(0, self._till.headroom(first.account) - spent) // first.amount_micro)
        self._spent[first.account] = spent + jobs * first.amount_micro
        return jobs

    def _tell(self, purse: Purse, code: HoldCode, after: int) -> None:
        """Those behind the first so many wait for this."""
        if purse.line.hold is code:
            return
        entries = islice(self._cluster.unpaid.line(purse), after, TRIED_MAX)
        self.codes.update((job_id, code) for _, job_id in entries)
