"""Agents under test: in this process, or in one of their own that can be killed. No process outlives a test."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent import procfs
from agent.environment import DATA_MARK
from agent.processes import kill
from agent.start import serve
from events.base import NodeId
from runtime.embedded.nats import EmbeddedNats
from runtime.nats import Connection
from tests.agent.control import NODE, Control, control_of, settings_of
from tests.fixtures.waiting import until


class Agents:
    """Starts and ends agents of one server."""

    def __init__(self, server: EmbeddedNats, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.tasks: list[asyncio.Task[None]] = []
        self.children: list[asyncio.subprocess.Process] = []

    def data_dir(self, node_id: NodeId = NODE) -> Path:
        """Where the agent of a node keeps its things."""
        return self.folder / "agents" / node_id

    def start(self, data_dir: Path | None = None, *, contain: bool = True, **fields: object) -> asyncio.Task[None]:
        """An agent in this process."""
        settings = settings_of(self.server, data_dir or self.data_dir(), **fields)
        environ = {"PATH": os.environ["PATH"], "HOME": "/root", "MUSTER_NATS_PASSWORD": "secret", "PYTHONPATH": "/x"}
        self.tasks.append(asyncio.create_task(serve(settings, environ=environ, contain=contain)))
        return self.tasks[-1]

    async def stop(self, task: asyncio.Task[None]) -> None:
        """It has ended; its ranks live on."""
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def start_apart(self, **fields: object) -> asyncio.subprocess.Process:
        """An agent in a process of its own."""
        settings = settings_of(self.server, self.data_dir(), **fields)
        named = {"node_id", "data_dir", "gpus", "heartbeat_every_s", "reread_every_s", "gpus_every_s"}
        values = settings.model_dump(include=named)
        values |= {"nats_urls": self.server.url, "nats_user": settings.login.user}
        values |= {"nats_password": settings.login.password, "lost_after_s": settings.lost_after_s}
        env = {f"MUSTER_{name.upper()}": str(value) for name, value in values.items()}
        path = {"PATH": os.environ["PATH"]}
        child = await asyncio.create_subprocess_exec(sys.executable, "-I", "-m", "agent", env=env | path)
        self.children.append(child)
        return child

    def processes(self) -> list[int]:
        """Ranks, their supervisors and all that they started."""
        marks = [f"{DATA_MARK}={path}".encode() for path in (self.folder / "agents").iterdir()]
        return [pid for mark in marks for pid, _ in procfs.marked(mark)]

    async def end(self) -> None:
        """No agent runs, and nothing that one started is left: each test has ended what it began."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for child in self.children:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
        left = self.processes()
        kill(left)
        await until(lambda: not self.processes(), what="all processes ended")
        assert left == []


@pytest.fixture
async def agents(nats_server: EmbeddedNats, tmp_path: Path) -> AsyncIterator[Agents]:
    """Agents of `nats_server`; see `Agents`."""
    (tmp_path / "agents").mkdir()
    agents = Agents(nats_server, tmp_path)
    yield agents
    await agents.end()


@pytest.fixture
async def control(nats_connection: Connection) -> AsyncIterator[Control]:
    """What an agent of `NODE` meets."""
    async with control_of(nats_connection) as control:
        yield control
