"""What was set aside for a job: whether all of it is free by now, or it is to be given up."""

from collections.abc import Sequence

from events.base import Event, JobId, run_id_of
from events.job import EarmarkCause, EarmarkDropped, JobPlaced, NodeShare
from projections.cluster.job import Earmark, JobState
from projections.cluster.node import NodeState
from projections.cluster.placing.windows import Windows
from projections.cluster.quota.entitlement import Standing
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.scheduler.paid import Paid


def settle(cluster: Cluster, tick: Tick, standing: Standing, paid: Paid) -> list[Event]:
    """A placement for each job whose set is complete, an end for each earmark that cannot become so; in order of age.

    Complete is a set that is free, and that the limits hold beside all that runs still. A node that is suspect keeps
    what is set aside on it: its silence is judged within the minute, and who was stopped for it would have been stopped
    for nothing. `standing` has counted the earmarks; it follows what becomes of them.
    """
    events: list[Event] = []
    earmarks = sorted(cluster.earmarks.values(), key=lambda earmark: (earmark.position, earmark.job_id))
    beyond, windows = _beyond(cluster, earmarks, standing), Windows(cluster)
    for earmark in earmarks:
        job = cluster.jobs[earmark.job_id]
        if job.job_id in beyond or not (earmark.until or _wanted(cluster, job.job_id)):
            events.append(EarmarkDropped(**tick.of_job(job), cause=EarmarkCause.CHANGED))
        elif not earmark.until and not (
            all(_whole(cluster, earmark.job_id, share) for share in earmark.shares)
            and windows.spares(earmark.shares, job.spec, tick.at)
        ):
            events.append(EarmarkDropped(**tick.of_job(job), cause=EarmarkCause.NODE))
        elif job.state is JobState.ADMITTED and paid(job) and all(_free(cluster, share) for share in earmark.shares):
            gpu_type, gpus = _size(cluster, earmark)
            if standing.holds_now(job.team, gpu_type, gpus):
                standing.arrive(job.team, gpu_type, gpus)
                events.append(_placed(cluster, earmark, tick))
    return events


def _beyond(cluster: Cluster, earmarks: Sequence[Earmark], standing: Standing) -> set[JobId]:
    """Those, the youngest first, that a limit will not hold even when all that ends has ended: one was lowered since."""
    beyond = set[JobId]()
    for earmark in reversed(earmarks):
        team = cluster.jobs[earmark.job_id].team
        gpu_type, gpus = _size(cluster, earmark)
        standing.keep_aside(team, gpu_type, -gpus)
        if standing.short(team, gpu_type, gpus):
            beyond.add(earmark.job_id)
        else:
            standing.keep_aside(team, gpu_type, gpus)
    return beyond


def _size(cluster: Cluster, earmark: Earmark) -> tuple[str, int]:
    gpu_type = cluster.nodes[earmark.shares[0].node_id].gpu_type
    return gpu_type, sum(share.slots.bit_count() for share in earmark.shares)


def _wanted(cluster: Cluster, job_id: JobId) -> bool:
    """Whether the job waits for it: admitted, or running still where it has to leave."""
    job = cluster.jobs[job_id]
    if job.state is JobState.PLACED:
        return bool(cluster.runs[run_id_of(job_id, job.attempt)].evicted_for) and not job.cancel
    return job.state is JobState.ADMITTED and not job.cancel


def _whole(cluster: Cluster, job_id: JobId, share: NodeShare) -> bool:
    """Whether the node has all of the GPUs still, and takes work."""
    node = cluster.nodes.get(share.node_id)
    if node is None or node.epoch != share.node_epoch or node.state is NodeState.LOST or node.closed:
        return False
    return not share.slots & ~(node.pool & ~node.sick & node.earmarked.get(job_id, 0))


def _free(cluster: Cluster, share: NodeShare) -> bool:
    node = cluster.nodes[share.node_id]
    return node.state is NodeState.UP and not share.slots & ~node.free


def _placed(cluster: Cluster, earmark: Earmark, tick: Tick) -> JobPlaced:
    job = cluster.jobs[earmark.job_id]
    return JobPlaced(
        **tick.of_job(job),
        run_id=run_id_of(job.job_id, job.attempt + 1),
        attempt=job.attempt + 1,
        shares=earmark.shares,
        ranks=earmark.ranks,
    )
