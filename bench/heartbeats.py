"""Heartbeats of a large cell beside a steady stream of jobs: `python -m bench.heartbeats [--seconds 60] [--nodes 12500]`.

Every node beats as often as agents do, and every job lives its whole life, while the control plane, the dispatcher, a
gate and the projector run as processes of their own on real servers. The nodes and the users are this process. Told are
how long jobs wait, how far the tables are behind, what each part costs, and how many nodes were taken for silent: none
were.
"""

import argparse
import asyncio
import gc
import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from bench.cell import CLOCK, TEAM, Cell, join_nodes, open_cell
from events.ask import Accepted, Answer, Report, Submit
from events.base import NodeEpoch, NodeId, Position, TeamId
from events.desired import Heartbeat
from events.fleet import NodeLost, NodeSuspected
from events.job import JobPlaced, JobSubmitted, JobSucceeded
from events.node import EndReason, GpusReleased, ShareEnded, ShareStarted
from events.policy import PolicySet
from events.subjects import Subjects
from runtime.nats import Connection, connect
from runtime.postgres import create_pool
from runtime.serve_requests import ask
from services.main.serve import COLLECT_EVERY

PARTS: Final = (("control", "dispatcher"), ("gate",), ("projector",))
BEAT_EVERY_S: Final = 10.0
STEP_S: Final = 0.02  # beats of so long go out together
LOOK_EVERY_S: Final = 1.0
ANSWER_S: Final = 5.0
SUBJECTS: Final = Subjects()
SHOWN: Final = "SELECT max(position) FROM live.projection_position"

encode: Final = msgspec.json.Encoder().encode
decode: Final = msgspec.json.Decoder(Answer).decode


