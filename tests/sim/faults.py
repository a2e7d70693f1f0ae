"""What befalls a world: each seed draws which faults there are, and how often; at some time they all end.

Swarm testing: a world with few kinds of faults goes deeper into each than one in which everything happens at once.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple

from agent.core.signs import Reading, Xid
from tests.sim.clock import BEGIN
from tests.sim.host import Host
from tests.sim.loop import State
from tests.sim.network import Weather
from tests.sim.parts import Apart, GatePart, Plane
from tests.sim.users import ACCOUNTS
from tests.sim.world import World

Part = Plane | GatePart | Apart | Host

CALM: Final = Weather()
XIDS: Final = (13, 31, 43, 45, 48, 63, 64, 74, 79, 92, 94, 95, 119, 140)


class Kind(NamedTuple):
    """One kind of fault."""

    name: str
    every_s: float  # between two of them, on average, where it is on
    strike: Callable[["Faults"], None]
    chance: float = 0.5  # of being on


class Faults:
    """All of them, for one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random
        self.end_s = self.random.choice((40.0, 60.0, 100.0))
        self.on = [kind for kind in KINDS if self.random.random() < kind.chance]
        self.pace = self.random.choice((0.5, 1.0, 1.0, 2.0))
        self.jobs = self.random.randint(15, 45)
        self.over = False
        self._tasks: list[asyncio.Task[None]] = []

    def __str__(self) -> str:
        return f"until {self.end_s:.0f} s: " + ", ".join(kind.name for kind in self.on)

    def begin(self) -> None:
        """They are under way."""
        loop = self.world.loop
        self._tasks = [loop.create_task(self._kind(kind)) for kind in self.on]
        self.world.echoes = any(kind.name == "echo" for kind in self.on)
        for _ in range(self.jobs):
            loop.call_later(self.random.uniform(1.0, self.end_s * 0.8), self._submit)

    def end(self) -> None:
        """No fault any more; what was broken is mended, what was dead starts again."""
        self.over = True
        world = self.world
        world.trace.note("world", "faults_end")
        for task in self._tasks:
            task.cancel()
        world.network.weather = CALM
        world.network.apart.clear()
        for name in sorted(world.network.cut):
            self.heal(name)
        world.leases.believers.clear()
        world.store.behind_s.clear()
        world.echoes = False
        for host in world.hosts:
            host.machine.mend()
            if not host.machine.up:
                self.power_on(host)
        for plane in world.planes:
            plane.log.lag_s = 0.0
        for part in self.parts():
            part.process.fuse = 0
            if part.process.state is State.PAUSED:
                part.process.resume()
            elif part.process.state is State.DEAD:
                part.start()

    def parts(self) -> list[Part]:
        """Every process."""
        world = self.world
        return [*world.planes, *world.gates, *world.aparts, *world.hosts]

    async def _kind(self, kind: Kind) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(1.0 / (kind.every_s * self.pace)))
            self.world.trace.note("fault", kind.name)
            kind.strike(self)

    def _submit(self) -> None:
        self.world.users.submit(self.world.gpus, self.world.each)

    def after(self, least_s: float, most_s: float, call: Callable[[], None]) -> None:
        """Something happens later, unless faults have ended by then."""

        def due() -> None:
            if not self.over:
                call()

        self.world.loop.call_later(self.random.uniform(least_s, most_s), due)

    # Processes

    def crash(self, part: Part) -> None:
        """It is killed at one of its next steps, and started again some time later."""
        process = part.process
        if not process.running or process.fuse:
            return

        def burnt() -> None:
            self.world.trace.note("fault", "killed", part=part.name)
            process.kill()
            self.after(0.1, self.random.choice((1.0, 10.0, 30.0)), lambda: self._again(part))

        process.burnt, process.fuse = burnt, self.random.randint(1, 60)

    def _again(self, part: Part) -> None:
        if part.process.state is State.DEAD:
            self.world.trace.note("fault", "started", part=part.name)
            part.start()

    def pause(self, part: Part) -> None:
        """It stands still at one of its next steps, for seconds or minutes."""
        process = part.process
        if not process.running or process.fuse:
            return

        def burnt() -> None:
            self.world.trace.note("fault", "paused", part=part.name)
            process.pause()
            self.after(0.1, self.random.choice((1.0, 5.0, 20.0, 60.0)), process.resume)

        process.burnt, process.fuse = burnt, self.random.randint(1, 60)

    def any_part(self) -> Part:
        """Planes the most."""
        return self.random.choice((*self.parts(), *self.world.planes, *self.world.planes))

    def any_host(self) -> Host:
        """One of the nodes."""
        return self.random.choice(self.world.hosts)

    def relapse(self) -> None:
        """An agent is killed, and started again soon, at a server that is behind."""
        host = self.any_host()
        if host.process.running:
            self.world.trace.note("fault", "killed", part=host.name)
            host.process.kill()
            self.world.store.behind_s[host.subject] = self.random.choice((1.0, 5.0, 15.0))
            self.after(0.1, 1.0, lambda: self._again(host))
            self.after(3.0, 15.0, lambda: self.world.store.behind_s.pop(host.subject, None))

    # The network

    def storm(self) -> None:
        """Messages are lost, late and repeated for a while."""
        choice = self.random.choice
        self.world.network.weather = Weather(
            loss=choice((0.0, 0.02, 0.2)),
            late=choice((0.0, 0.3, 0.8)),
            repeated=choice((0.0, 0.1, 0.3)),
            slow=choice((0.0, 0.1, 0.5)),
            slow_s=choice((0.3, 2.0, 6.0)),
        )
        self.after(2.0, 20.0, self._calm)

    def _calm(self) -> None:
        self.world.network.weather = CALM

    def cut(self) -> None:
        """Somebody cannot reach the servers."""
        self._cut(self.any_part().name, 0.5, self.random.choice((3.0, 15.0, 60.0)))

    def isolate(self) -> None:
        """The node with the rank that would live longest is cut off for longer than nodes are waited for."""
        living = [(rank, host) for host in self.world.hosts for rank in host.machine.living]
        if living:
            _, host = max(living, key=lambda one: one[0].born_s + one[1].machine.plan_of(one[0]).runtime_s)
            self._cut(host.name, 20.0, 60.0)

    def _cut(self, name: str, least_s: float, most_s: float) -> None:
        self.world.network.cut.add(name)
        self.world.trace.note("fault", "cut", part=name)
        self.after(least_s, most_s, lambda: self.heal(name))

    def heal(self, name: str) -> None:
        """It reaches them again."""
        self.world.network.cut.discard(name)
        self.world.trace.note("fault", "healed", part=name)
        for host in self.world.hosts:
            if host.name == name:
                host.reconnects += 1

    def outage(self) -> None:
        """Nobody reaches the servers."""
        names = [part.name for part in self.parts()]
        self.world.network.cut.update(names)

        def back() -> None:
            for name in names:
                self.heal(name)

        self.after(0.5, 15.0, back)

    def deaf(self) -> None:
        """The hints of a node do not come to it, or the beats of a plane to itself."""
        host, plane = self.any_host().name, self.random.choice(self.world.planes).name
        pair = self.random.choice((("servers", host), (plane, plane)))
        self.world.network.apart.add(pair)
        self.after(1.0, 40.0, lambda: self.world.network.apart.discard(pair))

    # Control planes

    def believe(self) -> None:
        """A plane takes the lease for its own, whoever has it."""
        name = self.random.choice(self.world.planes).name
        self.world.leases.believers.add(name)
        self.after(0.5, 6.0, lambda: self.world.leases.believers.discard(name))

    def lag(self) -> None:
        """A plane reads late what others write."""
        log = self.random.choice(self.world.planes).log
        log.lag_s = self.random.choice((0.5, 3.0))

        def fresh() -> None:
            log.lag_s = 0.0

        self.after(1.0, 20.0, fresh)

    def skew(self) -> None:
        """A clock is wrong from now on."""
        part = self.random.choice((*self.world.hosts, *self.world.hosts, *self.world.planes, *self.world.gates))
        far = (-3600.0, -30.0, 30.0, 3600.0) if isinstance(part, Host) else (-20.0, -1.0, 1.0, 20.0)
        part.clock.ahead_s = self.random.choice(far)

    # Nodes

    def power_off(self, host: Host) -> None:
        """The machine goes dark, and is on again some time later."""
        if not host.machine.up:
            return
        self.world.trace.note("fault", "power_off", node=host.node_id)
        host.process.kill()
        host.machine.power_off()
        if self.random.random() < 0.5:
            host.lose_unsynced()
        if self.random.random() < 0.05:
            host.lose_disk()
        self.after(1.0, self.random.choice((3.0, 20.0, 60.0)), lambda: self.power_on(host))

    def power_on(self, host: Host) -> None:
        """It has booted, and its agent starts."""
        if not host.machine.up:
            self.world.trace.note("fault", "power_on", node=host.node_id)
            host.machine.power_on()
            host.start()

    def trap(self) -> None:
        """An agent is killed in the middle of its next start of a share."""
        host = self.any_host()

        def killed() -> None:
            self.world.trace.note("fault", "killed_in_a_start", node=host.node_id)
            host.process.kill()
            self.after(0.1, 20.0, lambda: self._again(host))

        host.machine.trap = killed

    def slow(self) -> None:
        """Nothing starts fast on a node."""
        machine = self.any_host().machine
        machine.slow_s = self.random.choice((1.0, 8.0, 40.0))

        def fast() -> None:
            machine.slow_s = 0.0

        self.after(5.0, 40.0, fast)

    def kill_rank(self) -> None:
        """A rank, or what looks after it, is killed from outside."""
        living = [(host, rank) for host in self.world.hosts for rank in host.machine.living]
        if living:
            host, rank = self.random.choice(living)
            match self.random.randrange(3):
                case 0:
                    host.machine.lose_supervisor(rank)
                case 1:
                    host.machine.ends(rank, 137)
                case 2:
                    host.machine.short_of_memory.add(rank.run_id)
                    host.machine.ends(rank, 137)

    def gpu(self) -> None:
        """A GPU shows that something is wrong with it."""
        host = self.any_host()
        machine, uuid = host.machine, self.random.choice(host.machine.uuids)
        before = machine.readings[uuid]
        match self.random.randrange(7):
            case 0 | 1 | 2:
                machine.xids.append(Xid(uuid, self.random.choice(XIDS), "injected"))
            case 3:
                machine.readings[uuid] = Reading(ecc_uncorrectable=(before.ecc_uncorrectable or 0) + 1)
            case 4:
                machine.readings[uuid] = Reading(ecc_uncorrectable=0, remap_pending=True)
            case 5:
                machine.readings[uuid] = Reading(answers=False)
                self.after(3.0, 30.0, lambda: machine.readings.update({uuid: Reading(ecc_uncorrectable=0)}))
            case 6:
                machine.resets_fail = self.random.choice((0, 1, 9))

    # People

    def cancel(self) -> None:
        """A team no longer wants one of its jobs."""
        if self.world.users.jobs:
            self.world.users.cancel(self.random.choice(sorted(self.world.users.jobs)))

    def speak(self) -> None:
        """An operator says something of a node."""
        node_id = self.any_host().node_id
        say = self.world.users.operate
        soon = BEGIN + timedelta(seconds=self.world.loop.time() + self.random.choice((2.0, 10.0, 30.0)))
        later = soon + timedelta(seconds=self.random.choice((5.0, 20.0)))
        match self.random.randrange(7):
            case 0:
                say("cordon", node_ids=[node_id])
            case 1:
                say("uncordon", node_ids=[node_id])
            case 2 | 3:
                say("drain", node_ids=[node_id], reason="simulated", deadline=self._maybe(soon.isoformat()))
            case 4:
                say("undrain", node_ids=[node_id])
            case 5:
                say("maintain", node_ids=[node_id], window="w", starts=soon.isoformat(), ends=later.isoformat())
            case 6:
                say("cancel_maintenance", node_ids=[node_id], window="w")

    def govern(self) -> None:
        """An operator sets a document."""
        world = self.world
        if self.random.random() < 0.7:
            world.users.operate("set_policy", document=world.policy(), replaces=None)
        else:
            world.users.operate("set_queues", document=world.queues(), replaces=None)

    def pay(self) -> None:
        """Credits come and go."""
        self.world.users.give(self.random.choice(ACCOUNTS), self.random.choice(("0.1", "3", "-0.1", "-2")))

    def _maybe(self, value: str) -> str | None:
        return value if self.random.random() < 0.7 else None


