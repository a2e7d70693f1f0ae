"""A cell whose every way may be cut: real NATS, control planes in processes of their own, agents with real ranks.

Each agent and each control plane reaches NATS through a proxy of its own; the gate, and the test that reads the log, do not.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from agent import procfs
from agent.environment import DATA_MARK
from agent.processes import kill
from agent.start import serve as serve_agent
from events.ask import Accepted, Submit
from events.base import START, Event, JobId, NodeId, Recorded, TeamId
from events.log.append import JetStreamLog
from events.log.streams import StreamSettings, found
from events.node import GpusFoundClean
from events.policy import PolicySet
from events.subjects import Subjects
from projections.cluster.audit.audit import audit
from projections.cluster.evolve import evolve
from projections.cluster.state import Cluster
from runtime.clock import SystemClock
from runtime.embedded.nats import EmbeddedNats
from runtime.nats import connect
from runtime.settings import AgentSettings
from services.gate.gate import Gate, open_gate
from services.gate.serve import serve as serve_gate
from tests.fixtures.proxy import Proxy, proxy_to
from tests.fixtures.waiting import until

CLOCK: Final = SystemClock()
TEAM: Final = TeamId("t")
GPUS: Final = 2  # of each node
E = TypeVar("E", bound=Event)

# A rank writes the time, its attempt and its node as long as it lives.
RANK: Final = """
import os, time
with open("{file}", "a", buffering=1) as file:
    while not os.path.exists("{file}.end"):
        file.write(f"{{time.time():.3f}} {{os.environ['MUSTER_ATTEMPT']}} {{os.environ['MUSTER_NODE_ID']}}\\n")
        time.sleep(0.02)
"""


class Cell:
    """What runs, and what is in its log."""

    def __init__(self, folder: Path, gate: Gate) -> None:
        self.folder = folder
        self.gate = gate
        self.ways: dict[str, Proxy] = {}  # of agents and control planes, by their names
        self.planes: dict[str, asyncio.subprocess.Process] = {}
        self.records: list[Recorded] = []
        self.cluster = Cluster()

    async def submit(self, name: str, **spec: Any) -> JobId:
        """A job with one GPU whose rank writes into the file of its name until it is told to end."""
        code = RANK.format(file=self.folder / name)
        asked = {"name": name, "gpus": 1, "command": [sys.executable, "-I", "-S", "-c", code], "stop_grace_s": 1} | spec
        answer = await self.gate.submit(TEAM, Submit(key=name, spec=asked), by="test")
        assert isinstance(answer, Accepted), answer
        assert answer.job_id is not None
        return answer.job_id

    async def runs(self, name: str, attempt: int = 1) -> NodeId:
        """The node on which the attempt of a job runs, once its rank has written."""
        await until(lambda: self.written(name, attempt), within_s=20, what=f"{name} runs, attempt {attempt}")
        return self.written(name, attempt)[0][1]

    def written(self, name: str, attempt: int) -> list[tuple[float, NodeId]]:
        """When and where ranks of the attempt lived."""
        path = self.folder / name
        lines = path.read_text().splitlines() if path.exists() else []
        parts = (line.split() for line in lines if line.count(" ") == 2)
        return [(float(at), NodeId(node)) for at, number, node in parts if int(number) == attempt]

    def end(self, name: str) -> None:
        """The job's ranks end well."""
        (self.folder / f"{name}.end").touch()

    def told(self, kind: type[E], **fields: Any) -> list[E]:
        """The events of one kind in the log, with these fields."""
        events = [recorded.event for recorded in self.records if isinstance(recorded.event, kind)]
        return [event for event in events if all(getattr(event, name) == is_ for name, is_ in fields.items())]

    async def tells(self, kind: type[E], *, within_s: float = 20.0, **fields: Any) -> E:
        """The first of these, once it is in the log."""
        await until(lambda: self.told(kind, **fields), within_s=within_s, what=f"{kind.__name__} {fields}")
        return self.told(kind, **fields)[0]

    async def whole(self, nodes: int) -> None:
        """All GPUs are free, and the independent reading of the log finds nothing."""
        await until(lambda: self.free == nodes * GPUS, within_s=20, what="all GPUs are free")
        assert audit(self.records) == []

    @property
    def free(self) -> int:
        """GPUs that may be given away."""
        return sum(node.free.bit_count() for node in self.cluster.nodes.values())


