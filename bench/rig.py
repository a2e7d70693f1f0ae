"""The shape of a production cell on one machine: three NATS servers, PostgreSQL, two control planes, two gates, agents.

Every part is a process of its own that may be killed or frozen; whatever dies is started again after a while.
"""

import asyncio
import dataclasses
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import httpx

from events.base import NodeId
from events.log.append import JetStreamLog
from events.log.streams import StreamSettings
from events.policy import PolicySet
from runtime.children import exited
from runtime.clock import SystemClock
from runtime.embedded.nats import EmbeddedNats
from runtime.embedded.nats_cluster import SIZE, NatsCluster
from runtime.embedded.ports import RememberedPorts
from runtime.embedded.postgres import EmbeddedPostgres
from runtime.fault import Fault
from runtime.logging import configure
from runtime.nats import Login, connect
from runtime.stopping import Stop
from runtime.supervise import Notice, Program, Supervisor
from services.main.background import end_leftovers
from services.main.found import found_log, migrate

CLOCK: Final = SystemClock()
GPUS_PER_NODE: Final = 4
CONTROLS: Final = ("control-1", "control-2")
AWAY_S: Final = 2.0  # that a server which was killed stays away
READY_WITHIN_S: Final = 90.0
POLICY: Final = PolicySet(at=CLOCK.now(), suspect_after_s=3.0, lost_after_s=8.0, lost_most_s=8.0)
AGENTS_LOST_AFTER_S: Final = 5.0


class Rig:
    """A running cell, by the names of its processes."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.node_ids = tuple(NodeId(f"node-{number}") for number in range(1, nodes + 1))
        self.nats = NatsCluster(folder, agents=self.node_ids)
        self.postgres = EmbeddedPostgres(folder)
        self.port = RememberedPorts(folder).choose("api")
        self.url = f"http://127.0.0.1:{self.port}"
        self.restarts = 0
        self._stop = Stop()
        self._supervisor = Supervisor([], logs=folder / "logs", clock=CLOCK, tell=self._noticed)

    @property
    def gpus(self) -> int:
        """Of all nodes."""
        return len(self.node_ids) * GPUS_PER_NODE

    def pid(self, name: str) -> int | None:
        """The process of a part; None while it is away."""
        if name == "postgres":
            return self.postgres.pid
        if name.startswith("nats-"):
            return self.server(name).pid
        return self._supervisor.pid(name)

    def server(self, name: str) -> EmbeddedNats:
        """The NATS server of that name."""
        return self.nats.servers[int(name.removeprefix("nats-"))]

    def login(self, user: str) -> dict[str, str]:
        """The settings by which a process connects."""
        login: Login = self.nats.login(user)
        return {
            "MUSTER_NATS_URLS": ",".join(login.urls),
            "MUSTER_NATS_USER": login.user,
            "MUSTER_NATS_PASSWORD": login.password,
            "MUSTER_REPLICAS": str(SIZE),
            "MUSTER_POSTGRES_DSN": self.postgres.dsn,
            "MUSTER_LOG_LEVEL": "warning",
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All of it runs until the block is left; nothing of it is left then."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.nats.start())
                group.create_task(self.postgres.start())
            await found_log(self.nats.login("system"), StreamSettings(replicas=SIZE))
            await migrate(self.postgres.dsn)
            await self._set_policy()
            self._supervisor = Supervisor(self._programs(), logs=self.folder / "logs", clock=CLOCK, tell=self._noticed)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._supervisor.run(self._stop))
                keepers = [group.create_task(self._keep(name)) for name in (*self.servers, "postgres")]
                try:
                    await self._ready()
                    yield
                finally:
                    for keeper in keepers:
                        keeper.cancel()
                    self._stop.request("done")
        finally:
            await self.postgres.stop()
            await self.nats.stop()
            await asyncio.to_thread(end_leftovers, self.folder)

    @property
    def servers(self) -> tuple[str, ...]:
        """The NATS servers, by name."""
        return tuple(f"nats-{number}" for number in range(SIZE))

    async def _set_policy(self) -> None:
        connection = await connect(self.nats.login("gate"), name="rig")
        try:
            await JetStreamLog(connection, source="rig").record([POLICY])
        finally:
            await connection.close()

    def _programs(self) -> list[Program]:
        serve = (sys.executable, "-I", "-m", "services.cli", "serve")
        own: Mapping[str, str] = {"MUSTER_PORT": str(self.port), "MUSTER_RECONCILE_EVERY_S": "0"}

        def program(name: str, user: str, *parts: str) -> Program:
            env = {**self.login(user), **own, "MUSTER_DATA_DIR": str(self.folder / name)}
            return Program(name=name, argv=(*serve, *parts), env=env)

        return [
            *(self._named(program(name, "control", "control", "dispatcher")) for name in CONTROLS),
            program("api", "gate", "api"),
            program("gate", "gate", "gate"),
            program("projector", "reader", "projector"),
            *map(self._agent, self.node_ids),
        ]

    def _named(self, program: Program) -> Program:
        """With an instance that tells which of the control planes it is, and that no other life of it had."""
        shell = 'MUSTER_INSTANCE="$0-$$" exec "$@"'
        return dataclasses.replace(program, argv=("/bin/sh", "-c", shell, program.name, *program.argv))

    def _agent(self, node_id: NodeId) -> Program:
        env = {
            **self.login(f"agent-{node_id}"),
            "MUSTER_NODE_ID": node_id,
            "MUSTER_GPUS": f"simulated:{GPUS_PER_NODE}:h100",
            "MUSTER_ADDRESS": "127.0.0.1",
            "MUSTER_HEARTBEAT_EVERY_S": "1",
            "MUSTER_REREAD_EVERY_S": "2",
            "MUSTER_LOST_AFTER_S": str(AGENTS_LOST_AFTER_S),
            "MUSTER_DATA_DIR": str(self.folder / "nodes" / node_id),
        }
        return Program(name=node_id, argv=(sys.executable, "-I", "-m", "agent"), env=env, grace_s=10.0)

    async def _keep(self, name: str) -> None:
        """Never returns: a server that died comes back after a while, with its data."""
        server = self.postgres if name == "postgres" else self.server(name)
        while True:
            await server.wait()
            await asyncio.sleep(AWAY_S)
            with suppress(Fault):  # it may need another try
                await server.stop(grace_s=0)
                await server.start()
                self.restarts += 1

    async def _ready(self) -> None:
        """Every GPU may be given away."""
        async with httpx.AsyncClient(base_url=self.url, timeout=5.0) as client:
            given_up_s = CLOCK.monotonic() + READY_WITHIN_S
            while await free_gpus(client) != self.gpus:
                if CLOCK.monotonic() > given_up_s:
                    raise Fault("rig_not_ready", "The cell did not start.", f"See {self.folder}/logs.")
                await asyncio.sleep(0.1)

    def _noticed(self, notice: Notice) -> None:
        self.restarts += notice.restart_in_s is not None


async def free_gpus(client: httpx.AsyncClient) -> int:
    """GPUs that may be given away, as the API says; -1 where it says nothing."""
    with suppress(httpx.HTTPError, ValueError, KeyError):
        nodes = (await client.get("/v1/nodes")).json()["nodes"]
        return sum(int(node["gpus_free"]) for node in nodes)
    return -1


async def freeze(pid: int, seconds: float) -> None:
    """The process stood still for so long."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)


async def kill(pid: int) -> None:
    """The process was killed, and is gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        await exited(pid)


def quiet() -> None:
    """Nothing of our own is logged while something is measured."""
    configure(process="bench", level="error")
