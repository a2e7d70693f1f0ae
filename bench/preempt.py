"""Victims for a large gang among one-GPU jobs, and committing that decision. `python -m bench.preempt [--json]`.

The search is timed from memory; the append against a server of its own, with fsync.
"""

import argparse
import asyncio
import gc
import json
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from bench.decide import AT, GPUS_PER_NODE, Log, timed
from bench.log import machine
from events.base import Event, JobId, Position, TeamId
from events.codec import Codec, Stamp
from events.head import RoundDecided
from events.job import GpusEarmarked, JobSpec, JobSubmitted, Priority
from events.log.append import JetStreamLog
from events.log.streams import StreamSettings, found
from events.queues import Queue, QueuesSet
from projections.cluster.placing.place import Room
from projections.cluster.quota.entitlement import Standing
from projections.cluster.tick import Tick
from runtime.embedded.nats import EmbeddedNats
from runtime.nats import connect
from services.main.serve import COLLECT_EVERY
from services.scheduler.preempt import Preemption, preempt
from services.scheduler.scene import Scene

GANG: Final = 2_000
LATER: Final = timedelta(hours=1)


def full(nodes: int) -> Log:
    """A full cluster of one-GPU jobs of the least class, all of one team; no queues are set yet."""
    log = Log()
    log.join(nodes)
    for number in range(nodes * GPUS_PER_NODE):
        _submit(log, f"j{number:06d}", 1, "large", Priority.LOW)
    log.rounds()
    assert len(log.cluster.runs) == nodes * GPUS_PER_NODE
    return log


def _submit(log: Log, name: str, gpus: int, team: str, priority: Priority) -> None:
    spec = JobSpec(name="bench", command=("true",), gpus=gpus, priority=priority)
    log.add(JobSubmitted(at=AT, team=TeamId(team), job_id=JobId(name), spec=spec, key=name, request_hash="h"))


def search(log: Log, team: str) -> tuple[dict[str, Any], GpusEarmarked]:
    """What the search takes for an urgent gang of a team, and what it decides."""
    gang = JobId(f"gang-{team}")
    _submit(log, gang, GANG, team, Priority.URGENT)
    tick = Tick(at=AT + LATER, position=log.records[-1].position)
    fork = log.cluster.fork()  # as in a round

    def look() -> Preemption | None:
        scene = Scene(cluster=fork, tick=tick, room=Room(fork), standing=Standing(fork, tick.at))
        return preempt(scene, fork.jobs[gang])

    answer = look()
    assert answer is not None
    seconds = timed(look, 5)
    event = GpusEarmarked(**tick.of_job(fork.jobs[gang]), shares=answer.shares, victims=answer.victims)
    row = {
        "nodes": len(log.cluster.nodes),
        "running_jobs": len(log.cluster.runs),
        "gang_gpus": GANG,
        "taken_from": "its own team" if team == "large" else "another team",
        "victims": len(answer.victims),
        "search_ms": round(seconds * 1e3, 1),
        "event_bytes": len(Codec().encode(event, Stamp("decision", "bench"))),
    }
    return row, event


async def commit(event: GpusEarmarked, times: int = 10) -> dict[str, Any]:
    """What one append of the decision takes, until the server has it on disk."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        server = EmbeddedNats(Path(folder))
        await server.start()
        connection = await connect(server.login("system"), name="bench")
        try:
            await found(connection, StreamSettings())
            return {"append_ms": round(await _append(JetStreamLog(connection), event, times) * 1e3, 1)}
        finally:
            await connection.close()
            await server.stop()


async def _append(log: JetStreamLog, event: GpusEarmarked, times: int) -> float:
    last = await log.last("head")
    assert last is not None
    head, least = last.position, float("inf")
    for _ in range(times):
        batch: list[Event] = [RoundDecided(at=AT, epoch=head, decided_at=head, events=1), event]
        began = perf_counter()
        end = await log.append(batch, after=head)
        least = min(least, perf_counter() - began)
        head = Position(end - 1)
    return least


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_250, 12_500])
    options = parser.parse_args()
    gc.set_threshold(*COLLECT_EVERY)  # as the processes do
    rows = []
    for nodes in options.nodes:
        log = full(nodes)
        log.add(QueuesSet(at=AT, queues=(Queue(name=TeamId("large"), weight=4), Queue(name=TeamId("small")))))
        for team in ("large", "small"):
            row, event = search(log, team)
            rows.append(row | asyncio.run(commit(event)))
    if options.json:
        json.dump({"machine": machine(), "preempt": rows}, sys.stdout, indent=2)
        return
    sys.stdout.write(machine() + "\n")
    for row in rows:
        sys.stdout.write("  ".join(f"{name} {value}" for name, value in row.items()) + "\n")


if __name__ == "__main__":
    main()
