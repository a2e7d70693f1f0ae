"""How each event changes the cluster: one table, without opinions. What is in the log has happened."""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from events.base import FLEET, HEAD, JOB, NodeEpoch, Recorded, RunId, Unreadable, run_id_of
from events.codec import family_of
from events.fleet import NodeLost, NodeRecovered, NodeSuspected
from events.head import LeadershipTaken, LogFounded, RoundDecided
from events.job import (
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
    RunStarted,
    RunStopping,
    StopCause,
)
from events.node import EndReason, GpusFoundClean, GpusReleased, NodeJoined, ShareEnded, ShareStarted
from events.policy import PolicySet
from projections.cluster.index import (
    drop_job,
    drop_run,
    look_at,
    node_of,
    put_job,
    put_node,
    put_run,
    put_slots,
)
from projections.cluster.state import BACK_OFF_MAX, Cluster, Failure, Job, JobState, Node, NodeState, Run

APPLICATION_CAUSES: Final = frozenset({StopCause.RANK_FAILED, StopCause.TIME_LIMIT})


def evolve(cluster: Cluster, recorded: Recorded) -> Cluster:
    """The cluster after `recorded`. Takes its argument over: go on with the result only.

    Nothing is refused here. A report that is late, doubled, or of an older epoch finds nothing to change. A record of
    the control plane that contradicts those before it (nobody but an administrator can write one) is treated as one
    that cannot be read: it changes nothing, from there on nothing is decided, and following goes on. Each change makes
    sure of what it assumes before it begins.
    """
    if (change := CHANGES.get(type(recorded.event))) is not None:
        try:
            change(cluster, recorded.event, recorded)
        except (KeyError, AssertionError):
            cluster.unread = cluster.unread or recorded.position
    cluster.position = recorded.position
    cluster.at = recorded.at
    return cluster


def _founded(cluster: Cluster, e: LogFounded, recorded: Recorded) -> None:
    if cluster.log_id:
        cluster.head = recorded.position  # the fence has moved, whatever it says
        raise AssertionError("a log is founded once")
    cluster.log_id = e.log_id
    cluster.head = recorded.position


def _leadership_taken(cluster: Cluster, e: LeadershipTaken, recorded: Recorded) -> None:
    cluster.head = cluster.epoch = recorded.position
    cluster.leader = e.instance


def _round_decided(cluster: Cluster, e: RoundDecided, recorded: Recorded) -> None:
    cluster.head = recorded.position


def _policy_set(cluster: Cluster, e: PolicySet, recorded: Recorded) -> None:
    cluster.policy = e


def _unreadable(cluster: Cluster, e: Unreadable, recorded: Recorded) -> None:
    family = family_of(e.subject, (JOB, FLEET, HEAD))
    if family is not None:
        cluster.unread = cluster.unread or recorded.position
    if family is HEAD:
        cluster.head = recorded.position  # the fence has moved, whatever it says


# Jobs


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
    put_job(cluster, Job(job_id=e.job_id, team=e.team, spec=e.spec, submitted=recorded.position))


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
    put_job(cluster, replace(job, state=JobState.ADMITTED))


def _held(cluster: Cluster, e: JobHeld, recorded: Recorded) -> None:
    job = _job_of(cluster, e)
    assert job.state is not JobState.PLACED
    put_job(cluster, replace(job, hold=e.code, held_at=recorded.at))


def _placed(cluster: Cluster, e: JobPlaced, recorded: Recorded) -> None:
    job = _job_of(cluster, e)
    assert job.state is JobState.ADMITTED
    assert (e.attempt, e.run_id) == (job.attempt + 1, run_id_of(job.job_id, e.attempt))
    _assert_free(cluster, e.shares)
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
            placed_at=recorded.at,
            placed=recorded.position,
            on_lost=job.spec.on_lost,
            dead=dead,
            clean=dead,  # it never began there: the node joined anew before it was told
        ),
    )


def _assert_free(cluster: Cluster, shares: tuple[NodeShare, ...]) -> None:
    """Each is on a node of its own, in their order, and has what is free there, unless the life that it names is over."""
    assert shares
    before = ""
    for share in shares:
        assert before < share.node_id
        before = share.node_id
        node = cluster.nodes[share.node_id]
        assert node.epoch != share.node_epoch or node.state is NodeState.LOST or not share.slots & ~node.free


def _run_started(cluster: Cluster, e: RunStarted, recorded: Recorded) -> None:
    put_run(cluster, replace(_run_of(cluster, e, e.run_id), started_at=recorded.at))


def _run_stopping(cluster: Cluster, e: RunStopping, recorded: Recorded) -> None:
    put_run(cluster, replace(_run_of(cluster, e, e.run_id), stopping=e.cause))


