"""Nodes that a job keeps away from, since they failed it: which, for how long, and when that is forgotten.

They are a part of its shape: jobs that keep away from other nodes are not alike for placing. Whether others could hold it,
`placing.misfit` knows.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from events.base import NodeId
from projections.cluster.index import put_job
from projections.cluster.job import RUNTIME_MAX_S, Job
from projections.cluster.state import Cluster

AVOID_MAX: Final = 8  # nodes of one job, those that failed it last


def avoiding(cluster: Cluster, job: Job, nodes: Iterable[NodeId], at: datetime) -> Job:
    """The job, which these nodes failed at `at`: it keeps away from them for as long as the policy says."""
    until = at + timedelta(seconds=min(cluster.policy.avoid_s, RUNTIME_MAX_S))
    failed = dict.fromkeys(nodes, until) if until > at else {}
    before = {node: time for node, time in job.avoid.items() if node not in failed}
    return _with(job, {**before, **failed}, at) if failed or before else job


def forgiven(cluster: Cluster, at: datetime) -> Cluster:
    """The cluster as of `at`: waiting jobs keep away from no node for which their time is over. As it was, if there are none."""
    if next(cluster.avoiding.until(None, at), None) is None:
        return cluster
    fork = cluster.fork()
    forgive(fork, at)
    return fork


def forgive(cluster: Cluster, at: datetime) -> None:
    """The same, for good."""
    for job_id in list(cluster.avoiding.until(None, at)):
        job = cluster.jobs[job_id]
        put_job(cluster, _with(job, job.avoid, at))


def _with(job: Job, avoid: dict[NodeId, datetime], at: datetime) -> Job:
    last = [(node, time) for node, time in avoid.items() if time > at][-AVOID_MAX:]
    return replace(job, avoid=dict(last), shape=job.shape._replace(avoid=tuple(sorted(node for node, _ in last))))
