"""How what becomes of jobs and runs changes the cluster, and what is set aside or promised for them."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from events.base import JobId, Recorded, RunId, run_id_of
from events.job import (
    AdmissionWithdrawn,
    ConsolidationProposed,
    EarmarkDropped,
    GpusEarmarked,
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
    JobSubmitted,
    JobSucceeded,
    JobTimedOut,
    NodeShare,
    PromiseDropped,
    PromiseMoved,
    RunStarted,
    RunStopping,
    StartPromised,
    StopCause,
)
from events.policy import Overrun
from projections.cluster.account import account
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
    Earmark,
    Job,
    JobState,
    Promise,
    Run,
    grace,
    lasts,
    shape_of,
)
from projections.cluster.node import NodeState
from projections.cluster.state import Cluster

APPLICATION_CAUSES: Final = frozenset({StopCause.RANK_FAILED, StopCause.TIME_LIMIT})
EARLIEST: Final = datetime.fromisoformat("1000-01-01T00:00:00+00:00")  # start of a promise that is reckoned with
LATEST: Final = datetime.fromisoformat("4500-01-01T00:00:00+00:00")  # likewise; times end with the year 9999
BLAMELESS_CAUSES: Final = frozenset({StopCause.PREEMPTED, StopCause.CONSOLIDATED, StopCause.QUEUE_HELD})


def _job_of(cluster: Cluster, e: JobEvent) -> Job:
    """The job that a decision is about."""
    job = cluster.jobs[e.job_id]
    assert job.team == e.team
    return job


def _run_of(cluster: Cluster, e: JobEvent, run_id: RunId) -> Run:
    """The run that a decision is about."""
    run = cluster.runs[run_id]
    assert _job_of(cluster, e).job_id == run.job_id
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


def _admitted(cluster: Cluster, e: JobAdmitted, recorded: Recorded) -> None:
    job = _job_of(cluster, e)
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
    job = _job_of(cluster, e)
    assert job.state is JobState.ADMITTED
    put_job(cluster, replace(job, state=JobState.QUEUED, borrowing=False))


def _held(cluster: Cluster, e: JobHeld, recorded: Recorded) -> None:
    job = _job_of(cluster, e)
    assert job.state is not JobState.PLACED
    not_before = job.not_before if e.code is HoldCode.BACKING_OFF else None  # its back-off is over: it stands in line
    put_job(cluster, replace(job, hold=e.code, held_at=recorded.at, not_before=not_before))


def _placed(cluster: Cluster, e: JobPlaced, recorded: Recorded) -> None:
    job = _job_of(cluster, e)
    assert job.state is JobState.ADMITTED
    assert (e.attempt, e.run_id) == (job.attempt + 1, run_id_of(job.job_id, e.attempt))
    _assert_gang(cluster, e.shares, e.ranks)
    _assert_free(cluster, e.shares, job.job_id)
    account(cluster, job.team, recorded.at)
    if job.job_id in cluster.earmarks:
        _drop_earmark(cluster, job.job_id)
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
    put_run(
        cluster,
        Run(
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
            dead=dead,
            clean=dead,  # it never began there: the node joined anew before it was told
        ),
    )


def _assert_gang(cluster: Cluster, shares: tuple[NodeShare, ...], ranks: tuple[int, ...] = ()) -> None:
    """There are some, each on a node of its own that is known, in order; and the ranks are an order of them."""
    assert shares
    before = ""
    for share in shares:
        assert before < share.node_id
        assert share.node_id in cluster.nodes
        before = share.node_id
    assert not ranks or sorted(ranks) == list(range(len(shares)))


def _assert_free(cluster: Cluster, shares: tuple[NodeShare, ...], job_id: JobId) -> None:
    """Each has what is free on its node and not set aside, if its life is not over."""
    for share in shares:
        node = cluster.nodes[share.node_id]
        open_to_it = node.free & ~(node.marked & ~node.earmarked.get(job_id, 0))
        assert node.epoch != share.node_epoch or node.state is NodeState.LOST or not share.slots & ~open_to_it


# What is set aside, and what is promised


def _earmarked(cluster: Cluster, e: GpusEarmarked, recorded: Recorded) -> None:
    job = _job_of(cluster, e)
    assert job.job_id not in cluster.earmarks
    _assert_gang(cluster, e.shares, e.ranks)
    assert len(set(e.victims)) == len(e.victims)
    victims = [cluster.runs[run_id] for run_id in e.victims]
    assert all(not victim.evicted_for and victim.job_id != job.job_id for victim in victims)
    for share in e.shares:
        node = cluster.nodes[share.node_id]
        assert not share.slots & node.marked or node.epoch != share.node_epoch
    for share in e.shares:
        if (marked := node_of(cluster, share.node_id, share.node_epoch)) is not None:
            put_slots(cluster, marked.marking(job.job_id, share.slots))
    cluster.earmarks[job.job_id] = Earmark(
        job_id=job.job_id,
        shares=e.shares,
        ranks=e.ranks,
        victims=e.victims,
        at=recorded.at,
        position=recorded.position,
    )
    for victim in victims:
        put_run(cluster, replace(victim, evicted_for=job.job_id, moved=e.moved))
        evicted = cluster.jobs[victim.job_id]
        put_job(
            cluster,
            replace(
                evicted,
                evictions=evicted.evictions + 1,
                evicted_at=recorded.at,
                evicted_for=(*evicted.evicted_for, job.job_id),
            ),
        )


def _earmark_dropped(cluster: Cluster, e: EarmarkDropped, recorded: Recorded) -> None:
    _job_of(cluster, e)
    assert e.job_id in cluster.earmarks
    _drop_earmark(cluster, e.job_id)


def _drop_earmark(cluster: Cluster, job_id: JobId) -> None:
    for share in cluster.earmarks.pop(job_id).shares:
        node = cluster.nodes[share.node_id]
        if job_id in node.earmarked:
            put_slots(cluster, node.marking(job_id, 0))


def _promised(cluster: Cluster, e: StartPromised, recorded: Recorded) -> None:
    assert _job_of(cluster, e).state is JobState.ADMITTED
    assert e.job_id not in cluster.promises
    _assert_gang(cluster, e.shares)
    start = _reckoned(e.start)
    cluster.promises[e.job_id] = Promise(
        job_id=e.job_id,
        shares=e.shares,
        start=start,
        first=start,
        at=recorded.at,
        position=recorded.position,
    )


def _promise_moved(cluster: Cluster, e: PromiseMoved, recorded: Recorded) -> None:
    before = cluster.promises[_job_of(cluster, e).job_id]
    _assert_gang(cluster, e.shares)
    start = _reckoned(e.start)
    cluster.promises[e.job_id] = replace(
        before,
        shares=e.shares,
        start=start,
        first=before.first or start,
        at=recorded.at,
        position=recorded.position,
        moves=before.moves + 1,
    )


def _reckoned(start: datetime | None) -> datetime | None:
    """The start, or one so near that runtimes may be added to it, and taken from it, as often as there are promises."""
    return max(EARLIEST, min(start, LATEST)) if start is not None else None


def _promise_dropped(cluster: Cluster, e: PromiseDropped, recorded: Recorded) -> None:
    del cluster.promises[_job_of(cluster, e).job_id]


def _consolidation_proposed(cluster: Cluster, e: ConsolidationProposed, recorded: Recorded) -> None:
    put_job(cluster, replace(_job_of(cluster, e), proposed_at=recorded.at))


def _run_started(cluster: Cluster, e: RunStarted, recorded: Recorded) -> None:
    run = _run_of(cluster, e, e.run_id)
    spec = cluster.jobs[run.job_id].spec
    put_run(cluster, replace(run, started_at=recorded.at, end=_after(recorded, lasts(spec))))


def _run_stopping(cluster: Cluster, e: RunStopping, recorded: Recorded) -> None:
    run = _run_of(cluster, e, e.run_id)
    told = recorded.at + grace(cluster.jobs[run.job_id].spec)
    put_run(cluster, replace(run, stopping=e.cause, end=told if run.end is None else min(run.end, told)))


def _after(recorded: Recorded, time: timedelta | None) -> datetime | None:
    return recorded.at + time if time is not None else None


def _requeued(cluster: Cluster, e: JobRequeued, recorded: Recorded) -> None:
    assert _run_of(cluster, e, e.run_id).over
    _end_run(cluster, e.run_id, recorded)
    job = cluster.jobs[e.job_id]
    application = e.cause in APPLICATION_CAUSES
    blameless = e.cause in BLAMELESS_CAUSES
    not_before = min(e.not_before, recorded.at + BACK_OFF_MAX)  # the writer's clock may be years ahead
    put_job(
        cluster,
        replace(
            job,
            state=JobState.QUEUED,
            borrowing=False,
            hold=HoldCode.NOT_EVALUATED,
            not_before=None if blameless else not_before,
            failures_application=job.failures_application + application,
            failures_infrastructure=job.failures_infrastructure + (not application and not blameless),
        ),
    )


def _end_run(cluster: Cluster, run_id: RunId, recorded: Recorded) -> None:
    account(cluster, cluster.runs[run_id].team, recorded.at)
    drop_run(cluster, run_id)


def _ended(
    cluster: Cluster, e: JobRejected | JobSucceeded | JobFailed | JobCancelled | JobTimedOut, recorded: Recorded
) -> None:
    run_id = RunId("") if isinstance(e, JobRejected) else e.run_id
    if run_id:
        assert _run_of(cluster, e, run_id).over
        _end_run(cluster, run_id, recorded)
    else:
        assert _job_of(cluster, e).state is not JobState.PLACED
    if e.job_id in cluster.earmarks:
        _drop_earmark(cluster, e.job_id)
    if e.job_id in cluster.promises:
        del cluster.promises[e.job_id]
    drop_job(cluster, e.job_id)


JOB_CHANGES: Final[dict[type, Callable[[Cluster, Any, Recorded], None]]] = {
    JobSubmitted: _submitted,
    JobCancelRequested: _cancel_requested,
    JobRejected: _ended,
    JobAdmitted: _admitted,
    AdmissionWithdrawn: _admission_withdrawn,
    JobHeld: _held,
    JobPlaced: _placed,
    GpusEarmarked: _earmarked,
    EarmarkDropped: _earmark_dropped,
    StartPromised: _promised,
    PromiseMoved: _promise_moved,
    PromiseDropped: _promise_dropped,
    ConsolidationProposed: _consolidation_proposed,
    RunStarted: _run_started,
    RunStopping: _run_stopping,
    JobRequeued: _requeued,
    JobSucceeded: _ended,
    JobFailed: _ended,
    JobCancelled: _ended,
    JobTimedOut: _ended,
}
