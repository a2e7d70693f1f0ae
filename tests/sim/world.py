"""A cluster in a bottle: machines with agents, planes, gates, servers and users, made from a seed."""

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from agent.records import Description
from agent.service import Timing
from events.ask import Answer
from events.base import START, NodeId, Recorded, TeamId
from events.desired import Heartbeat
from events.head import LogFounded
from events.job import JobPlaced
from events.node import NodeJoined
from tests.sim.checker import Checker
from tests.sim.host import Host
from tests.sim.loop import Process, State, VirtualLoop
from tests.sim.machine import Machine, Plan
from tests.sim.network import Network, Silence
from tests.sim.parts import Apart, GatePart, Leases, Plane
from tests.sim.store import Store
from tests.sim.trace import Trace
from tests.sim.users import ACCOUNTS, TEAMS, Users

JOINS: Final = b"musterbook.node.joined"
CLEAN: Final = b"musterbook.node.gpus_found_clean"
RELEASED: Final = b"musterbook.node.gpus_released"
SUSPECT_S: Final = 4.0
LOST_S: Final = 12.0


class World:
    """Everything there is, and who may speak to whom."""

    def __init__(self, seed: int, disk: Path) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.loop = VirtualLoop(Random(self.random.random()))
        self.trace = Trace(self.loop)
        self.loop.failed = self._failed
        self.network = Network(self.loop, Random(self.random.random()))
        self.store = Store(self.loop, self.network, Random(self.random.random()))
        self.plans: dict[str, Plan] = {}
        self.machines: dict[NodeId, Machine] = {}
        self.checker = Checker(self.trace, self.machines)
        self.store.read = self._read
        self.store.decides = self.checker.decides
        self.store.wrote = self.checker.wrote
        self.store.sent = self._hint
        self.leases = Leases(self.loop)
        self.each = self.random.choice((2, 4, 4, 8))
        self.planes = [Plane(self.store, self.leases, self.random, f"plane-{n}") for n in range(self._some(2, 3))]
        self.gates = [GatePart(self.store, f"gate-{n}") for n in range(self._some(1, 2))]
        self.aparts = [Apart(self.store, "dispatcher")] if self.random.random() < 0.3 else []
        self.checker.steady = self._steady
        self.hosts = [self._host(number, disk) for number in range(self._some(3, 6))]
        self.reports: deque[tuple[NodeId, bytes]] = deque(maxlen=100)  # the last that gates were sent
        self.echoes = False  # whether reports come once more just when they hurt most
        self.users = Users(self.store, self, self.trace, self.random, self.plans)

    @property
    def gpus(self) -> int:
        """Of the whole cluster."""
        return sum(len(machine.uuids) for machine in self.machines.values())

    def begin(self) -> None:
        """The log is founded, all parts start, operators set their documents."""

        async def found() -> None:
            event = LogFounded(at=self.store.clock.now(), log_id=f"sim-{self.seed}", cell="main")
            await self.store.memory.append([event], after=START)
            self.store.look()

        self.loop.run_until_complete(found())
        for part in (*self.planes, *self.gates, *self.aparts, *self.hosts):
            part.start()
        self.users.operate("set_policy", document=self.policy(), replaces=None)
        if self.random.random() < 0.6:
            self.users.operate("set_queues", document=self.queues(), replaces=None)
        if self.random.random() < 0.6:
            self.charge()

    def run_until(self, at_s: float) -> None:
        """Everything has happened up to a time, or a law is broken: raises `Broke`."""

        def look() -> None:
            if self.trace.broken is not None or self.loop.time() >= at_s:
                self.loop.stop()
            else:
                self.loop.call_later(min(0.05, max(0.0, at_s - self.loop.time())), look)

        look_now = self.loop.call_soon(look)
        try:
            self.loop.run_forever()
        finally:
            look_now.cancel()
        if self.trace.broken is not None:
            raise self.trace.broken

    # Documents

    def policy(self) -> dict[str, Any]:
        """A policy in which things happen soon."""
        random = self.random
        return {
            "suspect_after": SUSPECT_S,
            "lost_after": LOST_S,
            "lost_most": random.choice((LOST_S, 30.0)),
            "restart": random.choice((0, 5, 60)),
            "silent_percent": random.choice((0, 50)),
            "promises": random.choice((0, 1, 3)),
            "preemption": random.random() < 0.8,
            "min_runtime": random.choice((0, 2)),
            "cool_down": random.choice((0, 10)),
            "evictions_max": random.choice((1, 3)),
            "consolidation": random.choice(("off", "propose", "do")),
            "overrun": random.choice(("kill", "extend")),
            "order": random.choice(("fair", "fair", "fifo")),
            "instalment": random.choice((10, 60)),
            "keep_place": random.choice((0, 10, 60)),
            "avoid": random.choice((0, 30)),
            "start_within": random.choice((20, 60)),
            "breaker_percent": random.choice((20, 50)),
        }

    def queues(self) -> dict[str, Any]:
        """Some tree of the teams."""
        random = self.random
        names = [name for name in TEAMS if random.random() < 0.8]
        return {
            "queues": [{"name": name, "weight": random.choice((1, 2, 5)), **self._bounds(random)} for name in names]
        }

    def charge(self) -> None:
        """Accounts pay for two of the teams."""
        queues = (("red",), ("green",))
        accounts = [{"name": name, "queues": list(of)} for name, of in zip(ACCOUNTS, queues, strict=True)]
        self.users.operate("set_accounts", document={"accounts": accounts}, replaces=None)
        prices = {"gpu_hour": {"*": self.random.choice(("1", "36"))}, "step": self.random.choice((0, 1))}
        self.users.operate("set_prices", document={"lists": [prices]}, replaces=None)
        for name in ACCOUNTS:
            self.users.give(name, self.random.choice(("0.2", "5", "50")))

    def _bounds(self, random: Random) -> dict[str, Any]:
        if random.random() < 0.5:
            return {}
        return {"floor": random.randrange(self.gpus // 2 + 1)}

    # Who speaks to whom

    async def report(self, node_id: NodeId, payload: bytes) -> Answer:
        """See `host.Servers`."""
        self.reports.append((node_id, payload))
        return await self._gate().report(node_id, payload)

    def echo(self, *words: bytes, within_s: float = 0.0) -> None:
        """A report of a while ago, with these words in it, comes once more: reports are true, and come late or twice."""

        async def again() -> None:
            await asyncio.sleep(self.random.uniform(0.0, within_s))
            with suppress(Silence):
                await self._gate().report(*said)

        found = [one for one in self.reports if all(word in one[1] for word in words) and self._may_echo(*one)]
        if found:
            said = self.random.choice(found)
            self.network.background(again())

    def _may_echo(self, node_id: NodeId, payload: bytes) -> bool:
        """An agent whose disk was lost cannot know that a joining was its own, and leaves its node to who came late."""
        return JOINS not in payload or not any(host.node_id == node_id and host.forgetful for host in self.hosts)

    def _read(self, recorded: Recorded) -> None:
        """One more record. What was said of the life or of the attempt before comes now, where things come twice."""
        self.checker.record(recorded)
        match recorded.event:
            case NodeJoined(node_id=node_id) if self.echoes:
                self.echo(CLEAN, f'"{node_id}"'.encode(), within_s=0.01)
            case JobPlaced(job_id=job_id, attempt=attempt) if self.echoes and attempt > 1:
                self.echo(RELEASED, f'"{job_id}-'.encode(), within_s=3.0)

    async def ask(self, team: TeamId, payload: bytes) -> Answer:
        """See `users.Doors`."""
        return await self._gate().ask(team, payload)

    async def operate(self, payload: bytes) -> Answer:
        """See `users.Doors`."""
        return await self._gate().operate(payload)

    def beat(self, who: str, pulse: Heartbeat) -> None:
        """See `host.Servers`."""
        for plane in self.planes:
            if (who, plane.name) not in self.network.apart:
                deliver = partial(self._beats, plane, plane.process, pulse)
                self.network.pass_on(plane.name, deliver)

    def _beats(self, plane: Plane, process: Process, pulse: Heartbeat) -> None:
        """A beat comes to the process that it was sent to."""
        if process.state is not State.DEAD:
            self.checker.heard.beat(plane.name, pulse)
            process.post(plane.heard, pulse)

    def _gate(self) -> GatePart:
        gates = [gate for gate in self.gates if gate.open and self.network.reaches(gate.name)]
        if not gates:
            raise Silence
        return self.random.choice(gates)

    def _hint(self, subject: str, payload: bytes) -> None:
        for host in self.hosts:
            if host.subject == subject:
                self.network.send("servers", host.name, lambda host=host: host.hear(payload))

    def _host(self, number: int, disk: Path) -> Host:
        node_id = NodeId(f"n{number}")
        machine = Machine(self.loop, self.random, node_id, self.each, self.plans)
        machine.started = self.checker.starts
        self.machines[node_id] = machine
        host = Host(self.store, self, machine, self.random, disk / node_id)
        host.timing = Timing(heartbeat_every_s=1.0, reread_every_s=5.0, gpus_every_s=1.0, lost_after_s=LOST_S)
        host.description = Description(labels={"rack": f"r{number % 2}", "spine": "s"})
        return host

    def _steady(self, node_id: NodeId) -> float:
        return next((host.steady_s for host in self.hosts if host.node_id == node_id), 0.0)

    def _some(self, least: int, most: int) -> int:
        return self.random.randint(least, most)

    def _failed(self, what: str, error: BaseException | None) -> None:
        place = _place_of(error)
        self.trace.broke("no process ends of itself", f"{what}: {error!r} {place}")


def _place_of(error: BaseException | None) -> str:
    """Where the innermost of an error's exceptions was raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    place, trace = "", error.__traceback__ if error else None
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f"at {Path(code.co_filename).name}:{trace.tb_lineno} in {code.co_name}: {error!r}"
        trace = trace.tb_next
    return place
