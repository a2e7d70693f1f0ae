"""Measures the log into PostgreSQL: live following, and a rebuild beside. `python -m bench.project [--json]`."""

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import uvloop

from events.base import Event, GpuUuid, JobId, NodeEpoch, NodeId, Position, RunId, SlotMask, TeamId, position_of
from events.head import LogFounded
from events.job import (
    HoldCode,
    JobAdmitted,
    JobHeld,
    JobPlaced,
    JobSpec,
    JobSubmitted,
    JobSucceeded,
    NodeShare,
    RunStarted,
)
from events.log.memory import MemoryLog
from events.node import EndReason, GpusFoundClean, GpusReleased, NodeJoined, ShareEnded, ShareStarted
from projections.tables.projector import Progress, project
from projections.tables.rebuild import rebuild
from projections.tables.verify import verify
from projections.tables.waiting import Shown
from runtime.embedded.postgres import EmbeddedPostgres
from runtime.postgres import Pool, create_pool
from services.main.serve import COLLECT_EVERY

JOBS: Final = 20_000
NODES: Final = 1_250
GPUS: Final = 8
OPEN_MAX: Final = 5_000  # jobs at once, so that events of many are interleaved
BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
TEAMS: Final = tuple(TeamId(f"team-{number}") for number in range(20))


def joins() -> Iterator[Event]:
    """Every node joins, and all its GPUs are clean. The first join is at position (1, 2)."""
    for number in range(NODES):
        node_id = NodeId(f"node-{number:05d}")
        uuids = tuple(GpuUuid(f"GPU-{node_id}-{slot}") for slot in range(GPUS))
        yield NodeJoined(
            at=BEGIN,
            node_id=node_id,
            boot_id="boot",
            instance="instance",
            gpu_type="h100",
            gpu_uuids=uuids,
            address="10.0.0.1",
            port_base=20_000,
        )
        yield GpusFoundClean(at=BEGIN, node_id=node_id, node_epoch=_epoch(number), gpu_uuids=uuids)


def _epoch(number: int) -> NodeEpoch:
    return NodeEpoch(position_of(1, 2 + 2 * number))


def life(number: int, random: Random) -> Iterator[Event]:
    """All that is written of a job that asks for one GPU and succeeds."""
    job_id, team = JobId(f"j{random.getrandbits(64):013x}"[:14]), random.choice(TEAMS)
    run_id, where = RunId(f"{job_id}-1"), random.randrange(NODES)
    job: dict[str, Any] = {"at": BEGIN, "team": team, "job_id": job_id}
    share: dict[str, Any] = {
        "at": BEGIN,
        "node_id": NodeId(f"node-{where:05d}"),
        "node_epoch": _epoch(where),
        "run_id": run_id,
    }
    slots = SlotMask(1 << random.randrange(GPUS))
    spec = JobSpec(name=f"job-{number}", command=("python", "train.py"), gpus=1)
    yield JobSubmitted(**job, by=f"ask.{team}", spec=spec, key=f"key-{number}", request_hash="0" * 16)
    yield JobAdmitted(**job)
    if number % 2:
        yield JobHeld(**job, code=HoldCode.NO_ROOM)
    yield JobPlaced(**job, run_id=run_id, attempt=1, shares=(NodeShare(share["node_id"], _epoch(where), slots),))
    yield ShareStarted(**share)
    yield RunStarted(**job, run_id=run_id)
    yield ShareEnded(**share, reason=EndReason.EXITED)
    yield GpusReleased(**share, slots=slots)
    yield JobSucceeded(**job, run_id=run_id)


def history(jobs: int) -> Iterator[Event]:
    """The events of a busy cluster, those of `OPEN_MAX` jobs at a time interleaved by chance, from a fixed seed."""
    random = Random(1)
    yield from joins()
    running: list[Iterator[Event]] = []
    for number in range(jobs):
        running.append(life(number, random))
        while len(running) >= OPEN_MAX or (running and number == jobs - 1):
            place = random.randrange(len(running))
            event = next(running[place], None)
            if event is not None:
                yield event
            else:
                running[place] = running[-1]
                running.pop()


async def written(jobs: int) -> MemoryLog:
    """A log of that history, decoded: what is measured here is what comes after reading."""
    at = BEGIN

    def clock() -> datetime:
        nonlocal at
        at += timedelta(milliseconds=1)
        return at

    log = MemoryLog("bench", clock)
    await log.append([LogFounded(at=BEGIN, log_id="bench", cell="bench")], after=await log.end())
    batch: list[Event] = []
    for event in history(jobs):
        batch.append(event)
        if len(batch) == 100:
            await log.record(batch)
            batch.clear()
    if batch:
        await log.record(batch)
    return log


@asynccontextmanager
async def database(dsn: str | None) -> AsyncIterator[Pool]:
    """Connections to the server at `dsn`, or to one that lives as long as this."""
    if dsn is not None:
        pool = await create_pool(dsn, name="bench")
        yield pool
        await pool.close()
        return
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        server = EmbeddedPostgres(Path(folder))
        await server.start()
        try:
            pool = await create_pool(server.dsn, name="bench")
            yield pool
            await pool.close()
        finally:
            await server.stop()


async def follow(log: MemoryLog, pool: Pool, end: Position) -> float:
    """Seconds until the live tables reached the end."""
    progress = Progress()
    began_s = time.perf_counter()
    task = asyncio.create_task(project(log, pool, progress))
    reached = await Shown(pool).wait_for(end, 600)
    took_s = time.perf_counter() - began_s
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert reached == end
    return took_s


async def measure(jobs: int, dsn: str | None) -> dict[str, Any]:
    """The figures."""
    log = await written(jobs)
    gc.collect()
    gc.freeze()  # no process that reads a log keeps all of it: looking through it again and again is not what is measured
    end = await log.end()
    events = end - position_of(1, 0)
    async with database(dsn) as pool:
        live_s = await follow(log, pool, end)
        began_s = time.perf_counter()
        await rebuild(log, pool)
        rebuild_s = time.perf_counter() - began_s
        began_s = time.perf_counter()
        verified = await verify(log, pool)
        verify_s = time.perf_counter() - began_s
        assert verified.same, verified.differences
    return {
        "events": events,
        "jobs": jobs,
        "nodes": NODES,
        "cpus": os.cpu_count(),
        "live_events_per_s": round(events / live_s),
        "rebuild_events_per_s": round(events / rebuild_s),
        "verify_events_per_s": round(events / verify_s),
    }


def main() -> None:
    """Prints a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")
    parser.add_argument("--jobs", type=int, default=JOBS, help="how many jobs live their whole life")
    parser.add_argument("--dsn", help="a PostgreSQL to use; default: one of its own")
    arguments = parser.parse_args()
    gc.set_threshold(*COLLECT_EVERY)  # loop and settings are those of the processes
    figures = uvloop.run(measure(arguments.jobs, arguments.dsn))
    if arguments.json:
        json.dump(figures, sys.stdout)
        print()
        return
    for name, figure in figures.items():
        print(f"{name:22} {figure:>12,}")


if __name__ == "__main__":
    main()
