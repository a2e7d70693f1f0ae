"""Three real NATS servers on loopback that form one cluster: for tests and measurements with three replicas."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import nats.errors

from events.base import NodeId, TeamId
from events.subjects import CELL_DEFAULT
from runtime.embedded.credentials import Credentials
from runtime.embedded.nats import EmbeddedNats
from runtime.embedded.nats_config import Member
from runtime.embedded.ports import RememberedPorts
from runtime.fault import Fault
from runtime.nats import Connection, Login, connect

SIZE: Final = 3
LEADER_WITHIN_S: Final = 20.0
ASK_WITHIN_S: Final = 2.0
LOOK_EVERY_S: Final = 0.05


class NatsCluster:
    """Three servers, each with its data under `data_dir/server-<n>`, n from 0; users and passwords are the same on all."""

    def __init__(
        self,
        data_dir: Path,
        *,
        cell: str = CELL_DEFAULT,
        agents: Collection[NodeId] = (),
        teams: Collection[TeamId] = (),
    ) -> None:
        self._credentials = Credentials(data_dir)
        self._folders = [data_dir / f"server-{number}" for number in range(SIZE)]
        self.servers = [EmbeddedNats(folder, cell=cell, agents=agents, teams=teams) for folder in self._folders]

    def login(self, user: str) -> Login:
        """How `user` connects to whichever of the three is there."""
        logins = [server.login(user) for server in self.servers]
        return Login(urls=tuple(url for login in logins for url in login.urls), user=user, password=logins[0].password)

    async def start(self) -> None:
        """All three answer, and have agreed on a leader."""
        ports: list[int] = []
        for folder in self._folders:
            ports.append(RememberedPorts(folder / "nats").choose("route", avoid=frozenset(ports)))
        passwords = self._credentials.ensure(self.servers[0].users)
        for number, (server, folder) in enumerate(zip(self.servers, self._folders, strict=True)):
            Credentials(folder).adopt(passwords)
            server.join(Member(name=f"server-{number}", cluster="muster", port=ports[number], ports=ports))
        try:
            async with asyncio.TaskGroup() as group:
                for server in self.servers:
                    group.create_task(server.start())
        except BaseException:
            await self.stop(grace_s=0)
            raise

    async def stop(self, grace_s: float = 5.0) -> None:
        """All three have ended."""
        async with asyncio.TaskGroup() as group:
            for server in self.servers:
                group.create_task(server.stop(grace_s))

    def kill(self, number: int) -> None:
        """That server has been sent KILL, as in a crash."""
        self.servers[number].kill()

    async def restart(self, number: int) -> None:
        """That server runs anew, with its data, at its old port."""
        await self.servers[number].stop()
        await self.servers[number].start()

    async def leader(self, stream: str) -> int:
        """The number of the server that leads a stream; waits for an election to end."""
        async with self._asking() as connection:
            return await _led_by(connection, stream)

    async def step_down(self, stream: str) -> int:
        """Another server leads the stream now: its number."""
        async with self._asking() as connection:
            before = await _led_by(connection, stream)
            await _ask(connection, f"STREAM.LEADER.STEPDOWN.{stream}")
            async with asyncio.timeout(LEADER_WITHIN_S):
                while (now := await _led_by(connection, stream)) == before:  # noqa: ASYNC110 - only asking tells
                    await asyncio.sleep(LOOK_EVERY_S)
            return now

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[Connection]:
        connection = await connect(self.login("system"), name="cluster")
        try:
            yield connection
        finally:
            await connection.close()


async def _led_by(connection: Connection, stream: str) -> int:
    with suppress(TimeoutError):
        async with asyncio.timeout(LEADER_WITHIN_S):
            while True:
                with suppress(nats.errors.Error):  # no answer while there is no leader, or while we change servers
                    info = await _ask(connection, f"STREAM.INFO.{stream}")
                    if leader := info.get("cluster", {}).get("leader"):
                        return int(str(leader).rpartition("-")[2])
                await asyncio.sleep(LOOK_EVERY_S)
    raise Fault("no_stream_leader", f"Nobody leads stream {stream}.", "Are two of the three servers running?")


async def _ask(connection: Connection, request: str) -> dict[str, Any]:
    answer = await connection.request(f"$JS.API.{request}", b"", timeout=ASK_WITHIN_S)
    decoded: dict[str, Any] = json.loads(answer.data)
    return decoded
