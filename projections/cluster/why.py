"""Why a job waits, with the numbers of the moment; computed from the fold when asked, never stored."""

from datetime import datetime
from itertools import islice
from typing import Final

from events.ask import Why
from events.base import JobId, run_id_of
from events.job import HoldCode
from projections.cluster.job import Job, JobState, Shape
from projections.cluster.node import NodeState
from projections.cluster.place import Misfit, Room, place
from projections.cluster.state import Cluster

BLOCKERS_MAX: Final = 5
LOOKED_AT_MAX: Final = 10_000  # runs, for the largest among them


def explain(cluster: Cluster, job_id: JobId, *, at: datetime) -> Why:
    """The state of a job and, while it waits, the reason: need and have, who is before it, who holds what it needs."""
    job = cluster.jobs.get(job_id)
    if job is None:
        return Why(job_id=job_id, found=False, position=cluster.position)
    if job.state is JobState.PLACED:
        return _of_placed(cluster, job)
    have = _have(cluster, job.shape)
    code, message, action = _reason(cluster, job, have, at)
    return Why(
        job_id=job_id,
        found=True,
        position=cluster.position,
        state=job.state.value,
        code=code.value,
        message=message,
        need=_need(job.shape),
        have=have,
        ahead=_ahead(cluster, job),
        blockers=_blockers(cluster, job.shape) if code is HoldCode.NO_ROOM else (),
        next_action=action,
    )


def _of_placed(cluster: Cluster, job: Job) -> Why:
    run = cluster.runs[run_id_of(job.job_id, job.attempt)]
    nodes = ", ".join(share.node_id for share in run.shares[:BLOCKERS_MAX])
    if run.stopping is not None:
        waits = (run.all & ~run.released & ~run.dead).bit_count()
        state, message = (
            "stopping",
            f"it is stopping ({run.stopping}); {waits} of {len(run.shares)} nodes hold GPUs still",
        )
    elif run.started_at is not None:
        state, message = "running", f"it runs on {nodes}"
    else:
        state = "placed"
        message = f"it has its GPUs on {nodes}; {run.started.bit_count()} of {len(run.shares)} nodes have started"
    return Why(job_id=job.job_id, found=True, position=cluster.position, state=state, message=message)


def _need(shape: Shape) -> dict[str, int]:
    need = {"gpus": shape.gpus, "nodes": shape.nodes, "gpus_per_node": shape.gpus_per_node}
    return {name: number for name, number in need.items() if number}


def _have(cluster: Cluster, shape: Shape) -> dict[str, int]:
    """What the nodes with an accepted GPU type have, from the counts and buckets: no look at every node."""
    have = dict.fromkeys(("gpus_total", "gpus_free", "gpus_free_most", "nodes", "nodes_free_whole", "nodes_unwell"), 0)
    for kind, nodes in cluster.sizes.items():
        if not shape.gpu_types or kind.gpu_type in shape.gpu_types:
            have["nodes"] += nodes
            have["gpus_total"] += nodes * kind.size
            have["nodes_unwell"] += nodes if kind.state is not NodeState.UP else 0
    for pool in cluster.pools.groups():
        if not shape.gpu_types or pool.gpu_type in shape.gpu_types:
            nodes = len(cluster.pools.names(pool))
            have["gpus_free"] += nodes * pool.free
            have["gpus_free_most"] = max(have["gpus_free_most"], pool.free)
            have["nodes_free_whole"] += nodes if pool.free == pool.size else 0
    return have


def _reason(cluster: Cluster, job: Job, have: dict[str, int], at: datetime) -> tuple[HoldCode, str, str]:
    """The code, a sentence with the numbers, and what the user can do."""
    shape = job.shape
    if job.not_before is not None and job.state is JobState.QUEUED and job.not_before > at:
        seconds = (job.not_before - at).total_seconds()
        return (
            HoldCode.BACKING_OFF,
            f"attempt {job.attempt} failed; the next is not before {seconds:.0f} s from now",
            "wait",
        )
    placed = place(Room(cluster), shape)
    code = placed.code if isinstance(placed, Misfit) else HoldCode.NOT_EVALUATED
    total, free, whole = have["gpus_total"], have["gpus_free"], have["nodes_free_whole"]
    match code:
        case HoldCode.NO_SUCH_GPU:
            types = " or ".join(shape.gpu_types)
            known = ", ".join(sorted({node.gpu_type for node in cluster.nodes.values()})) or "none"
            return (
                code,
                f"no node has a GPU of type {types}; known types: {known}",
                "ask for another type, or add nodes",
            )
        case HoldCode.EXCEEDS_CLUSTER:
            message = f"needs {shape}; all nodes together have {total}, free or not ({have['nodes']} nodes)"
            return code, message, "ask for fewer GPUs, or add nodes"
        case HoldCode.NODES_UNWELL:
            message = f"needs {shape}; {have['nodes_unwell']} of {have['nodes']} nodes are suspect or lost"
            return code, message, "bring the nodes back"
        case HoldCode.NO_ROOM:
            most = f"{have['gpus_free_most']} at most on one node, {whole} whole nodes"
            return code, f"needs {shape}; {free} of {total} are free ({most})", "wait for running jobs to end"
        case _:
            return code, f"{shape} would fit: the next round places it, or a job before it", "wait"


def _ahead(cluster: Cluster, job: Job) -> int:
    """How many waiting jobs come before it in order; those in their back-off are not counted."""
    key = cluster.key(job)
    lines = (cluster.admitted, cluster.queue)
    return sum(jobs.count_before(line, key) for jobs in lines for line in jobs.groups())


def _blockers(cluster: Cluster, shape: Shape) -> tuple[str, ...]:
    """The largest of the runs on GPUs of an accepted type: of the first `LOOKED_AT_MAX`, where there are so many."""
    sizes: dict[str, int] = {}
    for run in islice(cluster.runs.values(), LOOKED_AT_MAX):
        node = cluster.nodes[run.shares[0].node_id]  # a gang is on one type
        if not run.over and (not shape.gpu_types or node.gpu_type in shape.gpu_types):
            sizes[run.job_id] = sum(share.slots.bit_count() for share in run.shares)
    return tuple(sorted(sizes, key=lambda job_id: (-sizes[job_id], job_id))[:BLOCKERS_MAX])
