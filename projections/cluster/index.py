"""The one way to put a thing into the cluster: each change keeps the indexes that deciders look through."""

from collections.abc import MutableMapping
from typing import TypeVar

from events.base import JobId, NodeId, RunId
from projections.cluster.state import Cluster, Job, JobState, Node, NodeState, OrderKey, Pool, Queued, Run, Waiting

K = TypeVar("K")


def put_node(cluster: Cluster, node: Node) -> None:
    """`node` is in the cluster, in the buckets and counts where it belongs, and nowhere else."""
    before = cluster.nodes.get(node.node_id)
    if before is not None:
        _count(cluster, before, -1)
        if (pool := _pool(before)) is not None:
            cluster.pools.remove(pool, before.node_id)
    cluster.nodes[node.node_id] = node
    _count(cluster, node, +1)
    if (pool := _pool(node)) is not None:
        cluster.pools.add(pool, node.node_id)
    _keep(cluster.suspects, node.node_id, wanted=node.state is NodeState.SUSPECT)


def put_slots(cluster: Cluster, node: Node) -> None:
    """The same for a node of which only free slots changed: the common case, and a hot one."""
    before = _pool(cluster.nodes[node.node_id])
    after = _pool(node)
    cluster.nodes[node.node_id] = node
    if before != after:
        if before is not None:
            cluster.pools.remove(before, node.node_id)
        if after is not None:
            cluster.pools.add(after, node.node_id)


def _pool(node: Node) -> Pool | None:
    if not node.free or node.state is not NodeState.UP:
        return None
    return Pool(node.gpu_type, node.present.bit_count(), node.free.bit_count())


def _count(cluster: Cluster, node: Node, by: int) -> None:
    key = (node.state, node.gpu_type, node.size)
    if count := cluster.sizes.get(key, 0) + by:
        cluster.sizes[key] = count
    else:
        del cluster.sizes[key]


def put_job(cluster: Cluster, job: Job) -> None:
    """`job` is in the cluster and stands in the line of its state."""
    if (before := cluster.jobs.get(job.job_id)) is not None:
        _leave_lines(cluster, before)
    cluster.jobs[job.job_id] = job
    if job.state is JobState.QUEUED:
        cluster.queue.add(*_queue_place(job), job.job_id)
    elif job.state is JobState.ADMITTED:
        cluster.admitted.add(Waiting(job.shape, job.hold), job.key, job.job_id)
    _keep(cluster.unwanted, job.job_id, wanted=job.cancel and job.state is not JobState.PLACED)


def drop_job(cluster: Cluster, job_id: JobId) -> None:
    """The job has ended and is forgotten."""
    _leave_lines(cluster, cluster.jobs[job_id])
    del cluster.jobs[job_id]
    _keep(cluster.unwanted, job_id, wanted=False)


def _leave_lines(cluster: Cluster, job: Job) -> None:
    if job.state is JobState.QUEUED:
        cluster.queue.remove(*_queue_place(job))
    elif job.state is JobState.ADMITTED:
        cluster.admitted.remove(Waiting(job.shape, job.hold), job.key)


def _queue_place(job: Job) -> tuple[Queued, OrderKey]:
    if job.not_before is None:
        return Queued.NOW, job.key
    return Queued.LATER, (job.not_before.timestamp(), *job.key)


def put_run(cluster: Cluster, run: Run) -> None:
    """`run` is in the cluster, and in `attention` if lifecycle has something to say about it."""
    cluster.runs[run.run_id] = run
    look_at(cluster, run.run_id)


def look_at(cluster: Cluster, run_id: RunId) -> None:
    """`attention` has the run if, and only if, its state asks for a decision."""
    run = cluster.runs[run_id]
    _keep(cluster.attention, run_id, wanted=asks_for_decision(run, cluster.jobs[run.job_id]))


def asks_for_decision(run: Run, job: Job) -> bool:
    """Whether a run is over, has to be stopped, or is complete and not said to be."""
    if run.over:
        return True
    if run.stopping is not None:
        return False
    if run.failure is not None or run.broken or (job.cancel and run.ended != run.all):
        return True
    return run.started_at is None and run.started == run.all


def drop_run(cluster: Cluster, run_id: RunId) -> None:
    """The run is over and is forgotten; no slot of a living node is its own any more."""
    del cluster.runs[run_id]
    _keep(cluster.attention, run_id, wanted=False)


def _keep(members: MutableMapping[K, None], key: K, *, wanted: bool) -> None:
    """The key is a member if, and only if, that is wanted."""
    if wanted:
        members[key] = None
    elif key in members:
        del members[key]


def node_of(cluster: Cluster, node_id: NodeId, epoch: int) -> Node | None:
    """The node, if it is in this life; None for what is said of another one."""
    node = cluster.nodes.get(node_id)
    return node if node is not None and node.epoch == epoch else None
