"""A cell with an API over a real log and real tables, in which a test plays the control plane and the agents."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_network
from typing import Any

import httpx
import msgspec

from events.base import Event, GpuUuid, JobId, NodeEpoch, NodeId, Position, RunId, SlotMask, TeamId
from events.head import LeadershipTaken
from events.job import JobAdmitted, JobFailed, JobPlaced, JobSucceeded, NodeShare, RunStarted, StopCause
from events.log.append import JetStreamLog
from events.log.port import Reader
from events.log.streams import StreamSettings, found
from events.log.wire import WireReader
from events.node import GpusFoundClean, NodeJoined
from events.subjects import Subjects
from projections.tables.projector import Progress, project
from projections.tables.reconcile import reconcile
from runtime.clock import SystemClock
from runtime.embedded.nats import EmbeddedNats
from runtime.nats import Connection, connect
from runtime.postgres import Pool, create_pool
from services.api.app import open_api
from services.api.parts import Parts
from services.gate.gate import Gate, open_gate
from services.main.reconcile import document

CLOCK = SystemClock()
SUBJECTS = Subjects()
SPEC: dict[str, Any] = {"name": "train", "command": ["python", "train.py"], "gpus": 2}
NODE = NodeId("node-1")
TEAM = TeamId("default")


class Cell:
    """What a test works with: an HTTP client, the log to write to, and the servers."""

    def __init__(self, nats: EmbeddedNats, system: Connection, http: httpx.AsyncClient, gate: Gate) -> None:
        self.nats = nats
        self.system = system
        self.http = http
        self.gate = gate
        self.log = JetStreamLog(system)
        self._head = Position(0)
        self.epoch = NodeEpoch(0)
        self.projector: asyncio.Task[None] | None = None  # that keeps the tables up

    def open_reader(self) -> WireReader:
        """A reader of the log over a connection of its own, with the rights of the API."""
        return reader_of(self.nats)

    async def decide(self, *events: Event) -> Position:
        """The control plane's events are in the log; its position."""
        if not self._head:
            first = await self.log.first("head")
            assert first is not None
            self._head = first.position
        record = LeadershipTaken(at=CLOCK.now(), instance="test", version="1")
        position = await self.log.append([record, *events], after=self._head)
        self._head = Position(position - len(events))
        return position

    async def join(self) -> Position:
        """The node has two free GPUs."""
        gpus = (GpuUuid("GPU-1"), GpuUuid("GPU-2"))
        joined = NodeJoined(
            at=CLOCK.now(), node_id=NODE, boot_id="b", instance="i", gpu_type="h100", gpu_uuids=gpus,
            address="127.0.0.1", port_base=20_000, labels={"rack": "r1"},
        )  # fmt: skip
        self.epoch = NodeEpoch(await self.log.record([joined]))
        clean = GpusFoundClean(at=CLOCK.now(), node_id=NODE, node_epoch=self.epoch, gpu_uuids=gpus)
        return await self.log.record([clean])

    async def run(self, job_id: JobId, team: TeamId = TEAM) -> Position:
        """The job runs on the node."""
        run_id, at = RunId(f"{job_id}-1"), CLOCK.now()
        share = NodeShare(node_id=NODE, node_epoch=self.epoch, slots=SlotMask(3))
        return await self.decide(
            JobAdmitted(at=at, team=team, job_id=job_id),
            JobPlaced(at=at, team=team, job_id=job_id, run_id=run_id, attempt=1, shares=(share,)),
            RunStarted(at=at, team=team, job_id=job_id, run_id=run_id),
        )

    async def succeed(self, job_id: JobId, team: TeamId = TEAM) -> Position:
        """The job has succeeded."""
        return await self.decide(JobSucceeded(at=CLOCK.now(), team=team, job_id=job_id, run_id=RunId(f"{job_id}-1")))

    async def fail(self, job_id: JobId, team: TeamId = TEAM) -> Position:
        """The job has failed."""
        run_id, cause = RunId(f"{job_id}-1"), StopCause.RANK_FAILED
        failed = JobFailed(
            at=CLOCK.now(), team=team, job_id=job_id, run_id=run_id, cause=cause, exit_code=3, node_id=NODE
        )
        return await self.decide(failed)

    async def submit(self, key: str = "", **changed: Any) -> dict[str, Any]:
        """The answer to a submission that is accepted."""
        response = await self.http.post("/v1/jobs", json={"key": key, "spec": SPEC | changed})
        assert response.status_code == 201, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def get(self, path: str, **params: Any) -> dict[str, Any]:
        """The document at a path."""
        response = await self.http.get(path, params=params)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def print(self, job_id: str, rank: int, *pieces: tuple[int, bytes]) -> None:
        """An agent has shipped pieces of a rank's output, each with the offset that it says."""
        subject = SUBJECTS.log(NODE, JobId(job_id), RunId(f"{job_id}-1"), rank)
        for offset, piece in pieces:
            await self.system.request(subject, piece, headers={"Muster-Offset": str(offset)})


def reader_of(nats: EmbeddedNats) -> WireReader:
    """A reader over a connection of its own."""
    login = nats.login("gate")
    return WireReader(login.urls, user=login.user, password=login.password, inbox_prefix=login.inbox_prefix)


async def reconciled(log: Reader, pool: Pool) -> bytes:
    """What was compared, in this process."""
    return msgspec.json.encode(document(await reconcile(log, pool)))


@asynccontextmanager
async def open_cell(nats: EmbeddedNats, system: Connection, dsn: str) -> AsyncIterator[Cell]:
    """A founded cell: log, projector, gate and API, each with the rights of its own user."""
    await found(system, StreamSettings())
    async with AsyncExitStack() as stack:
        connection = await connect(nats.login("gate"), name="api")
        stack.push_async_callback(connection.close)
        reading = await connect(nats.login("reader"), name="projector")
        stack.push_async_callback(reading.close)
        pool, projecting = await create_pool(dsn, name="api"), await create_pool(dsn, name="projector")
        stack.callback(pool.terminate)
        stack.callback(projecting.terminate)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        projector = group.create_task(project(JetStreamLog(reading), projecting, Progress()))
        stack.callback(projector.cancel)
        log = JetStreamLog(connection)
        gate = await stack.enter_async_context(open_gate(log, CLOCK))
        parts = Parts(
            gate=gate,
            log=log,
            pool=pool,
            connection=connection,
            subjects=SUBJECTS,
            clock=CLOCK,
            open_reader=lambda: reader_of(nats),
            webhooks_allow=(ip_network("127.0.0.0/8"),),
            reconcile=lambda: reconciled(log, pool),
        )
        url = await stack.enter_async_context(open_api(parts, host="127.0.0.1", port=0))
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=20.0))
        cell = Cell(nats, system, http, gate)
        cell.projector = projector
        yield cell
