"""Which admitted jobs may no longer run: their queue was stopped, a bound was lowered, or no nodes could hold them now."""

from collections import Counter
from typing import Final

from events.base import Event, JobId
from events.job import AdmissionWithdrawn, HoldCode
from projections.cluster.entitlement import Standing
from projections.cluster.index import line_of
from projections.cluster.job import JobState
from projections.cluster.state import Cluster, Line
from projections.cluster.tick import Tick
from services.admission.possible import Possible

WITHDRAWN_MAX: Final = 1_000  # in one round; the rest is the next round's


def withdrawn(
    cluster: Cluster, tick: Tick, standing: Standing, possible: Possible
) -> tuple[list[Event], dict[JobId, HoldCode]]:
    """The withdrawals, and why, by job; `standing` counts the jobs that stay admitted from now on.

    What is earmarked for a job is counted already: it is not weighed again, and goes only with its queue or its nodes.
    """
    earmarked = Counter(
        line_of(job) for job in (cluster.jobs[job_id] for job_id in cluster.earmarks) if job.state is JobState.ADMITTED
    )
    reasons: dict[JobId, HoldCode] = {}
    for line in sorted(cluster.admitted.groups()):
        code = HoldCode.QUEUE_PAUSED if cluster.tree.stopped(line.team) else possible.fault(line.shape)
        if code is not None:
            reasons.update((job_id, code) for _, job_id in cluster.admitted.line(line))
        elif not standing.sole:
            waiting = cluster.admitted.count(line) - earmarked[line]
            if not _take(standing, line, waiting):
                reasons.update(_beyond(cluster, standing, line))
    jobs = [cluster.jobs[job_id] for job_id in sorted(reasons)[:WITHDRAWN_MAX]]
    return [AdmissionWithdrawn(**tick.of_job(job)) for job in jobs], {job.job_id: reasons[job.job_id] for job in jobs}


def _take(standing: Standing, line: Line, jobs: int) -> bool:
    """Whether all the jobs of a line are within all bounds; if so they are counted."""
    gpus = jobs * (line.shape.min_gpus or line.shape.gpus)
    wanted = standing.wants(line.shape.gpu_types)
    if not jobs or not wanted:
        return True
    if standing.blocked(line.team, (wanted,), gpus, preemptible=not line.firm, jobs=jobs) is not None:
        return False
    standing.take(line.team, wanted, gpus, rank=line.rank, preemptible=not line.firm, jobs=jobs)
    return True


def _beyond(cluster: Cluster, standing: Standing, line: Line) -> dict[JobId, HoldCode]:
    """Of a line, in order, those that are beyond a bound once those before them are counted."""
    beyond: dict[JobId, HoldCode] = {}
    gpus = line.shape.min_gpus or line.shape.gpus
    for _, job_id in cluster.admitted.line(line):
        if job_id in cluster.earmarks:
            continue
        block = standing.blocked(line.team, line.shape.gpu_types, gpus, preemptible=not line.firm)
        if block is not None:
            beyond[job_id] = block.code
            continue
        open_to_it = standing.open_types(line.team, line.shape.gpu_types, gpus, preemptible=not line.firm)
        standing.take(line.team, standing.wants(open_to_it), gpus, rank=line.rank, preemptible=not line.firm)
    return beyond
