"""Which new jobs are more than their queues let wait."""

from collections import Counter
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from heapq import nlargest
from itertools import islice
from typing import Final

from events.base import JobId, TeamId
from events.job import HoldCode, JobRejected
from projections.cluster.job import Job
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick

REJECTED_MAX: Final = 1_000  # in one round; the rest is the next round's
LOOKED_AT_MAX: Final = 100_000  # jobs of one queue, for the newest among them


def rejected(cluster: Cluster, tick: Tick, decided: AbstractSet[JobId]) -> list[JobRejected]:
    """The newest of the jobs that were never looked at before, as many as wait beyond `pending_max` of a queue.

    All that have no GPUs count as waiting, but for those `decided` in this round. A bound that is lowered rejects
    nobody that waits already, nor does a job that ran before wait too long.
    """
    bounded = [queue for queue in cluster.queues.values() if queue.pending_max is not None]
    if not bounded:
        return []
    teams: dict[str, list[TeamId]] = {}
    waiting: Counter[str] = Counter()
    for team, tally in sorted(cluster.tallies.items()):
        for name in cluster.tree.path(team):
            teams.setdefault(name, []).append(team)
            waiting[name] += tally.waiting
    for job_id in decided:
        waiting.subtract(cluster.tree.path(cluster.jobs[job_id].team))
    events: dict[JobId, JobRejected] = {}
    for queue in sorted(bounded, key=lambda queue: queue.name):
        assert queue.pending_max is not None
        excess = min(waiting[queue.name] - queue.pending_max, REJECTED_MAX - len(events))
        if excess <= 0:
            continue
        jobs = "1 job" if queue.pending_max == 1 else f"{queue.pending_max} jobs"
        message = f"queue {queue.name} lets {jobs} wait, and so many did"
        for job in _newest(cluster, teams[queue.name], excess, besides=(decided, events.keys())):
            events[job.job_id] = JobRejected(**tick.of_job(job), code="too_many_pending", message=message)
            waiting.subtract(cluster.tree.path(job.team))
    return list(events.values())


def _newest(
    cluster: Cluster, teams: Collection[TeamId], most: int, *, besides: tuple[Collection[JobId], ...]
) -> list[Job]:
    """The newest of the teams' jobs that no round has looked at, the newest first."""
    lines = [g for g in cluster.queue.groups() if g.hold is HoldCode.NOT_EVALUATED and g.team in set(teams)]
    entries = (cluster.jobs[job_id] for line in sorted(lines) for _, job_id in cluster.queue.line(line))
    new = (job for job in entries if not job.attempt and not any(job.job_id in known for known in besides))
    return nlargest(most, islice(new, LOOKED_AT_MAX), key=lambda job: job.submitted)
