"""The agent under test on its machine: its records on a real disk, its link over the simulated way."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, Protocol

import msgspec

from agent.link import Dial, Hear
from agent.machine import Life
from agent.node import Node, identified
from agent.records import Description, Records
from agent.service import Agent, Timing
from events.ask import Answer, Report
from events.base import NodeId
from events.desired import DesiredShare, Heartbeat
from events.subjects import Subjects
from runtime.fault import Fault
from tests.sim.clock import SimClock
from tests.sim.machine import Machine, SimGpus, SimProcesses
from tests.sim.network import Silence
from tests.sim.store import Store

ANSWER_S: Final = 5.0
ALIVE_S: Final = 2.0
UNSYNCED: Final = ("as_of", "contact", "runs/*/stop.json", "runs/*/told", "runs/*/saved", "runs/*/shipped.json")


class Place(NamedTuple):
    """See `agent.reports.Place`."""

    address: str
    version: str


class Servers(Protocol):
    """Who answers an agent, wherever they are."""

    async def report(self, node_id: NodeId, payload: bytes) -> Answer:
        """What some gate says. Raises `Silence` where there is none."""
        ...

    def beat(self, who: str, pulse: Heartbeat) -> None:
        """A beat has reached the servers, and is on its way to all who listen."""
        ...


class SimLink:
    """See `agent.link.Link`."""

    def __init__(self, host: "Host", lost: asyncio.Event) -> None:
        self._host = host
        self._lost = lost
        self._pulse: Heartbeat | None = None  # that was sent last

    @property
    def reconnects(self) -> int:
        """As there."""
        return self._host.reconnects

    async def lost(self) -> None:
        """As there."""
        await self._lost.wait()

    async def alive(self) -> bool:
        """As there. What was sent before goes the same way: with an answer, it has arrived."""
        pulse, self._pulse = self._pulse, None

        async def pong() -> bool:
            if pulse is not None:
                self._host.servers.beat(self._host.name, pulse)
            return True

        return await self._call(pong, ALIVE_S) or False

    async def beat(self, pulse: Heartbeat) -> None:
        """As there."""
        self._pulse = msgspec.json.decode(msgspec.json.encode(pulse), type=Heartbeat)

    async def desired(self) -> bytes | None:
        """As there."""

        async def read() -> bytes:
            return self._host.store.replica(self._host.subject)

        return await self._call(read, ANSWER_S)

    async def tell(self, report: Report) -> Answer | None:
        """As there."""
        payload = msgspec.json.encode(report)
        return await self._call(lambda: self._host.servers.report(self._host.node_id, payload), ANSWER_S)

    async def ship(self, share: DesiredShare, rank: int, offset: int, data: bytes) -> bool:
        """As there."""
        del share, rank, offset, data

        async def keep() -> bool:
            return True

        return await self._call(keep, ANSWER_S) or False

    async def _call(self, work: Callable[[], Awaitable[object]], within_s: float) -> object:
        try:
            return await self._host.store.network.call(self._host.name, work, within_s=within_s)
        except Silence:
            return None


class Host:
    """A node: its machine, its disk, and the lives of its agent."""

    def __init__(self, store: Store, servers: Servers, machine: Machine, random: Random, disk: Path) -> None:
        self.name = f"agent-{machine.node_id}"
        self.node_id = machine.node_id
        self.store = store
        self.servers = servers
        self.machine = machine
        self.clock = SimClock(store.loop)
        self.process = store.loop.process(self.name)
        self.subject = Subjects("main").desired(machine.node_id)
        self.description = Description()
        self.timing = Timing()
        self.reconnects = 0
        self.retired = False
        self.forgetful = False  # its disk was lost, and with it who it was
        self.hear: Callable[[bytes], None] = lambda _payload: None
        self._disk = disk
        self._random = random
        self._lives = 0
        self._lost = asyncio.Event()

    def start(self) -> None:
        """A new life of the agent, if its machine runs."""
        if self.machine.up:
            self._lives += 1
            self.clock = SimClock(self.store.loop, since_s=self.machine.booted_s, ahead_s=self.clock.ahead_s)
            self.process = self.store.loop.process(self.name)
            self.process.start(self._run())

    @property
    def steady_s(self) -> float:
        """For how long the agent has run without a crash or a pause."""
        return self.store.loop.time() - self.process.since_s if self.process.running and self.machine.up else 0.0

    def lose_unsynced(self) -> None:
        """What was not written out when the power went is not there, or is as old as it likes to be."""
        for pattern in UNSYNCED:
            for path in sorted(self._disk.glob(pattern)):
                if self._random.random() < 0.5:
                    path.unlink()

    def lose_disk(self) -> None:
        """A new disk."""
        shutil.rmtree(self._disk)
        self.forgetful = True

    def lose_link(self) -> None:
        """The client gives the connection up for good."""
        self._lost.set()

    async def _run(self) -> None:
        records = Records(self._disk)
        gpus = SimGpus(self.machine)
        life = Life(self.machine.boot_id, f"{self.node_id}-i{self._lives}")
        identity = identified(records, self.node_id, gpus, lambda: 20_000, life)
        processes = SimProcesses(self.machine, self.process)
        node = Node(records, identity, gpus, processes, clock=self.clock)
        node.description = self.description
        place = Place("127.0.0.1", "sim")
        await Agent(node, place, clock=self.clock, timing=self.timing).run(self._dial())

    def _dial(self) -> Dial:
        @asynccontextmanager
        async def dial(hear: Hear) -> AsyncIterator[SimLink]:
            async def welcome() -> None:
                return None

            try:
                await self.store.network.call(self.name, welcome, within_s=ANSWER_S)
            except Silence:
                raise Fault("nats_unreachable", "No server answers.", "") from None
            process = self.process
            self.hear = lambda payload: process.post(hear, payload)
            self._lost = asyncio.Event()
            try:
                yield SimLink(self, self._lost)
            finally:
                self.hear = lambda _payload: None

        return dial
