"""Which admitted jobs may have GPUs as far as their accounts go: none at a price that is not the one in force."""

from datetime import datetime

from events.base import run_id_of
from projections.cluster.credit.book import Terms
from projections.cluster.credit.quote import market_of, stands
from projections.cluster.job import Job
from projections.cluster.state import Cluster


class Paid:
    """What is reserved for admitted jobs, held against what would be now. Those that it says no to, admission takes back."""

    def __init__(self, cluster: Cluster, at: datetime) -> None:
        self._credits = cluster.credits
        self._market = market_of(cluster)
        self._priced = self._market.priced(at)
        self._stands: dict[Terms, bool] = {}
        self.all = not self._credits.payers and not self._credits.quoted.groups()

    def __call__(self, job: Job) -> bool:
        """Whether the job's next run is paid for as it would be now, or by nobody."""
        if self.all:
            return True
        bill = self._credits.bills.get(run_id_of(job.job_id, job.attempt + 1))
        if bill is None:
            return self._market.payers.payer(self._market.tree.path(job.team), job.spec.account) is None
        terms = bill.terms
        if terms not in self._stands:
            self._stands[terms] = stands(self._market, terms, self._priced)
        return self._stands[terms]
