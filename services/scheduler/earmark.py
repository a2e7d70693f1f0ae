"""What was set aside for a job: whether all of it is free by now, or it is to be given up."""

from events.base import Event, JobId, run_id_of
from events.job import EarmarkCause, EarmarkDropped, JobPlaced, NodeShare
from projections.cluster.job import Earmark, JobState
from projections.cluster.node import NodeState
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick


def settle(cluster: Cluster, tick: Tick) -> list[Event]:
    """A placement for each job whose set is complete, an end for each earmark that cannot become so; in order of age.

    A node that is suspect keeps what is set aside on it: its silence is judged within the minute, and who was stopped
    for it would have been stopped for nothing.
    """
    events: list[Event] = []
    for earmark in sorted(cluster.earmarks.values(), key=lambda earmark: (earmark.position, earmark.job_id)):
        job = cluster.jobs[earmark.job_id]
        if not _wanted(cluster, job.job_id):
            events.append(EarmarkDropped(**tick.of_job(job), cause=EarmarkCause.CHANGED))
        elif any(not _whole(cluster, earmark.job_id, share) for share in earmark.shares):
            events.append(EarmarkDropped(**tick.of_job(job), cause=EarmarkCause.NODE))
        elif job.state is JobState.ADMITTED and all(_free(cluster, share) for share in earmark.shares):
            events.append(_placed(cluster, earmark, tick))
    return events


def _wanted(cluster: Cluster, job_id: JobId) -> bool:
    """Whether the job waits for it: admitted, or running still where it has to leave."""
    job = cluster.jobs[job_id]
    if job.state is JobState.PLACED:
        return bool(cluster.runs[run_id_of(job_id, job.attempt)].evicted_for) and not job.cancel
    return job.state is JobState.ADMITTED and not job.cancel


def _whole(cluster: Cluster, job_id: JobId, share: NodeShare) -> bool:
    """Whether the node has all of the GPUs still, and takes work."""
    node = cluster.nodes.get(share.node_id)
    if node is None or node.epoch != share.node_epoch or node.state is NodeState.LOST or node.cordoned:
        return False
    return not share.slots & ~(node.pool & node.earmarked.get(job_id, 0))


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
