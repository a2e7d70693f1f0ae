"""Projectors that run during a test, and jobs that are submitted meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from events.base import Event, JobId, Position, TeamId
from events.job import JobSpec, JobSubmitted
from events.log.memory import MemoryLog
from projections.tables.projector import Progress, project
from runtime.clock import ManualClock
from runtime.postgres import Pool

RED = TeamId("red")


@asynccontextmanager
async def projecting(log: MemoryLog, pool: Pool) -> AsyncIterator[Progress]:
    """A projector runs meanwhile."""
    progress = Progress()
    task = asyncio.create_task(project(log, pool, progress))
    try:
        yield progress
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def submitted(number: int, at: datetime, *, gpus: int = 1) -> JobSubmitted:
    """A user asked for a job."""
    return JobSubmitted(
        at=at,
        by="ask.red",
        team=RED,
        job_id=JobId(f"j{number:04d}"),
        spec=JobSpec(name=f"job{number}", command=("true",), gpus=gpus),
        key=f"k{number}",
        request_hash="h",
    )


async def record(log: MemoryLog, numbers: Sequence[int], clock: ManualClock) -> Position:
    """Jobs with these numbers have been submitted."""
    events: list[Event] = [submitted(number, clock.now()) for number in numbers]
    return await log.record(events)
