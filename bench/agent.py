"""Short real processes through one agent: from the order to the release, as many a second as it manages.

    python -I -m bench.agent [--jobs 300] [--at-once 8] [--ranks 1] [--json]

A real NATS, a gate that accepts everything, a dispatcher that keeps so many runs ordered at once, one agent in a
process of its own; every rank is `true`, with a supervisor, start record, exit record and all reports.
"""

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from events.ask import Accepted, Report
from events.base import GpuUuid, JobId, NodeEpoch, NodeId, Position, RunId, SlotMask, TeamId, position_of
from events.desired import Desired, DesiredShare, Order
from events.job import JobSpec
from events.log.streams import StreamSettings, found
from events.node import GpusFoundClean, GpusReleased, NodeJoined
from events.subjects import Subjects
from runtime.embedded.nats import EmbeddedNats
from runtime.nats import Connection, connect
from runtime.serve_requests import Served, serving
from runtime.stored import stored

NODE = NodeId("node-1")
GPUS = 56


class Control:
    """Orders runs until all were released."""

    def __init__(self, connection: Connection, jobs: int, at_once: int, ranks: int) -> None:
        self._connection = connection
        self._jobs, self._at_once, self._ranks = jobs, at_once, ranks
        self._position = 1
        self._moved = asyncio.Event()
        self._gpus: tuple[GpuUuid, ...] = ()
        self._instance, self._epoch = "", NodeEpoch(0)
        self._free = list(range(at_once))
        self._shares: dict[RunId, tuple[int, DesiredShare]] = {}
        self.messages = 0

    async def answer(self, _subject: str, payload: bytes) -> bytes:
        """Everything is accepted."""
        self.messages += 1
        for one in msgspec.json.decode(payload, type=Report).reports:
            self._position += 1
            match one:
                case NodeJoined():
                    self._instance, self._epoch = one.instance, NodeEpoch(position_of(1, self._position))
                case GpusFoundClean():
                    self._gpus = one.gpu_uuids
                case GpusReleased():
                    self._free.append(self._shares.pop(one.run_id)[0])
                case _:
                    pass
        self._moved.set()
        return msgspec.json.encode(Accepted(position=position_of(1, self._position)))

    async def ready(self) -> None:
        """The node is in the pool."""
        while not self._gpus:
            self._moved.clear()
            await self._moved.wait()

    async def run(self) -> float:
        """Seconds until all were released."""
        started_s, given = time.perf_counter(), 0
        while given < self._jobs or self._shares:
            self._moved.clear()
            while self._free and given < self._jobs:
                place = self._free.pop()
                share = self._share(given, place)
                self._shares[share.run_id] = place, share
                given += 1
            await self._write()
            await self._moved.wait()
        return time.perf_counter() - started_s

    async def _write(self) -> None:
        self._position += 1
        desired = Desired(
            node_id=NODE,
            epoch=self._epoch,
            instance=self._instance,
            as_of=Position(position_of(1, self._position)),
            shares=tuple(self._shares[run_id][1] for run_id in sorted(self._shares)),
        )
        subject = Subjects().desired(NODE)
        assert await stored(self._connection, subject, msgspec.json.encode(desired), headers={}, within_s=5)

    def _share(self, number: int, place: int) -> DesiredShare:
        ranks = self._ranks
        return DesiredShare(
            run_id=RunId(f"j{number:06d}-1"),
            job_id=JobId(f"j{number:06d}"),
            team=TeamId("bench"),
            attempt=1,
            order=Order.RUN,
            slots=SlotMask(((1 << ranks) - 1) << (place * ranks)),
            gpu_uuids=self._gpus[place * ranks : (place + 1) * ranks],
            node_rank=0,
            nodes=1,
            first_rank=0,
            world_size=ranks,
            local_size=ranks,
            master_addr="127.0.0.1",
            master_port=12_345,
            spec=JobSpec(name="bench", command=("true",), gpus=ranks),
        )


async def measure(jobs: int, at_once: int, ranks: int) -> dict[str, float]:
    """The figures of one run."""
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedNats(Path(folder), agents=(NODE,))
        await server.start()
        connection = await connect(server.login("system"), name="bench")
        await found(connection, StreamSettings())
        control = Control(connection, jobs, at_once, ranks)
        login = server.login(f"agent-{NODE}")
        env = {
            "PATH": os.environ["PATH"],
            "MUSTER_NATS_URLS": server.url,
            "MUSTER_NATS_USER": login.user,
            "MUSTER_NATS_PASSWORD": login.password,
            "MUSTER_NODE_ID": NODE,
            "MUSTER_DATA_DIR": f"{folder}/agent",
            "MUSTER_GPUS": f"simulated:{GPUS}",
            "MUSTER_LOG_LEVEL": "warning",
        }
        async with serving(connection, Served(Subjects().report(NODE), "gate", control.answer, b"")):
            child = await asyncio.create_subprocess_exec(sys.executable, "-I", "-m", "agent", env=env)
            await control.ready()
            took_s = await control.run()
            child.terminate()
            await child.wait()
        await connection.close()
        await server.stop()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(one.ru_utime + one.ru_stime for one in used)  # servers, agent, supervisors, ranks and this
    rate = round(jobs / took_s, 1)
    return {"jobs": jobs, "at_once": at_once, "ranks": ranks, "took_s": round(took_s, 2), "jobs_per_s": rate} | {
        "reports_messages": control.messages,
        "cpu_ms_per_job": round(cpu_s / jobs * 1000, 1),
    }


def main() -> None:
    """Prints a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    if chosen.at_once * chosen.ranks > GPUS:
        parser.error(f"--at-once times --ranks is at most {GPUS}")
    figures = asyncio.run(measure(chosen.jobs, chosen.at_once, chosen.ranks))
    if chosen.json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name:18} {value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
