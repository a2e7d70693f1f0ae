"""Which queued jobs may run. Every team is within its quota for now; what is checked is the job itself, and its back-off."""

from collections.abc import Iterator
from typing import Final

from events.base import Event, JobId
from events.job import JobAdmitted, JobRejected, JobSpec
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick

ADMITTED_MAX: Final = 1_000  # in one round, so that it stays below 100 ms; the rest is the next round's


def decide(cluster: Cluster, tick: Tick) -> list[Event]:
    """Admission's part of a round: queued jobs in order, then those whose back-off has ended."""
    events: list[Event] = []
    for job_id in _ready(cluster, tick):
        if len(events) == ADMITTED_MAX:
            break
        job = cluster.jobs[job_id]
        if job.cancel:
            continue  # lifecycle ends it
        ids = tick.of_job(job)
        if (fault := spec_fault(job.spec)) is not None:
            events.append(JobRejected(**ids, code="invalid_spec", message=fault))
        else:
            events.append(JobAdmitted(**ids))
    return events


def _ready(cluster: Cluster, tick: Tick) -> Iterator[JobId]:
    entries = (entry for line in cluster.queue.groups() for entry in cluster.queue.line(line))
    yield from (job_id for _, job_id in sorted(entries))
    now = tick.at.timestamp()
    for (not_before, *_), job_id in cluster.later.line(None):
        if not_before > now:
            return
        yield job_id


def spec_fault(spec: JobSpec) -> str | None:
    """What makes a job impossible to run anywhere; None for nothing. The gate refuses these; a log may hold older ones."""
    if not spec.command:
        return "it has no command"
    if spec.gpus < 1:
        return f"it asks for {spec.gpus} GPUs; the least is 1"
    if bool(spec.nodes) != bool(spec.gpus_per_node) or min(spec.nodes, spec.gpus_per_node) < 0:
        return f"nodes ({spec.nodes}) and gpus_per_node ({spec.gpus_per_node}) go together"
    if spec.nodes and spec.nodes * spec.gpus_per_node != spec.gpus:
        return f"{spec.nodes} nodes x {spec.gpus_per_node} GPUs are not {spec.gpus} GPUs"
    return None
