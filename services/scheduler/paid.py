"""Which admitted jobs may have GPUs as far as their accounts go: none at a price that is not the one in force."""

from datetime import datetime

from events.base import run_id_of
from projections.cluster.credit.price import Priced, list_at
from projections.cluster.job import Job
from projections.cluster.state import Cluster


class Paid:
    """What is reserved for admitted jobs, held against the prices in force. Those that it says no to, admission takes back."""

    def __init__(self, cluster: Cluster, at: datetime) -> None:
        self._credits = cluster.credits
        self._tree = cluster.tree
        prices = list_at(cluster.credits.prices, at)
        now = Priced(cluster.credits.prices_position, prices.effective_from) if prices is not None else None
        self._now = now
        self._charges = bool(cluster.credits.payers)
        self.all = not self._charges and all(priced == now for priced in cluster.credits.quoted.groups())

    def __call__(self, job: Job) -> bool:
        """Whether the job's next run is paid for at the prices of now, or by nobody."""
        if self.all:
            return True
        bill = self._credits.bills.get(run_id_of(job.job_id, job.attempt + 1))
        if bill is None:
            return not self._charges or self._credits.payers.payer(self._tree.path(job.team), job.spec.account) is None
        return bill.priced == self._now