@asynccontextmanager
async def cell(folder: Path, policy: PolicySet, *, nodes: int, planes: int = 1) -> AsyncIterator[Cell]:
    """A cell in which all GPUs are in the pool; nothing of it is left afterwards."""
    node_ids = tuple(NodeId(f"node-{n}") for n in range(1, nodes + 1))
    nats = EmbeddedNats(folder, agents=node_ids)
    await nats.start()
    port = urlsplit(nats.url).port
    assert port is not None
    async with AsyncExitStack() as stack:
        stack.push_async_callback(nats.stop)
        connection = await connect(nats.login("system"), name="test")
        stack.push_async_callback(connection.close)
        await found(connection, StreamSettings())
        log = JetStreamLog(connection, source="gate")
        await log.record([policy])
        gate = await stack.enter_async_context(open_gate(log, CLOCK))
        await stack.enter_async_context(serve_gate(gate, connection, Subjects()))
        made = Cell(folder, gate)
        await stack.enter_async_context(_task(_follow(made, log)))
        for name in (*node_ids, *(f"plane-{n}" for n in range(1, planes + 1))):
            made.ways[name] = await stack.enter_async_context(proxy_to(port))
        for name in made.ways:
            if name not in node_ids:
                made.planes[name] = await stack.enter_async_context(_plane(made, nats, name))
        stack.push_async_callback(_end_ranks, folder)
        for node_id in node_ids:
            await stack.enter_async_context(_task(_agent(made, nats, node_id)))
        await until(lambda: len(made.told(GpusFoundClean)) == nodes, within_s=40, what="all nodes are there")
        await until(lambda: made.cluster.leader, within_s=40, what="somebody leads")
        yield made


async def _follow(made: Cell, log: JetStreamLog) -> None:
    async for stretch in log.follow(START):
        for recorded in stretch:
            made.records.append(recorded)
            made.cluster = evolve(made.cluster, recorded)


async def _agent(made: Cell, nats: EmbeddedNats, node_id: NodeId) -> None:
    login = nats.login(f"agent-{node_id}")
    settings = AgentSettings(
        nats_urls=(made.ways[node_id].url,),
        nats_user=login.user,
        nats_password=login.password,
        node_id=node_id,
        data_dir=made.folder / "agents" / node_id,
        gpus=f"simulated:{GPUS}",
        address="127.0.0.1",
        reread_every_s=1.0,
        lost_after_s=made.cluster.policy.lost_after_s,
    )
    await serve_agent(settings, environ={"PATH": os.environ["PATH"], "HOME": "/root"})


@asynccontextmanager
async def _plane(made: Cell, nats: EmbeddedNats, name: str) -> AsyncIterator[asyncio.subprocess.Process]:
    login = nats.login("control")
    env = {
        "PATH": os.environ["PATH"],
        "MUSTER_NATS_URLS": made.ways[name].url,
        "MUSTER_NATS_USER": login.user,
        "MUSTER_NATS_PASSWORD": login.password,
        "MUSTER_INSTANCE": name,
        "MUSTER_DATA_DIR": str(made.folder / name),
    }
    argv = (sys.executable, "-I", "-m", "services.cli", "serve", "control", "dispatcher")
    with (made.folder / f"{name}.log").open("wb") as output:
        child = await asyncio.create_subprocess_exec(*argv, env=env, stdout=output, stderr=output)
        try:
            yield child
        finally:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()


@asynccontextmanager
async def _task(work: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
        if task.done():
            task.result()  # it ended by a fault
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _end_ranks(folder: Path) -> None:
    def left() -> list[int]:
        agents = folder / "agents"
        marks = [f"{DATA_MARK}={path}".encode() for path in agents.iterdir()] if agents.exists() else []
        return [pid for mark in marks for pid, _ in procfs.marked(mark)]

    kill(left())
    await until(lambda: not left(), what="no rank is left")
