"""Which admitted jobs may no longer run: their queue was stopped, a bound was lowered, no nodes could hold them now.

Or what is reserved for them is not what it would be now.
"""

from collections import Counter
from collections.abc import Container, Iterator
from itertools import islice
from typing import Final

from events.base import Event, JobId, TeamId, job_id_of, run_id_of
from events.job import AdmissionWithdrawn, HoldCode
from projections.cluster.index import line_of
from projections.cluster.job import JobState
from projections.cluster.quota.bounds import Request
from projections.cluster.quota.claims import BY_CLASS
from projections.cluster.quota.entitlement import Standing
from projections.cluster.state import Cluster, Line
from projections.cluster.tick import Tick
from services.admission.possible import Possible, least_gpus
from services.admission.till import Till

WITHDRAWN_MAX: Final = 1_000  # in one round; the rest is the next round's


def withdrawn(
    cluster: Cluster, tick: Tick, standing: Standing, possible: Possible
) -> tuple[list[Event], dict[JobId, HoldCode]]:
    """The withdrawals, and why, by job; `standing` counts the jobs that stay admitted from now on.

    What is earmarked for a job is counted already: it is not weighed again, and goes only with its queue or its nodes.
    What could go to GPUs of several types is weighed against the bounds of one when it is placed, and not here: of
    several ways to spread such jobs over types one may break a bound that another keeps.
    """
    earmarked = Counter(
        line_of(job) for job in (cluster.jobs[job_id] for job_id in cluster.earmarks) if job.state is JobState.ADMITTED
    )
    reasons: dict[JobId, HoldCode] = {}
    kept: list[Line] = []
    for line in sorted(cluster.admitted.groups()):
        code = HoldCode.QUEUE_PAUSED if cluster.tree.stopped(line.team) else possible.fault(line.shape)
        if code is not None:
            reasons.update((job_id, code) for _, job_id in cluster.admitted.line(line))
        else:
            kept.append(line)
    if not standing.sole:
        by_class = cluster.policy.order in BY_CLASS
        for line in sorted(
            kept, key=lambda line: (not standing.certain(line.shape.gpu_types), line.rank if by_class else 0)
        ):
            waiting = cluster.admitted.count(line) - earmarked[line]
            if waiting and _against(standing, line, waiting) is None:
                standing.claim(line, waiting)
            elif waiting:
                reasons.update(_beyond(cluster, standing, line))
    jobs = [cluster.jobs[job_id] for job_id in sorted(reasons)[:WITHDRAWN_MAX]]
    return [AdmissionWithdrawn(**tick.of_job(job)) for job in jobs], {job.job_id: reasons[job.job_id] for job in jobs}


def _against(standing: Standing, line: Line, jobs: int = 1) -> HoldCode | None:
    """What stands against so many jobs of a line."""
    shape, gpus = line.shape, jobs * least_gpus(line.shape)
    block = standing.blocked(
        Request(line.team, shape.gpu_types, gpus, preemptible=not line.firm, jobs=jobs, rank=line.rank)
    )
    if block is None or standing.certain(shape.gpu_types) or block.code is HoldCode.RUNNING_MAX:
        return block.code if block is not None else None
    never = standing.never(line.team, shape.gpu_types, least_gpus(shape), preemptible=not line.firm)
    return block.code if never else None


def _beyond(cluster: Cluster, standing: Standing, line: Line) -> dict[JobId, HoldCode]:
    """Of a line, in order, those that are beyond a bound once those before them are counted."""
    beyond: dict[JobId, HoldCode] = {}
    for _, job_id in cluster.admitted.line(line):
        if job_id in cluster.earmarks:
            continue
        if (code := _against(standing, line)) is not None:
            beyond[job_id] = code
        else:
            standing.claim(line, 1)
    return beyond


# Prices


def repriced(cluster: Cluster, tick: Tick, till: Till, *, besides: Container[JobId]) -> list[Event]:
    """Withdrawals of jobs whose reservation would be another by now, or that somebody is to pay for by now.

    Prices may be others, or the account that pays, or GPUs of a type have come for which nothing is reserved. They come again, at their old age, and what they cost is reserved anew. `besides`: those that are withdrawn already.
    """
    found = (job_id for job_id in _repriced(cluster, till) if job_id not in besides)
    jobs = [cluster.jobs[job_id] for job_id in sorted(islice(found, WITHDRAWN_MAX))]
    return [AdmissionWithdrawn(**tick.of_job(job)) for job in jobs]


def _repriced(cluster: Cluster, till: Till) -> Iterator[JobId]:
    quoted, unreserved = cluster.credits.quoted, Counter[TeamId]()
    for terms in quoted.groups():
        unreserved[terms.team] -= quoted.count(terms)
        if not till.stands(terms):
            yield from (job_id_of(run_id) for _, run_id in quoted.line(terms))
    if not till.charges:
        return
    lines = sorted(cluster.admitted.groups())
    for line in lines:
        unreserved[line.team] += cluster.admitted.count(line)
    for line in lines:
        if unreserved[line.team] and till.charges_team(line.team):
            for _, job_id in cluster.admitted.line(line):
                if run_id_of(job_id, cluster.jobs[job_id].attempt + 1) not in cluster.credits.bills:
                    yield job_id
