"""How what becomes of jobs and runs changes the cluster, and what is set aside or promised for them."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from events.base import JobId, Recorded, RunId, run_id_of
from events.credit import EndedAs
from events.job import (
    AdmissionWithdrawn,
    HoldCode,
    JobAdmitted,
    JobCancelled,
    JobCancelRequested,
    JobEvent,
    JobFailed,
    JobHeld,
    JobPlaced,
    JobRejected,
    JobRequeued,
    JobResumeAsked,
    JobSubmitted,
    JobSucceeded,
    JobTimedOut,
    NodeShare,
    RunStarted,
    RunStopping,
    StopCause,
)
from events.policy import Overrun
from projections.cluster.account import account
from projections.cluster.avoid import avoiding
from projections.cluster.charging import charged, count_no_more, covers_no_more, never_placed
from projections.cluster.evolve_asides import ASIDE_CHANGES, assert_gang, drop_earmark, job_of
from projections.cluster.failures import Budget, budget_of
from projections.cluster.index import (
    drop_job,
    drop_run,
    look_at,
    node_of,
    put_job,
    put_run,
    put_slots,
)
from projections.cluster.job import (
    BACK_OFF_MAX,
    EVIDENCE_MAX,
    INTERRUPTED,
    RUNTIME_MAX_S,
    Job,
    JobState,
    Run,
    grace,
    lasts,
    shape_of,
)
from projections.cluster.node import NodeState
from projections.cluster.state import Cluster

OUTCOMES: Final = {
    StopCause.CANCEL: EndedAs.CANCELLED,
    StopCause.TIME_LIMIT: EndedAs.TIME_LIMIT,
    StopCause.RANK_FAILED: EndedAs.FAILED,
    **dict.fromkeys(INTERRUPTED, EndedAs.INTERRUPTED),
    StopCause.PREEMPTED: EndedAs.PREEMPTED,
    StopCause.CONSOLIDATED: EndedAs.CONSOLIDATED,
    StopCause.QUEUE_HELD: EndedAs.QUEUE_HELD,
    StopCause.CREDITS: EndedAs.CREDITS,
}  # as far as charging goes


def _run_of(cluster: Cluster, e: JobEvent, run_id: RunId) -> Run:
    """The run that a decision is about."""
    run = cluster.runs[run_id]
    assert job_of(cluster, e).job_id == run.job_id
    return run


def _submitted(cluster: Cluster, e: JobSubmitted, recorded: Recorded) -> None:
    if e.job_id in cluster.jobs:
        return  # by an administrator: the gate writes it as the first of its subject
    shape = shape_of(e.spec)
    put_job(cluster, Job(job_id=e.job_id, team=e.team, spec=e.spec, shape=shape, submitted=recorded.position))


def _cancel_requested(cluster: Cluster, e: JobCancelRequested, recorded: Recorded) -> None:
    job = cluster.jobs.get(e.job_id)
    if job is None or job.cancel or job.team != e.team:
        return  # it has ended, was asked for before, or is another team's
    put_job(cluster, replace(job, cancel=True))
    if job.state is JobState.PLACED:
        look_at(cluster, run_id_of(job.job_id, job.attempt))


def _resume_asked(cluster: Cluster, e: JobResumeAsked, recorded: Recorded) -> None:
    job = cluster.jobs.get(e.job_id)
    if job is None or job.hold is not HoldCode.FAILED_TOO_OFTEN or job.team != e.team:
        return  # it has ended, is not held for its failures, or is another team's
    anew = replace(job, hold=HoldCode.NOT_EVALUATED, failures_application=0, failures_infrastructure=0)
    put_job(cluster, anew)


def _admitted(cluster: Cluster, e: JobAdmitted, recorded: Recorded) -> None:
    job = job_of(cluster, e)
    assert job.state is JobState.QUEUED
    put_job(
        cluster,
        replace(
            job,
            state=JobState.ADMITTED,
            borrowing=e.borrowing,
            admitted_at=recorded.at,
            hold=HoldCode.NOT_EVALUATED,  # what admission had against it holds no more
            not_before=None,
        ),
    )


def _admission_withdrawn(cluster: Cluster, e: AdmissionWithdrawn, recorded: Recorded) -> None:
    job = job_of(cluster, e)
    assert job.state is JobState.ADMITTED
    put_job(cluster, replace(job, state=JobState.QUEUED, borrowing=False))
    never_placed(cluster, job, recorded)


def _held(cluster: Cluster, e: JobHeld, recorded: Recorded) -> None:
    job = job_of(cluster, e)
    assert job.state is not JobState.PLACED
    not_before = job.not_before if e.code is HoldCode.BACKING_OFF else None  # its back-off is over: it stands in line
    put_job(cluster, replace(job, hold=e.code, held_at=recorded.at, not_before=not_before))


def _placed(cluster: Cluster, e: JobPlaced, recorded: Recorded) -> None:
    job = job_of(cluster, e)
    assert job.state is JobState.ADMITTED
    assert (e.attempt, e.run_id) == (job.attempt + 1, run_id_of(job.job_id, e.attempt))
    assert_gang(cluster, e.shares, e.ranks)
    _assert_free(cluster, e.shares, job.job_id)
    account(cluster, job.team, recorded.at)
    if job.job_id in cluster.earmarks:
        drop_earmark(cluster, job.job_id)
    if job.job_id in cluster.promises:
        del cluster.promises[job.job_id]
    put_job(cluster, replace(job, state=JobState.PLACED, attempt=e.attempt, not_before=None))
    dead = 0
    for index, share in enumerate(e.shares):
        node = node_of(cluster, share.node_id, share.node_epoch)
        if node is None or node.state is NodeState.LOST:  # the placement lost a race: its share is dead on arrival
            dead |= 1 << index
        else:
            put_slots(cluster, node.taking(e.run_id, share.slots))
    run = Run(
        run_id=e.run_id,
        job_id=e.job_id,
        attempt=e.attempt,
        shares=e.shares,
        ranks=e.ranks,
        placed_at=recorded.at,
        placed=recorded.position,
        gpus=sum(share.slots.bit_count() for share in e.shares),
        gpu_type=cluster.nodes[e.shares[0].node_id].gpu_type,
        team=job.team,
        rank=job.rank,
        preemptible=job.spec.preemptible,
        max_runtime_s=job.spec.max_runtime_s,
        extends=cluster.policy.overrun is Overrun.EXTEND,
        on_lost=job.spec.on_lost,
        end=_after(recorded, lasts(job.spec)),
        starts_by=_after(recorded, _starts_within(cluster, job)),
        dead=dead,
        clean=dead,  # it never began there: the node joined anew before it was told
        metering=sum(s.slots.bit_count() for index, s in enumerate(e.shares) if not dead >> index & 1),
        evidence=(recorded.id,) if dead else (),
    )
    put_run(cluster, charged(cluster, run, recorded))


def _starts_within(cluster: Cluster, job: Job) -> timedelta | None:
    """How long a run of the job may take until all its shares have started; None: as long as it likes."""
    most_s = job.spec.start_within_s or cluster.policy.start_within_s
    return timedelta(seconds=min(most_s, RUNTIME_MAX_S)) if most_s else None


def _assert_free(cluster: Cluster, shares: tuple[NodeShare, ...], job_id: JobId) -> None:
    """Each has what is free on its node and not set aside, if its life is not over."""
    for share in shares:
        node = cluster.nodes[share.node_id]
        open_to_it = node.free & ~(node.marked & ~node.earmarked.get(job_id, 0))
        assert node.epoch != share.node_epoch or node.state is NodeState.LOST or not share.slots & ~open_to_it


def _run_started(cluster: Cluster, e: RunStarted, recorded: Recorded) -> None:
    run = _run_of(cluster, e, e.run_id)
    spec = cluster.jobs[run.job_id].spec
    put_run(cluster, replace(run, started_at=recorded.at, end=_after(recorded, lasts(spec))))


def _run_stopping(cluster: Cluster, e: RunStopping, recorded: Recorded) -> None:
    run = _run_of(cluster, e, e.run_id)
    told = recorded.at + grace(cluster.jobs[run.job_id].spec)
    evidence = (*run.evidence, recorded.id)[:EVIDENCE_MAX]
    end = told if run.end is None else min(run.end, told)
    put_run(
        cluster, replace(run, stopping=e.cause, stopped_at=recorded.at, blamed=e.node_id, end=end, evidence=evidence)
    )
    covers_no_more(cluster, e.run_id)


def _after(recorded: Recorded, time: timedelta | None) -> datetime | None:
    return recorded.at + time if time is not None else None


def _requeued(cluster: Cluster, e: JobRequeued, recorded: Recorded) -> None:
    assert _run_of(cluster, e, e.run_id).over
    _end_run(cluster, e.run_id, recorded, OUTCOMES[e.cause])
    job, budget = cluster.jobs[e.job_id], budget_of(e.cause)
    not_before = min(e.not_before, recorded.at + BACK_OFF_MAX)  # the writer's clock may be years ahead
    job = avoiding(cluster, job, e.avoid, recorded.at)
    put_job(
        cluster,
        replace(
            job,
            state=JobState.QUEUED,
            borrowing=False,
            hold=HoldCode.FAILED_TOO_OFTEN if e.held else HoldCode.NOT_EVALUATED,
            not_before=None if e.held or budget is Budget.NONE else not_before,
            failures_application=job.failures_application + (budget is Budget.APPLICATION),
            failures_infrastructure=job.failures_infrastructure + (budget is Budget.INFRASTRUCTURE),
        ),
    )


def _end_run(cluster: Cluster, run_id: RunId, recorded: Recorded, outcome: EndedAs) -> None:
    account(cluster, cluster.runs[run_id].team, recorded.at)
    count_no_more(cluster, run_id, recorded, outcome)
    drop_run(cluster, run_id)


def _ended(
    cluster: Cluster, e: JobRejected | JobSucceeded | JobFailed | JobCancelled | JobTimedOut, recorded: Recorded
) -> None:
    run_id = RunId("") if isinstance(e, JobRejected) else e.run_id
    if run_id:
        run = _run_of(cluster, e, run_id)
        assert run.over
        _end_run(cluster, run_id, recorded, _outcome(run, e))
    else:
        assert job_of(cluster, e).state is not JobState.PLACED
        never_placed(cluster, cluster.jobs[e.job_id], recorded)
    if e.job_id in cluster.earmarks:
        drop_earmark(cluster, e.job_id)
    if e.job_id in cluster.promises:
        del cluster.promises[e.job_id]
    drop_job(cluster, e.job_id)


def _outcome(run: Run, e: JobRejected | JobSucceeded | JobFailed | JobCancelled | JobTimedOut) -> EndedAs:
    """What the last run of a job ended by: one that was being stopped for another reason when a user cancelled, by that."""
    match e:
        case JobSucceeded():
            return EndedAs.SUCCEEDED
        case JobFailed():
            return OUTCOMES[e.cause]
        case JobTimedOut():
            return EndedAs.TIME_LIMIT
        case _:
            return OUTCOMES[run.stopping or StopCause.CANCEL]


JOB_CHANGES: Final[dict[type, Callable[[Cluster, Any, Recorded], None]]] = {
    JobSubmitted: _submitted,
    JobCancelRequested: _cancel_requested,
    JobResumeAsked: _resume_asked,
    JobRejected: _ended,
    JobAdmitted: _admitted,
    AdmissionWithdrawn: _admission_withdrawn,
    JobHeld: _held,
    JobPlaced: _placed,
    **ASIDE_CHANGES,
    RunStarted: _run_started,
    RunStopping: _run_stopping,
    JobRequeued: _requeued,
    JobSucceeded: _ended,
    JobFailed: _ended,
    JobCancelled: _ended,
    JobTimedOut: _ended,
}