def _requeued(cluster: Cluster, e: JobRequeued, recorded: Recorded) -> None:
    assert _run_of(cluster, e, e.run_id).over
    drop_run(cluster, e.run_id)
    job = cluster.jobs[e.job_id]
    application = e.cause in APPLICATION_CAUSES
    put_job(
        cluster,
        replace(
            job,
            state=JobState.QUEUED,
            not_before=min(e.not_before, recorded.at + BACK_OFF_MAX),  # the writer's clock may be years ahead
            failures_application=job.failures_application + application,
            failures_infrastructure=job.failures_infrastructure + (not application),
        ),
    )


def _ended(
    cluster: Cluster, e: JobRejected | JobSucceeded | JobFailed | JobCancelled | JobTimedOut, recorded: Recorded
) -> None:
    run_id = RunId("") if isinstance(e, JobRejected) else e.run_id
    if run_id:
        assert _run_of(cluster, e, run_id).over
        drop_run(cluster, run_id)
    else:
        assert _job_of(cluster, e).state is not JobState.PLACED
    drop_job(cluster, e.job_id)


# Nodes


def _joined(cluster: Cluster, e: NodeJoined, recorded: Recorded) -> None:
    before = cluster.node(e.node_id)
    node = Node(
        node_id=e.node_id,
        epoch=NodeEpoch(recorded.position),
        instance=e.instance,
        boot_id=e.boot_id,
        gpu_type=e.gpu_type,
        address=e.address,
        port_base=e.port_base,
        uuids=before.numbered(e.gpu_uuids),
        owed={**before.owed, **before.held},
    )
    put_node(cluster, replace(node, present=node.mask(e.gpu_uuids)))
    _kill_shares(cluster, before)


def _lost(cluster: Cluster, e: NodeLost, recorded: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is not None and node.state is not NodeState.LOST:
        put_node(cluster, node.losing())
        _kill_shares(cluster, node)


def _kill_shares(cluster: Cluster, before: Node) -> None:
    for run_id in before.held:
        run = cluster.runs[run_id]
        put_run(cluster, replace(run, dead=run.dead | run.bit(before.node_id)))


def _found_clean(cluster: Cluster, e: GpusFoundClean, recorded: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is None or node.state is NodeState.LOST:
        return
    after = node.pooling(node.mask(e.gpu_uuids))
    put_node(cluster, after)
    for run_id in (node.owed.keys() - after.owed.keys()) & cluster.runs.keys():
        run = cluster.runs[run_id]
        put_run(cluster, replace(run, clean=run.clean | run.bit(e.node_id)))


def _suspected(cluster: Cluster, e: NodeSuspected, recorded: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is not None and node.state is NodeState.UP:
        put_node(cluster, replace(node, state=NodeState.SUSPECT))


def _recovered(cluster: Cluster, e: NodeRecovered, recorded: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is not None and node.state is NodeState.SUSPECT:
        put_node(cluster, replace(node, state=NodeState.UP))


# Shares: reports of the life that the run was placed in; of any other they change nothing


def _share_started(cluster: Cluster, e: ShareStarted, recorded: Recorded) -> None:
    run = cluster.runs.get(e.run_id)
    if run is not None and run.epoch_on(e.node_id) == e.node_epoch:
        put_run(cluster, replace(run, started=run.started | run.bit(e.node_id)))


def _share_ended(cluster: Cluster, e: ShareEnded, recorded: Recorded) -> None:
    run = cluster.runs.get(e.run_id)
    if run is None or run.epoch_on(e.node_id) != e.node_epoch:
        return
    bit = run.bit(e.node_id)
    if run.ended & bit:
        return  # said before
    failure = run.failure
    if failure is None and not (e.reason is EndReason.EXITED and e.exit_code == 0):
        failure = Failure(e.node_id, e.reason, e.exit_code)
    put_run(cluster, replace(run, ended=run.ended | bit, failure=failure))


def _released(cluster: Cluster, e: GpusReleased, recorded: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is None or e.run_id not in node.held:
        return  # late, doubled, or of an older life
    after = node.freeing(e.run_id, e.slots)
    put_slots(cluster, after)
    if e.run_id not in after.held:
        run = cluster.runs[e.run_id]
        put_run(cluster, replace(run, released=run.released | run.bit(e.node_id)))


CHANGES: Final[dict[type, Callable[[Cluster, Any, Recorded], None]]] = {
    LogFounded: _founded,
    LeadershipTaken: _leadership_taken,
    RoundDecided: _round_decided,
    PolicySet: _policy_set,
    Unreadable: _unreadable,
    JobSubmitted: _submitted,
    JobCancelRequested: _cancel_requested,
    JobRejected: _ended,
    JobAdmitted: _admitted,
    JobHeld: _held,
    JobPlaced: _placed,
    RunStarted: _run_started,
    RunStopping: _run_stopping,
    JobRequeued: _requeued,
    JobSucceeded: _ended,
    JobFailed: _ended,
    JobCancelled: _ended,
    JobTimedOut: _ended,
    NodeJoined: _joined,
    GpusFoundClean: _found_clean,
    NodeSuspected: _suspected,
    NodeRecovered: _recovered,
    NodeLost: _lost,
    ShareStarted: _share_started,
    ShareEnded: _share_ended,
    GpusReleased: _released,
}
