"""End to end through the log, as events: `python -m bench.burst [--json]`.

A burst of one-GPU jobs from the first submission until all are placed and the tables show it; then the sustained whole
life of short jobs, whose nodes report at once. Real NATS (fsync on every append), PostgreSQL, control plane and projector
processes; submissions and reports go through a gate in this process, since the nodes do not exist.
"""

import argparse
import asyncio
import gc
import json
import os
import platform
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import uvloop

from bench.cell import GPUS_PER_NODE, TEAM, Cell, join_nodes, open_cell, tables_at
from events.ask import Accepted, Report, Submit
from events.base import Position, TeamId
from events.job import JobPlaced, JobSucceeded
from events.node import EndReason, GpusReleased, ShareEnded, ShareStarted
from runtime.clock import SystemClock
from services.main.serve import COLLECT_EVERY

SUBMIT_AT_ONCE = 1_000
PARTS = (("control", "dispatcher"), ("projector",))


async def burst(jobs: int, nodes: int) -> dict[str, Any]:
    """Seconds from the first submission until all are placed, and until the tables show it."""
    async with open_cell(*PARTS) as cell:
        await join_nodes(cell.log, nodes)
        start = await cell.log.end()
        await tables_at(cell, start)
        cpu = cpu_of(cell)
        began = perf_counter()
        submitting = asyncio.create_task(_submit(cell, jobs, 0))
        last = await _placed(cell, start, jobs)
        placed_s = perf_counter() - began
        await submitting
        await tables_at(cell, last)
        shown_s = perf_counter() - began
        return {
            "jobs": jobs,
            "nodes": nodes,
            "placed_s": round(placed_s, 2),
            "shown_s": round(shown_s, 2),
            "jobs_per_s": round(jobs / shown_s),
            "cpu_s": {name: round(after - cpu[name], 2) for name, after in cpu_of(cell).items()},
        }


async def life(jobs: int, nodes: int) -> dict[str, Any]:
    """Jobs a second that are submitted, admitted, placed, started, ended, released and succeeded, for a while."""
    async with open_cell(*PARTS) as cell:
        epochs = await join_nodes(cell.log, nodes)
        start = await cell.log.end()
        await tables_at(cell, start)
        cpu = cpu_of(cell)
        began = perf_counter()
        submitting = asyncio.create_task(_submit(cell, jobs, 0))
        ended, last = 0, start
        async with asyncio.TaskGroup() as group:
            async for stretch in cell.log.follow(start):
                reports: list[JobPlaced] = []
                for recorded in stretch:
                    if isinstance(recorded.event, JobPlaced):
                        reports.append(recorded.event)
                    ended += isinstance(recorded.event, JobSucceeded)
                    last = recorded.position
                for placed in reports:
                    group.create_task(_live(cell, placed))
                if ended == jobs:
                    break
        await submitting
        await tables_at(cell, last)
        seconds = perf_counter() - began
        assert epochs
        return {
            "jobs": jobs,
            "nodes": nodes,
            "seconds": round(seconds, 2),
            "jobs_per_s": round(jobs / seconds),
            "events_per_s": round((last - start) / seconds),
            "cpu_s": {name: round(after - cpu[name], 2) for name, after in cpu_of(cell).items()},
        }


async def idle(nodes: int, times: int) -> dict[str, Any]:
    """Milliseconds from submit to placed on an idle cluster."""
    async with open_cell(*PARTS) as cell:
        await join_nodes(cell.log, nodes)
        position = await cell.log.end()
        await tables_at(cell, position)
        took: list[float] = []
        for number in range(times):
            began = perf_counter()
            asking = asyncio.create_task(_submit(cell, 1, number))
            position = await _placed(cell, position, 1)
            took.append(perf_counter() - began)
            await asking
            await asyncio.sleep(0.05)
        took.sort()
        p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
        return {"nodes": nodes, "times": times, "p50_ms": round(p50 * 1e3, 1), "p99_ms": round(p99 * 1e3, 1)}


async def _submit(cell: Cell, jobs: int, first: int) -> None:
    for begin in range(first, first + jobs, SUBMIT_AT_ONCE):
        numbers = range(begin, min(begin + SUBMIT_AT_ONCE, first + jobs))
        asks = [
            Submit(key=f"bench-{number}", spec={"name": "burst", "command": ["true"], "gpus": 1}) for number in numbers
        ]
        answers = await cell.gate.submit_many(TeamId(TEAM), asks, by="bench")
        assert all(isinstance(answer, Accepted) for answer in answers), answers[:1]


async def _placed(cell: Cell, after: Position, jobs: int) -> Position:
    async for stretch in cell.log.follow(after):
        for recorded in stretch:
            after = recorded.position
            jobs -= isinstance(recorded.event, JobPlaced)
        if not jobs:
            return after
    raise AssertionError("following never ends")


async def _live(cell: Cell, placed: JobPlaced) -> None:
    """What the agents of a run's nodes would say, at once."""
    for share in placed.shares:
        ids: Any = {
            "at": SystemClock().now(),
            "node_id": share.node_id,
            "node_epoch": share.node_epoch,
            "run_id": placed.run_id,
        }
        events = (
            ShareStarted(**ids),
            ShareEnded(**ids, reason=EndReason.EXITED),
            GpusReleased(**ids, slots=share.slots),
        )
        answer = await cell.gate.report(share.node_id, Report(instance="bench", reports=events))
        assert isinstance(answer, Accepted), answer


def cpu_of(cell: Cell) -> dict[str, float]:
    """CPU seconds so far of every process of the cell."""
    pids = {"bench": os.getpid(), "nats": cell.nats.pid or 0}
    pids |= {"+".join(names): child.pid for names, child in zip(PARTS, cell.children, strict=True)}
    return {name: _cpu(pid) for name, pid in pids.items()}


def _cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:  # noqa: PTH123 - one line, read whole
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All figures."""
    return {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "burst": await burst(options.jobs, options.nodes),
        "life": await life(options.jobs // 2, options.nodes),
        "idle": await idle(options.nodes, options.times),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=1_250)
    parser.add_argument("--times", type=int, default=200)
    options = parser.parse_args(argv)
    assert options.jobs <= options.nodes * GPUS_PER_NODE, "every job of the burst gets a GPU"
    gc.set_threshold(*COLLECT_EVERY)
    result = uvloop.run(measure(options))
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        return
    for name, row in result.items():
        print(name, row)


if __name__ == "__main__":
    main()
