"""How the life of jobs and runs moves their bills: placed, counting, over, or never placed."""

from typing import Final

from msgspec.structs import replace

from events.base import Recorded, RunId, run_id_of
from events.credit import EndedAs
from events.policy import ChargeFrom
from projections.cluster.credit.book import End
from projections.cluster.credit.keep import end_bill, put_bill
from projections.cluster.credit.meter import leaving
from projections.cluster.job import Job, JobState, Run, grace
from projections.cluster.state import Cluster

WORD_S: Final = 2  # that the word to stop, and the last GPU's release, may take beside the grace


def charged(cluster: Cluster, run: Run, recorded: Recorded) -> Run:
    """The run, just placed, which counts from now on if it does so before it has started.

    Its bill, if it has one, knows what it was placed on, and whether it may need more.
    """
    bill = cluster.credits.bills.get(run.run_id)
    at_once = (bill.charge_from if bill is not None else cluster.policy.charge_from) is ChargeFrom.PLACED
    counts_from = recorded.at if at_once else None
    if bill is not None:
        grace_s = int(grace(cluster.jobs[run.job_id].spec).total_seconds()) + WORD_S
        renews = not bill.declared or run.extends
        put_bill(
            cluster,
            replace(
                bill,
                gpu_type=run.gpu_type,
                gpus=run.gpus,
                renews=renews,
                grace_s=grace_s,
                counts_from=counts_from,
            ),
        )
    return replace(run, metered_from=counts_from) if at_once else run


def covers_no_more(cluster: Cluster, run_id: RunId) -> None:
    """The run was told to stop: nothing more is reserved for it."""
    bill = cluster.credits.bills.get(run_id)
    if bill is not None and bill.renews:
        put_bill(cluster, replace(bill, renews=False))


def started(cluster: Cluster, run: Run, shares: int, recorded: Recorded) -> Run:
    """The run, of which these shares have started; once all have, its use counts from now on, if it does not already."""
    if shares != run.all or run.metered_from is not None:
        return replace(run, started=shares)
    if (bill := cluster.credits.bills.get(run.run_id)) is not None:
        put_bill(cluster, replace(bill, counts_from=recorded.at))
    return replace(run, started=shares, metered_from=recorded.at)


def count_no_more(cluster: Cluster, run_id: RunId, recorded: Recorded, outcome: EndedAs) -> None:
    """The run is over, and its bill, if it has one, is to be settled by what it used."""
    run, bill = cluster.runs[run_id], cluster.credits.bills.get(run_id)
    if bill is None:
        return
    run = leaving(run, bill, run.metering, recorded.at)
    end = End(
        outcome=outcome,
        used_us=run.metered_us,
        saved_us=run.saved_us,
        began=run.metered_from,
        ended=run.metered_until or recorded.at,
        marks=run.marks,
        evidence=run.evidence,
    )
    put_bill(cluster, replace(bill, end=end))


def never_placed(cluster: Cluster, job: Job, recorded: Recorded) -> None:
    """What is reserved for the run that an admitted job would have had is to be given back."""
    if job.state is JobState.ADMITTED:
        end = End(outcome=EndedAs.NEVER_PLACED, ended=recorded.at)
        end_bill(cluster, run_id_of(job.job_id, job.attempt + 1), end)
