"""`muster up`: a whole cluster in one data directory, its processes kept running until Ctrl-C, going on where it was."""

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from events.base import NodeId, TeamId
from events.log.streams import StreamSettings
from runtime.children import FolderLock, log_tail
from runtime.embedded.credentials import FILE as CREDENTIALS
from runtime.embedded.nats import EmbeddedNats
from runtime.embedded.nats_config import SYSTEM_USER
from runtime.embedded.ports import RememberedPorts, is_free
from runtime.embedded.postgres import EmbeddedPostgres
from runtime.embedded.principals import inbox_prefix, team_user
from runtime.fault import Fault
from runtime.logging import configure, get_logger
from runtime.stopping import Stop, run_until_stopped, stop_on_signals
from runtime.supervise import Change, Notice, Program, Supervisor
from services.main.found import fit_servers, found_log, migrate, set_lost_after
from services.main.local import CLOCK, Running, forget, write_running
from services.main.parts import first_of

logger = get_logger(__name__)

PORT_DEFAULT: Final = 8080
READY_WITHIN_S: Final = 60.0
READY_EVERY_S: Final = 0.1
NODES_WITHIN_S: Final = 20.0  # after that: without those that have not joined the cluster is still of use
SERVER_STARTS_MAX: Final = 5  # in a row, of a server that keeps dying
SERVER_TRIES: Final = 4  # to start one
SERVER_PAUSE_S: Final = 1.0  # between them
SOUND_AFTER_S: Final = 30.0  # having lived this long, a server's next death is a first one again
DEATHS_MAX: Final = 4  # of one program before all is ready: the first may find a server that is restarting
AGENT_GRACE_S: Final = 10.0
GPU_TYPE: Final = "h100"

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What `muster up` was asked for."""

    data_dir: Path
    nodes: int = 4  # simulated
    gpus_per_node: int = 8
    racks: int = 0  # of the simulated nodes: each of them a block of neighbours; 0: nobody says
    spines: int = 0  # of the racks, likewise
    host: str = "127.0.0.1"
    port: int | None = None  # None: 8080, or a free one where that is taken; 0: a free one
    teams: tuple[str, ...] = ()  # that may connect to NATS themselves
    lost_after_s: float | None = None  # silence of a lost node, suspect after a third of it; None: as the log says

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        """The names of the simulated nodes."""
        return tuple(NodeId(f"node-{n}") for n in range(1, self.nodes + 1))

    def place(self, node_id: NodeId) -> dict[str, str]:
        """Where a simulated node stands, as settings of its agent. As many nodes a rack as it takes, then the next."""
        racks, spines = min(self.racks, self.nodes), min(self.spines, self.racks, self.nodes)
        rack = self.node_ids.index(node_id) * racks // self.nodes
        said = {"MUSTER_RACK": f"rack-{rack + 1}"} if racks else {}
        return said | ({"MUSTER_SPINE": f"spine-{rack * spines // racks + 1}"} if racks and spines else {})


def run_up(plan: Plan) -> int:
    """The exit code of `muster up`, once it was told to stop. Raises `Fault`."""
    configure(process="up", level="warning")
    return asyncio.run(_up(plan))


async def _up(plan: Plan) -> int:
    with stop_on_signals() as stop:
        try:
            await Up(plan, say, stop).run()
        except* Fault as faults:
            raise first_of(faults) from None
    return 1 if stop.failed else 0


def say(line: str) -> None:
    """The line is on stdout."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Up:
    """A cluster in a data directory: servers and processes of ours, each brought back when it dies."""

    def __init__(self, plan: Plan, tell: Tell, stop: Stop) -> None:
        self._plan = plan
        self._tell = tell
        self._stop = stop
        self._nats = EmbeddedNats(plan.data_dir, agents=plan.node_ids, teams=[TeamId(team) for team in plan.teams])
        self._postgres = EmbeddedPostgres(plan.data_dir)
        self._url = ""
        self._ready = False
        self._policy_said = False
        self._deaths = Counter[str]()  # of each program, before all was ready

    async def run(self) -> None:
        """The cluster ran until the stop; nothing of it is left but ranks of jobs. Raises `Fault`."""
        plan, stop = self._plan, self._stop
        lock = FolderLock(plan.data_dir)
        lock.take()
        try:
            port = self._choose_port()
            self._tell(
                f"starting a cluster: NATS, PostgreSQL, the control plane, {self._nodes()}; data in {plan.data_dir}"
            )
            self._url = f"http://{'127.0.0.1' if plan.host == '0.0.0.0' else plan.host}:{port}"  # noqa: S104
            async with AsyncExitStack() as servers:
                await self._start_servers(servers)
                supervisor = Supervisor(
                    self._programs(port), logs=plan.data_dir / "logs", clock=CLOCK, tell=self._noticed
                )
                if not stop.requested:
                    await self._run_programs(supervisor)
        finally:
            lock.give_back()
        self._say_stopped()

    async def _run_programs(self, supervisor: Supervisor) -> None:
        """All programs ran until the stop; meanwhile servers that died were brought back, and the API was announced."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(supervisor.run(self._stop))
                await run_until_stopped(
                    self._stop,
                    self._keep("NATS", self._nats.wait, self._nats.stop, self._start_nats),
                    self._keep("PostgreSQL", self._postgres.wait, self._postgres.stop, self._start_postgres),
                    self._announce(),
                )
        finally:
            forget(self._plan.data_dir)

    def _choose_port(self) -> int:
        """Where the API will listen: as asked, or a free one, which stays the same from start to start."""
        plan = self._plan
        if plan.port is None and is_free(PORT_DEFAULT):
            return PORT_DEFAULT
        if plan.port is None:
            self._tell(f"port {PORT_DEFAULT} is taken: the API gets another one")
        elif plan.port and not is_free(plan.port):
            raise Fault("port_taken", f"Port {plan.port} is taken.", "Stop what listens there, or use --port 0.")
        return plan.port or RememberedPorts(plan.data_dir).choose("api")

    async def _start_servers(self, servers: AsyncExitStack) -> None:
        """NATS and PostgreSQL run, with the log founded and the tables migrated; `servers` stops them."""
        servers.push_async_callback(self._postgres.stop)
        servers.push_async_callback(self._nats.stop)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._start_nats())
            group.create_task(self._start_postgres())

    async def _start_nats(self) -> None:
        """NATS runs with every stream: heartbeats are kept in memory, and their stream ends with the server."""
        await self._nats.start()
        await fit_servers(self._nats.login(SYSTEM_USER))
        await found_log(self._nats.login("system"), StreamSettings())
        if self._plan.lost_after_s is not None and not self._policy_said:
            await set_lost_after(self._nats.login("gate"), self._plan.lost_after_s)
            self._policy_said = True  # NATS may be brought back later: by then an operator may have said otherwise

    async def _start_postgres(self) -> None:
        """PostgreSQL runs with its tables. After a crash it may at first take an earlier life of its own for alive."""
        for last in (False,) * (SERVER_TRIES - 1) + (True,):
            try:
                await self._postgres.start()
                break
            except Fault:
                if last:
                    raise
                await asyncio.sleep(SERVER_PAUSE_S)
        await migrate(self._postgres.dsn)

    def _programs(self, port: int) -> list[Program]:
        """As few processes as use two cores well: deciding, everything in front of it, and one agent a node."""
        plan = self._plan
        shared = {
            "MUSTER_POSTGRES_DSN": self._postgres.dsn,
            "MUSTER_DATA_DIR": str(plan.data_dir),
            "MUSTER_HOST": plan.host,
            "MUSTER_PORT": str(port),
        }
        return [
            Program(name="control", argv=_part("control", "dispatcher"), env=shared | self._login("control")),
            Program(name="front", argv=_part("gate", "api", "projector", "webhooks"), env=shared | self._login("gate")),
            *(self._agent(node_id) for node_id in plan.node_ids),
        ]

    def _agent(self, node_id: NodeId) -> Program:
        env = {
            "MUSTER_NODE_ID": node_id,
            "MUSTER_GPUS": f"simulated:{self._plan.gpus_per_node}:{GPU_TYPE}",
            "MUSTER_ADDRESS": "127.0.0.1",
            "MUSTER_HEARTBEAT_EVERY_S": "2",
            "MUSTER_GPUS_EVERY_S": "1",  # simulated ones answer at once, and what is injected is waited for
            "MUSTER_REREAD_EVERY_S": "1",  # on one machine a look costs nothing, and a hint may come before its value
            "MUSTER_DATA_DIR": str(self._plan.data_dir / "nodes" / node_id),
        }
        env |= self._plan.place(node_id)
        if self._plan.lost_after_s is not None:
            env["MUSTER_LOST_AFTER_S"] = str(self._plan.lost_after_s)
        argv = (sys.executable, "-I", "-m", "agent")
        return Program(name=node_id, argv=argv, env=env | self._login(f"agent-{node_id}"), grace_s=AGENT_GRACE_S)

    def _login(self, user: str) -> dict[str, str]:
        login = self._nats.login(user)
        return {
            "MUSTER_NATS_URLS": ",".join(login.urls),
            "MUSTER_NATS_USER": login.user,
            "MUSTER_NATS_PASSWORD": login.password,
        }

    async def _keep(
        self,
        name: str,
        wait: Callable[[], Awaitable[int]],
        stop: Callable[[], Awaitable[None]],
        start: Callable[[], Awaitable[None]],
    ) -> None:
        """Never returns: the server is brought back each time it dies. Raises `Fault` when it does not come back."""
        deaths = 0
        while True:
            began_s = CLOCK.monotonic()
            code = await wait()
            deaths = 1 if CLOCK.monotonic() - began_s > SOUND_AFTER_S else deaths + 1
            self._tell(f"{name} died ({_how(code)}): starting it again")
            if deaths > SERVER_STARTS_MAX:
                raise Fault("server_dies", f"{name} died {deaths} times in a row.", f"See {self._plan.data_dir}/logs.")
            await stop()
            await start()

    async def _announce(self) -> None:
        """Commands find the API, and the user is told where it is, once it is ready."""
        within_s = CLOCK.monotonic() + READY_WITHIN_S
        async with httpx.AsyncClient(base_url=self._url, timeout=2.0, trust_env=False) as client:
            while not await _ready(client):
                if CLOCK.monotonic() > within_s:
                    self._tell(
                        f"muster: the API is not ready after {READY_WITHIN_S:g} s; see {self._plan.data_dir}/logs"
                    )
                    self._stop.fail("not_ready")
                    return
                await asyncio.sleep(READY_EVERY_S)
            missing = await self._missing_nodes(client)
        plan, self._ready = self._plan, True
        write_running(plan.data_dir, Running(self._url, self._nats.url, self._postgres.dsn))
        self._tell(f"API   {self._url}   docs {self._url}/docs   logs {plan.data_dir}/logs")
        for node_id in missing:
            self._tell(f"{node_id} has not joined; its log is {plan.data_dir}/logs/{node_id}.log")
        for team in map(TeamId, plan.teams):
            user = team_user(team)
            password = f"its password is in {plan.data_dir / CREDENTIALS}"
            self._tell(f"team {team}: NATS {self._nats.url} as {user}, inbox prefix {inbox_prefix(user)}, {password}")
        stays = "Ctrl-C ends the cluster, running jobs live on and are adopted by the next start"
        self._tell(f"ready: {self._nodes(without=len(missing))}; {stays}")

    def _nodes(self, *, without: int = 0) -> str:
        nodes, gpus = self._plan.nodes - without, self._plan.gpus_per_node
        return f"{nodes} simulated nodes with {gpus} GPUs each" if nodes else "no nodes"

    async def _missing_nodes(self, client: httpx.AsyncClient) -> list[NodeId]:
        """None, once every node's GPUs are in the pool or in use; else those that are not when time is up.

        They are waited for: a job that is submitted before they are there waits for no reason that its user could know.
        """
        within_s = CLOCK.monotonic() + NODES_WITHIN_S
        while True:
            try:
                nodes = (await client.get("/v1/nodes")).json()["nodes"]
            except (httpx.TransportError, ValueError, KeyError):
                nodes = []
            ready = {str(node["node_id"]) for node in nodes if is_there(node)}
            missing = [node_id for node_id in self._plan.node_ids if node_id not in ready]
            if not missing or CLOCK.monotonic() > within_s:
                return missing
            await asyncio.sleep(READY_EVERY_S)

    def _noticed(self, notice: Notice) -> None:
        if notice.change is not Change.DIED or notice.exit_code is None:
            return
        log = self._plan.data_dir / "logs" / f"{notice.name}.log"
        self._deaths[notice.name] += not self._ready
        if self._deaths[notice.name] > DEATHS_MAX:
            self._tell(f"{notice.name} died ({_how(notice.exit_code)}), and does so at every start; from {log}:")
            self._tell(log_tail(log))
            self._stop.fail("does_not_start")
        else:
            self._tell(f"{notice.name} died ({_how(notice.exit_code)}): starting it again; its log is {log}")

    def _say_stopped(self) -> None:
        self._tell("stopped: processes of running jobs live on until the next start; cancel jobs first to end them")


def _part(*names: str) -> Sequence[str]:
    return (sys.executable, "-I", "-m", "services.cli", "serve", *names)


def _how(exit_code: int) -> str:
    return f"signal {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit code {exit_code}"


def is_there(node: dict[str, Any]) -> bool:
    """Whether there is nothing to wait for: its GPUs are in the pool, or out by a verdict; or it is gone for good."""
    retired = node["standing"] == "retired"
    return retired or (node["state"] == "up" and bool(node["gpus_out"] <= node["gpus_sick"]))


async def _ready(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/readyz")).is_success
    except httpx.TransportError:
        return False