class Load:
    """What nodes and users do, and what is seen of it."""

    def __init__(self, cell: Cell, connection: Connection, epochs: dict[NodeId, NodeEpoch]) -> None:
        self.said = Counter[str]()
        self.waited_s: list[float] = []  # from submission to placement, by the log's own times
        self.behind: list[int] = []  # records that the tables lack
        self.end = Position(0)
        self._cell = cell
        self._connection = connection
        self._epochs = epochs
        self._submitted: dict[str, float] = {}

    async def beat(self) -> None:
        """Never returns: each node beats in its turn."""
        nodes = list(self._epochs.items())
        each, turn = len(nodes) * STEP_S / BEAT_EVERY_S, 0.0
        next_s = CLOCK.monotonic()
        while True:
            for number in range(int(turn), int(turn + each)):
                node_id, epoch = nodes[number % len(nodes)]
                pulse = Heartbeat(node_id=node_id, epoch=epoch, instance="bench", at=CLOCK.now())
                await self._connection.publish(SUBJECTS.heartbeat(node_id), encode(pulse))
                self.said["beats"] += 1
            turn += each
            next_s += STEP_S
            await asyncio.sleep(max(0.0, next_s - CLOCK.monotonic()))

    async def submit(self, per_s: float) -> None:
        """Never returns: users ask, without waiting for each other's answers."""
        number, next_s = 0, CLOCK.monotonic()
        async with asyncio.TaskGroup() as group:
            while True:
                spec = {"name": "short", "command": ["true"], "gpus": 1}
                wanted = Submit(key=f"bench-{number}", spec=spec)
                group.create_task(self._ask(SUBJECTS.ask(TeamId(TEAM)), encode(wanted)))
                number += 1
                next_s += 1 / per_s
                await asyncio.sleep(max(0.0, next_s - CLOCK.monotonic()))

    async def live(self, after: Position) -> None:
        """Never returns: what is placed is started, ended and released at once."""
        async with asyncio.TaskGroup() as group:
            async for stretch in self._cell.log.follow(after):
                for recorded in stretch:
                    self.end = recorded.position
                    match recorded.event:
                        case JobSubmitted(job_id=job_id):
                            self._submitted[job_id] = recorded.at.timestamp()
                        case JobPlaced() as placed:
                            self.waited_s.append(recorded.at.timestamp() - self._submitted.pop(placed.job_id))
                            group.create_task(self._run(placed))
                        case NodeSuspected() | NodeLost() | JobSucceeded() as seen:
                            self.said[type(seen).__name__] += 1
                        case _:
                            pass

    async def look(self) -> None:
        """Never returns: how far the tables are behind, now and then."""
        pool = await create_pool(self._cell.postgres.dsn, name="bench", size_max=1)
        try:
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                self.behind.append(max(0, self.end - (await pool.fetchval(SHOWN) or 0)))
        finally:
            pool.terminate()

    async def _run(self, placed: JobPlaced) -> None:
        for share in placed.shares:
            ids: Any = {"at": CLOCK.now(), "node_id": share.node_id, "node_epoch": share.node_epoch}
            ids["run_id"] = placed.run_id
            ended = ShareEnded(**ids, reason=EndReason.EXITED)
            reports = (ShareStarted(**ids), ended, GpusReleased(**ids, slots=share.slots))
            await self._ask(SUBJECTS.report(share.node_id), encode(Report(instance="bench", reports=reports)))

    async def _ask(self, subject: str, payload: bytes) -> None:
        while True:
            answer = await ask(self._connection, subject, payload, within_s=ANSWER_S)
            if answer and isinstance(decode(answer), Accepted):
                return
            self.said["asked again"] += 1


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All figures."""
    async with open_cell(*PARTS) as cell:
        epochs = await join_nodes(cell.log, options.nodes)
        await cell.log.record([PolicySet(at=CLOCK.now())])  # nodes are suspect after 30 s of silence, as by default
        start = await cell.log.end()
        connection = await connect(cell.nats.login("system"), name="bench")
        load = Load(cell, connection, epochs)
        loops = (load.beat(), load.submit(options.jobs_per_s), load.live(start), load.look())
        tasks = [asyncio.create_task(loop) for loop in loops]
        try:
            await asyncio.sleep(options.warm_s)
            before = _cost(cell)
            for seen in (load.waited_s, load.behind, load.said):
                seen.clear()
            began_s = CLOCK.monotonic()
            done, _ = await asyncio.wait(tasks, timeout=options.seconds, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()  # one that ended has failed
            seconds = CLOCK.monotonic() - began_s
            return {"machine": _machine(), **_told(load, seconds, before, _cost(cell))}
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await connection.close()


def _told(load: Load, seconds: float, before: dict[str, float], after: dict[str, float]) -> dict[str, Any]:
    waited, behind = sorted(load.waited_s), sorted(load.behind)
    return {
        "seconds": round(seconds),
        "beats_per_s": round(load.said["beats"] / seconds),
        "jobs_per_s": round(load.said["JobSucceeded"] / seconds, 1),
        "placed_ms": {"p50": round(_share(waited, 0.5) * 1e3), "p99": round(_share(waited, 0.99) * 1e3)},
        "tables_behind": {"p50": _share(behind, 0.5), "p99": _share(behind, 0.99), "unit": "records"},
        "suspected": load.said["NodeSuspected"],
        "lost": load.said["NodeLost"],
        "asked_again": load.said["asked again"],
        "cpu": {name: f"{(after[name] - before[name]) / seconds:.0%}" for name in before if name in after},
        "memory_mib": {name: _memory_mib(int(name.split()[-1])) for name in after},
    }


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[int((len(ordered) - 1) * share)] if ordered else 0


def _processes(cell: Cell) -> dict[str, int]:
    parts = {"+".join(names): child.pid for names, child in zip(PARTS, cell.children, strict=True)}
    return {"nats": cell.nats.pid or 0, **parts, "nodes and users": os.getpid()}


def _cost(cell: Cell) -> dict[str, float]:
    """CPU seconds of each process so far, by its name and id; PostgreSQL's with all its children."""
    cost = {f"{name} {pid}": _cpu_s(pid) for name, pid in _processes(cell).items()}
    servers = cell.postgres.remains()
    return cost | {f"postgres {cell.postgres.pid}": sum(map(_cpu_s, servers))}


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _memory_mib(pid: int) -> int:
    """What a process holds in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--warm-s", type=float, default=20.0)
    parser.add_argument("--nodes", type=int, default=12_500)
    parser.add_argument("--jobs-per-s", type=float, default=100.0)
    options = parser.parse_args()
    gc.set_threshold(*COLLECT_EVERY)
    figures = uvloop.run(measure(options))
    sys.stdout.write(json.dumps(figures) if options.json else "\n".join(f"{k:14} {v}" for k, v in figures.items()))
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
