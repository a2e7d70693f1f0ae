"""What becomes of runs: complete, to be stopped, over; and of jobs that are no longer wanted."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Final

from events.base import Event, NodeId, RunId
from events.job import (
    FailureCategory,
    JobCancelled,
    JobFailed,
    JobRequeued,
    JobSucceeded,
    JobTimedOut,
    RunStarted,
    RunStopping,
    StopCause,
)
from projections.cluster.draining import due
from projections.cluster.failures import (
    BLAMELESS_CAUSES,
    UNSAID,
    Budget,
    Verdict,
    back_off,
    budget_of,
    gpu_judged,
    made_way,
    node_at,
    retried,
    verdict_on,
)
from projections.cluster.job import Job, JobState, Run
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick

DECIDED_MAX: Final = 1_000  # runs and jobs in one round; the rest is the next round's
JUDGED_WITHIN: Final = timedelta(seconds=5)  # how long a sign of trouble is waited for, before a user is blamed


def decide(cluster: Cluster, tick: Tick) -> list[Event]:
    """Lifecycle's part of a round. It alone stops runs and ends jobs that had GPUs."""
    events: list[Event] = []
    asking = set(islice(cluster.attention, DECIDED_MAX))
    outside = _outside(cluster, tick)
    for run_id in sorted(asking | outside.keys()):
        run = cluster.runs[run_id]
        cause = StopCause.QUEUE_HELD if cluster.tree.on_hold(run.team) else outside.get(run_id)
        events += _of_run(cluster, run, tick, cause)
    for job_id in sorted(islice(cluster.unwanted, DECIDED_MAX)):
        job = cluster.jobs[job_id]
        assert job.state is not JobState.PLACED, job
        events.append(JobCancelled(**tick.of_job(job)))
    return events


def _outside(cluster: Cluster, tick: Tick) -> dict[RunId, StopCause]:
    """Runs of which time makes something, and the first reason of these: a drain, a start that took too long, credits."""
    late = (run_id for run_id in cluster.starting.until(None, tick.at) if cluster.runs[run_id].absent)
    found = dict.fromkeys(islice(_unpaid(cluster, tick), DECIDED_MAX), StopCause.CREDITS)
    found |= dict.fromkeys(islice(late, DECIDED_MAX), StopCause.START_DEADLINE)
    return found | dict.fromkeys(islice(due(cluster, tick.at), DECIDED_MAX), StopCause.DRAIN)


def _unpaid(cluster: Cluster, tick: Tick) -> Iterator[RunId]:
    """Runs that are to be told to stop now, so that they end within what is reserved: their accounts cannot pay for more."""
    for cover in sorted(cover for cover in cluster.credits.covered.groups() if cover.short):
        yield from cluster.credits.covered.until(cover, tick.at)


def _of_run(cluster: Cluster, run: Run, tick: Tick, outside: StopCause | None) -> list[Event]:
    job = cluster.jobs[run.job_id]
    ids = tick.of_run(run, job)
    events: list[Event] = []
    if run.started_at is None and run.started == run.all:
        events.append(RunStarted(**ids))
    if run.over:
        events += _outcome(cluster, run, job, tick)
    elif run.stopping is None and (found := _to_stop(cluster, run, job, outside)) is not None:
        stopping = RunStopping(**ids, cause=found.cause, node_id=found.node_id, exit_code=found.exit_code)
        events.append(stopping)
    return events


def _to_stop(cluster: Cluster, run: Run, job: Job, outside: StopCause | None) -> Verdict | None:
    """Why the run has to be stopped; None when it need not be."""
    if job.cancel and run.ended != run.all:
        return Verdict(StopCause.CANCEL, FailureCategory.NONE)
    if _ended_well(run):
        return None
    if (found := verdict_on(run)) is not None:
        return found
    if run.evicted_for:
        outside = StopCause.CONSOLIDATED if run.moved else StopCause.PREEMPTED
    if outside is StopCause.START_DEADLINE:
        return Verdict(outside, FailureCategory.NODE, node_at(run, run.absent))
    return made_way(outside, _drained(cluster, run) if outside is StopCause.DRAIN else NodeId("")) if outside else None


def _ended_well(run: Run) -> bool:
    """Whether all its ranks exited with 0, whatever came before they had given their GPUs back."""
    return run.ended == run.all and run.failure is None


def _drained(cluster: Cluster, run: Run) -> NodeId:
    """The first node of the run that is drained."""
    nodes = (cluster.nodes[share.node_id] for share in run.shares)
    return next((node.node_id for node in nodes if node.fitness.drain is not None), NodeId(""))


def _outcome(cluster: Cluster, run: Run, job: Job, tick: Tick) -> list[Event]:
    """What the end of a run means for its job; nothing yet where what may have ended it has still to be judged."""
    ids = tick.of_run(run, job)
    if _ended_well(run) and run.stopping is not StopCause.CANCEL:
        return [JobSucceeded(**ids)]
    if run.stopping is StopCause.CANCEL or job.cancel:
        return [JobCancelled(**ids)]
    found = _verdict(cluster, run)
    if found.cause is StopCause.RANK_FAILED and _to_be_judged(cluster, run, tick):
        return []
    if found.cause is StopCause.TIME_LIMIT:
        return [JobTimedOut(**ids)]
    budget = budget_of(found.cause)
    failures, retries = retried(job, budget)
    if budget is Budget.APPLICATION and failures >= retries:
        return [JobFailed(**ids, **found.told())]
    held = budget is Budget.INFRASTRUCTURE and failures >= retries  # the job is well: somebody looks at what is not
    waits = timedelta() if held or budget is Budget.NONE else back_off(failures)
    return [JobRequeued(**ids, **found.told(), not_before=tick.at + waits, avoid=found.avoid, held=held)]


def _verdict(cluster: Cluster, run: Run) -> Verdict:
    """What ended a run that did not end well. One that was to make way did, unless its time was up before."""
    found = verdict_on(run)
    if run.stopping in BLAMELESS_CAUSES and (found is None or found.cause is not StopCause.TIME_LIMIT):
        return made_way(run.stopping, run.blamed)
    if found is not None and found.cause is StopCause.RANK_FAILED:
        found = verdict_on(run, gpu_node=gpu_judged(cluster, run))
    return found or UNSAID


def _to_be_judged(cluster: Cluster, run: Run, tick: Tick) -> bool:
    """Whether a GPU of the run showed a sign of trouble lately that health has not judged: its ranks may have died of it."""
    for share in run.shares:
        node = cluster.nodes.get(share.node_id)
        for sign in node.fitness.pending if node is not None else ():
            fresh = not sign.held_back and max(run.placed_at, tick.at - JUDGED_WITHIN) <= sign.at
            if fresh and node is not None and node.mask((sign.gpu_uuid,)) & share.slots:
                return True
    return False