KINDS: Final = (
    Kind("storm", 15.0, Faults.storm),
    Kind("cut", 12.0, Faults.cut),
    Kind("isolate", 12.0, Faults.isolate, 0.5),
    Kind("relapse", 10.0, Faults.relapse, 0.4),
    Kind("echo", 1.0, lambda faults: faults.world.echo()),
    Kind("outage", 40.0, Faults.outage, 0.2),
    Kind("deaf", 15.0, Faults.deaf),
    Kind("crash", 6.0, lambda faults: faults.crash(faults.any_part())),
    Kind("pause", 10.0, lambda faults: faults.pause(faults.any_part())),
    Kind("believe", 10.0, Faults.believe),
    Kind("lag", 15.0, Faults.lag),
    Kind("skew", 20.0, Faults.skew, 0.3),
    Kind("power", 25.0, lambda faults: faults.power_off(faults.any_host())),
    Kind("trap", 12.0, Faults.trap),
    Kind("slow", 20.0, Faults.slow),
    Kind("kill_rank", 8.0, Faults.kill_rank),
    Kind("gpu", 10.0, Faults.gpu),
    Kind("link", 20.0, lambda faults: faults.any_host().lose_link(), 0.3),
    Kind("cancel", 8.0, Faults.cancel),
    Kind("speak", 12.0, Faults.speak),
    Kind("govern", 25.0, Faults.govern, 0.3),
    Kind("pay", 12.0, Faults.pay, 0.4),
)
