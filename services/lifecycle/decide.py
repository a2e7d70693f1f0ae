"""What becomes of runs: complete, to be stopped, over; and of jobs that are no longer wanted."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Final

from events.base import Event, NodeId, RunId
from events.job import (
    JobCancelled,
    JobFailed,
    JobRequeued,
    JobSucceeded,
    JobTimedOut,
    RunStarted,
    RunStopping,
    StopCause,
)
from events.node import EndReason
from projections.cluster.evolve_jobs import BLAMELESS_CAUSES
from projections.cluster.job import BACK_OFF_MAX, Job, JobState, Run
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick

DECIDED_MAX: Final = 1_000  # runs and jobs in one round; the rest is the next round's
BACK_OFF_S: Final = 1.0  # before the second attempt, doubled with each further one

CAUSES: Final = {
    EndReason.EXITED: StopCause.RANK_FAILED,
    EndReason.START_FAILED: StopCause.START_FAILED,
    EndReason.TIME_LIMIT: StopCause.TIME_LIMIT,
    EndReason.NODE_REBOOTED: StopCause.NODE_LOST,
    EndReason.STOPPED: StopCause.NODE_LOST,  # by its agent alone: it had lost contact
    EndReason.NEVER_STARTED: StopCause.NODE_LOST,
}


def decide(cluster: Cluster, tick: Tick) -> list[Event]:
    """Lifecycle's part of a round. It alone stops runs and ends jobs that had GPUs."""
    events: list[Event] = []
    asking = set(islice(cluster.attention, DECIDED_MAX))
    unpaid = set(islice(_unpaid(cluster, tick), DECIDED_MAX))
    drained = set(islice(_drained(cluster, tick), DECIDED_MAX))
    for run_id in sorted(asking | unpaid | drained):
        run = cluster.runs[run_id]
        outside = _outside(on_hold=cluster.tree.on_hold(run.team), drained=run_id in drained, unpaid=run_id in unpaid)
        events += _of_run(run, cluster.jobs[run.job_id], tick, outside)
    for job_id in sorted(islice(cluster.unwanted, DECIDED_MAX)):
        job = cluster.jobs[job_id]
        assert job.state is not JobState.PLACED, job
        events.append(JobCancelled(**tick.of_job(job)))
    return events


def _unpaid(cluster: Cluster, tick: Tick) -> Iterator[RunId]:
    """Runs that are to be told to stop now, so that they end within what is reserved: their accounts cannot pay for more."""
    for cover in sorted(cover for cover in cluster.credits.covered.groups() if cover.short):
        for (stop, *_), run_id in cluster.credits.covered.line(cover):
            if stop > tick.at.timestamp():
                break
            yield run_id


def _drained(cluster: Cluster, tick: Tick) -> Iterator[RunId]:
    """Runs on nodes whose drain has come to its deadline."""
    for node_id in sorted(cluster.cases):
        node = cluster.nodes[node_id]
        drain = node.fitness.drain
        if drain is not None and drain.deadline is not None and drain.deadline <= tick.at:
            yield from sorted(run_id for run_id in node.held if cluster.runs[run_id].stopping is None)


def _outside(*, on_hold: bool, drained: bool, unpaid: bool) -> StopCause | None:
    """Why a run has to be stopped that has nothing to do with the run itself."""
    if on_hold:
        return StopCause.QUEUE_HELD
    if drained:
        return StopCause.DRAIN
    return StopCause.CREDITS if unpaid else None


def _of_run(run: Run, job: Job, tick: Tick, outside: StopCause | None) -> list[Event]:
    ids = tick.of_run(run, job)
    events: list[Event] = []
    if run.started_at is None and run.started == run.all:
        events.append(RunStarted(**ids))
    if run.over:
        events.append(_outcome(run, job, tick))
    elif run.stopping is None and (cause := _cause(run, job, outside)) is not None:
        node_id, exit_code = _evidence(run)
        events.append(RunStopping(**ids, cause=cause, node_id=node_id, exit_code=exit_code))
    return events


def _cause(run: Run, job: Job, outside: StopCause | None = None) -> StopCause | None:
    """Why the run has to be stopped; None when it need not be."""
    if job.cancel and run.ended != run.all:
        return StopCause.CANCEL
    if run.broken:
        return StopCause.NODE_LOST
    if run.failure is not None:
        return CAUSES[run.failure.reason]
    if run.ended == run.all:
        return None
    if run.hurt:
        return StopCause.GPU
    if run.evicted_for:
        return StopCause.CONSOLIDATED if run.moved else StopCause.PREEMPTED
    return outside


def _evidence(run: Run) -> tuple[NodeId, int]:
    """The node that failed first, by its own report or by its silence, and the exit code it reported."""
    if run.failure is not None:
        return run.failure.node_id, run.failure.exit_code
    if run.broken:
        return run.shares[(run.broken & -run.broken).bit_length() - 1].node_id, 0
    return NodeId(""), 0


def _outcome(run: Run, job: Job, tick: Tick) -> Event:
    """What the end of a run means for its job."""
    ids = tick.of_run(run, job)
    cause = run.stopping or _cause(run, job)
    if run.ended == run.all and run.failure is None and (cause is None or cause in BLAMELESS_CAUSES):
        return JobSucceeded(**ids)  # also one that was to make room, and had ended well before the word reached it
    if cause in BLAMELESS_CAUSES and run.failure is not None and run.failure.reason is EndReason.TIME_LIMIT:
        cause = StopCause.TIME_LIMIT  # likewise
    cause = cause or StopCause.NODE_LOST  # its GPUs came back without a word how it ended
    if cause is StopCause.CANCEL or job.cancel:
        return JobCancelled(**ids)
    if cause is StopCause.TIME_LIMIT:
        return JobTimedOut(**ids)
    if cause is StopCause.RANK_FAILED and run.broken:
        cause = StopCause.NODE_LOST  # the ranks failed because a node had gone: not the application's fault
    if cause in BLAMELESS_CAUSES:
        return JobRequeued(**ids, cause=cause, not_before=tick.at)
    application = cause is StopCause.RANK_FAILED
    failures = job.failures_application if application else job.failures_infrastructure
    retries = job.spec.retries_application if application else job.spec.retries_infrastructure
    if failures < retries:
        wait = min(timedelta(seconds=BACK_OFF_S * 2 ** min(failures, 16)), BACK_OFF_MAX)
        return JobRequeued(**ids, cause=cause, not_before=tick.at + wait)
    node_id, exit_code = _evidence(run)
    return JobFailed(**ids, cause=cause, node_id=node_id, exit_code=exit_code)
