"""What becomes of a live cluster: its fold at some position, run on with the runtimes that jobs declared."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from events.base import Event, JobId
from projections.cluster.job import Job
from projections.cluster.state import Cluster
from services.simulate.engine import Simulation
from services.simulate.plan import report
from services.simulate.work import US, Work

DEFAULT_S: Final = 3_600


def run_ahead(
    cluster: Cluster,
    submitted: Mapping[JobId, datetime],
    *,
    runtime_default_s: int = DEFAULT_S,
    instead: tuple[Event, ...] = (),
) -> tuple[Simulation, dict[str, Any]]:
    """The simulation from the fold on, and its figures. Takes the cluster over.

    Nothing more is submitted; a job that has declared nothing runs `runtime_default_s`. `submitted`: when each job was.
    `instead`: queues and policy that hold from here on, instead of the cluster's own.
    """
    begin = cluster.at
    assert begin is not None, "nothing was folded"
    simulation = Simulation(cluster, begin=begin)
    simulation.record(*instead)
    for job in sorted(cluster.jobs.values(), key=lambda job: job.submitted):
        simulation.adopt(_work(job, submitted.get(job.job_id, begin), begin, runtime_default_s))
    waiting = {job_id for job_id, life in simulation.lives.items() if life.started_us is None}
    simulation.run(())
    capacity = sum(cluster.capacity.values())
    jobs = [_line(simulation, job_id, waiting=job_id in waiting) for job_id in simulation.lives]
    return simulation, {"at": begin.isoformat(), **report(simulation, capacity), "by_job": jobs}


def _work(job: Job, submitted: datetime, begin: datetime, runtime_default_s: int) -> Work:
    arrives_us = (submitted - begin) // timedelta(microseconds=1)
    runtime_s = job.spec.max_runtime_s or runtime_default_s
    return Work(job.job_id, job.team, job.spec, arrives_us, runtime_s * US)


def _line(simulation: Simulation, job_id: JobId, *, waiting: bool) -> dict[str, Any]:
    life = simulation.lives[job_id]
    start_us, end_us = life.started_us, life.ended_us
    return {
        "job_id": job_id,
        "team": life.work.team,
        "gpus": life.work.spec.gpus,
        "waiting": waiting,
        "starts_in_s": round(start_us / US, 3) if start_us is not None and waiting else None,
        "wait_s": round(life.wait_s, 3) if life.wait_s is not None else None,
        "ends_in_s": round(end_us / US, 3) if end_us is not None else None,
        "outcome": life.outcome,
        "evictions": life.evictions,
    }
