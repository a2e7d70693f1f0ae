"""The processes of the control plane under test, each with its way to the servers: planes, gates, dispatchers."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, Final

import msgspec

from events.ask import Answer
from events.base import START, NodeId, TeamId
from events.desired import Heartbeat
from events.subjects import Subjects
from projections.cluster.evolve import evolve
from projections.cluster.snapshot import dump, load
from projections.cluster.state import Cluster
from services.control.leader import ControlPlane, Name
from services.dispatcher.service import Dispatcher
from services.gate.gate import Gate, open_gate
from services.gate.serve import answer_ask, answer_operator, answer_report
from tests.sim.clock import SimClock
from tests.sim.loop import State, VirtualLoop
from tests.sim.store import SimLog, SimValues, Store

BEAT_EVERY_S: Final = 0.5
LEASE_S: Final = 4.0
SNAPSHOT: Final = 0.02  # of the stretches leave a snapshot behind


class Leases:
    """Who may think that it should lead. Usually one; a hint may be wrong in any way."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.holder = ""
        self.until_s: dict[str, float] = {}
        self.believers: set[str] = set()  # they hold it, whoever else does

    def held(self, name: str) -> bool:
        """Whether a plane thinks so."""
        return name in self.believers or self._loop.time() < self.until_s.get(name, 0.0)

    def renew(self, name: str) -> None:
        """The holder is well."""
        self.holder = name
        self.until_s[name] = self._loop.time() + LEASE_S

    @property
    def free(self) -> bool:
        """Whether nobody has renewed it in time."""
        return self._loop.time() >= self.until_s.get(self.holder, 0.0)


class SimLease:
    """One plane's view of it."""

    def __init__(self, leases: Leases, name: str) -> None:
        self._leases = leases
        self._name = name

    @property
    def held(self) -> bool:
        """See `services.control.leader.Lease`."""
        return self._leases.held(self._name)


class Plane:
    """A candidate for leading, with its dispatcher."""

    def __init__(self, store: Store, leases: Leases, random: Random, name: str) -> None:
        self.name = name
        self.clock = SimClock(store.loop)
        self.process = store.loop.process(name)
        self.control: ControlPlane | None = None
        self.log = SimLog(store, name)
        self._store = store
        self._leases = leases
        self._random = random
        self._lives = 0
        self._saved = b""

    def start(self) -> None:
        """A new life of it, from its snapshot or from nothing."""
        self._lives += 1
        self.process = self._store.loop.process(self.name)
        self.process.start(self._run())

    def heard(self, pulse: Heartbeat | None) -> None:
        """A beat of a node comes by, or its own (None)."""
        if self.control is not None:
            if pulse is None:
                self.control.silences.heard_own(self.clock.monotonic())
            else:
                self.control.heard(pulse)

    async def _run(self) -> None:
        self.control = None
        founded = self._store.memory.stretch(START, 1)
        log_id = getattr(founded[0].event, "log_id", "") if founded else ""
        cluster = load(self._saved, log_id=log_id) if self._saved and self._random.random() < 0.7 else None
        lease = SimLease(self._leases, self.name)
        name = Name(f"{self.name}-{self._lives}", "sim")
        plane = ControlPlane(self.log, cluster or Cluster(), lease, self.clock, name=name)
        values = SimValues(self._store, self.name)
        active = lambda: plane.leading and not plane.cluster.unread  # noqa: E731 - as in services.main.parts
        dispatching = Dispatcher(values, Subjects("main"), active)  # type: ignore[arg-type]
        self.control = plane
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat())
            group.create_task(dispatching.run())
            group.create_task(self._hold_lease())
            await plane.run(self._save, dispatching.watch)

    def _save(self, cluster: Cluster, _stretch: object) -> None:
        if self._random.random() < SNAPSHOT:
            self._saved = dump(cluster)

    async def _beat(self) -> None:
        while True:
            self._store.network.send(self.name, self.name, lambda: self.process.post(self.heard, None))
            await asyncio.sleep(BEAT_EVERY_S)

    async def _hold_lease(self) -> None:
        while True:
            if self._store.network.reaches(self.name) and (self._leases.free or self._leases.holder == self.name):
                self._leases.renew(self.name)
            await asyncio.sleep(LEASE_S / 5)


class Apart:
    """A dispatcher in a process of its own: always active once it has caught up."""

    def __init__(self, store: Store, name: str) -> None:
        self.name = name
        self.process = store.loop.process(name)
        self._store = store

    def start(self) -> None:
        """A new life of it."""
        self.process = self._store.loop.process(self.name)
        self.process.start(self._run())

    async def _run(self) -> None:
        store = self._store
        log = SimLog(store, self.name)
        founded_end = await store.memory.end()
        cluster, caught_up = Cluster(), False
        values = SimValues(store, self.name)
        dispatching = Dispatcher(values, Subjects("main"), lambda: caught_up)  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as group:
            group.create_task(dispatching.run())
            async for stretch in log.follow(cluster.position):
                for recorded in stretch:
                    cluster = evolve(cluster, recorded)
                caught_up = caught_up or cluster.position >= founded_end
                dispatching.watch(cluster, stretch)


class GatePart:
    """A gate."""

    def __init__(self, store: Store, name: str) -> None:
        self.name = name
        self.clock = SimClock(store.loop)
        self.process = store.loop.process(name)
        self._store = store
        self._gate: Gate | None = None

    def start(self) -> None:
        """A new life of it."""
        self.process = self._store.loop.process(self.name)
        self.process.start(self._run())

    @property
    def open(self) -> bool:
        """Whether requests come to it: one that is paused takes them, and says nothing."""
        return self._gate is not None and self.process.state is not State.DEAD

    async def _run(self) -> None:
        self._gate = None
        async with open_gate(SimLog(self._store, self.name), self.clock) as gate:
            self._gate = gate
            await asyncio.Event().wait()

    async def ask(self, team: TeamId, payload: bytes) -> Answer:
        """What it says to a team."""
        assert self._gate is not None
        return await self._answered(answer_ask(self._gate, team, payload))

    async def operate(self, payload: bytes) -> Answer:
        """What it says to an operator."""
        assert self._gate is not None
        return await self._answered(answer_operator(self._gate, payload))

    async def report(self, node_id: NodeId, payload: bytes) -> Answer:
        """What it says to an agent."""
        assert self._gate is not None
        return await self._answered(answer_report(self._gate, node_id, payload))

    async def _answered(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return DECODE.decode(msgspec.json.encode(await asyncio.shield(self.process.spawn(work))))


DECODE: Final = msgspec.json.Decoder(Answer)  # type: ignore[var-annotated]
