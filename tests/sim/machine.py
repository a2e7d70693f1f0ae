"""A GPU node as a machine: ranks that live, save, ignore signals, fail and hold GPUs; boots, and what outlives them."""

import asyncio
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from agent.core.found import EXIT_KILLED, LIVING, Phase, Rank, Step
from agent.core.signs import Look, Reading, Xid
from agent.records import RunRecord
from agent.supervise_rank import CANNOT_START
from events.base import GpuUuid, JobId, NodeId, RunId
from tests.sim.loop import Process, VirtualLoop

TERM_CODE: Final = 143
DIED_S: Final = 0.03  # from KILL to the end


class Killed(BaseException):
    """The agent was killed in the middle of what it did."""


@dataclass
class Plan:
    """What a job's ranks do, known to the machines only."""

    runtime_s: float
    fails: int = 0  # attempts that end with an error
    code: int = 0  # of those
    refuses: int = 0  # attempts that cannot be started on one of their nodes
    start_s: float = 0.1  # until a rank is up
    term_s: float = 0.1  # from TERM to its end
    stubborn: bool = False  # it takes no notice of TERM
    unkillable_s: float = 0.0  # so long it lives on after KILL
    saves_every_s: float = 0.0  # 0: it saves nothing
    done_s: float = 0.0  # what the last checkpoint has of it


@dataclass
class RankProcess:
    """One rank, alive or not."""

    pid: int
    run_id: RunId
    job_id: JobId
    attempt: int
    rank: int
    epoch: int
    gpus: tuple[GpuUuid, ...]
    folder: Path
    born_s: float
    phase: Phase = Phase.STARTING
    code: int = 0
    ended_s: float = 0.0
    message: str = ""
    stray: bool = False  # it lives, and its supervisor does not
    signalled: Step = Step.NONE
    watchers: list[Callable[[], None]] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        """Whether its process runs, or may begin to."""
        return self.phase in LIVING or self.stray


class Machine:
    """One node's hardware, kernel and disk."""

    def __init__(self, loop: VirtualLoop, random: Random, node_id: NodeId, gpus: int, plans: dict[str, Plan]) -> None:
        self.loop = loop
        self.random = random
        self.node_id = node_id
        self.uuids = tuple(GpuUuid(f"GPU-{node_id}-{number}") for number in range(gpus))
        self.plans = plans
        self.boot = 1
        self.up = True
        self.booted_s = loop.time()
        self.slow_s = 0.0  # added to whatever is started
        self.ranks: dict[tuple[RunId, int], RankProcess] = {}
        self.held_until_s: dict[GpuUuid, float] = {}  # a GPU is busy a little longer than its process lives
        self.readings = {uuid: Reading(ecc_uncorrectable=0) for uuid in self.uuids}
        self.xids: list[Xid] = []
        self.trap: Callable[[], None] | None = None  # called at the next start of a rank: the agent is killed there
        self.resets_fail = 0
        self.short_of_memory: set[RunId] = set()  # runs of which the kernel killed a rank
        self.started: Callable[[Machine, RankProcess], None] = lambda _machine, _rank: None
        self._pids = 0
        self._context: Context = copy_context()

    @property
    def boot_id(self) -> str:
        """Of the kernel's present life."""
        return f"{self.node_id}-boot-{self.boot}"

    @property
    def living(self) -> list[RankProcess]:
        """All ranks that live, whoever knows of them."""
        return [rank for rank in self.ranks.values() if rank.alive]

    def power_off(self) -> None:
        """The machine is dark: no process lives, and the disk has what was on it."""
        self.up = False
        for rank in self.ranks.values():
            rank.stray = False
            rank.watchers = []
            if rank.phase is Phase.RUNNING:
                rank.phase, rank.code, rank.message = Phase.LOST, EXIT_KILLED, "the supervisor of the rank was ended"
            elif rank.phase is Phase.STARTING:
                rank.phase, rank.code = Phase.ABSENT, CANNOT_START

    def power_on(self) -> None:
        """It has booted anew."""
        self.boot += 1
        self.up = True
        self.booted_s = self.loop.time()
        self.held_until_s = {}
        self.xids = []

    def mend(self) -> None:
        """Nothing is wrong with it any more, but for what has happened."""
        self.slow_s, self.resets_fail, self.trap = 0.0, 0, None
        self.readings = {
            uuid: Reading(ecc_uncorrectable=one.ecc_uncorrectable or 0) for uuid, one in self.readings.items()
        }

    def begin(self, record: RunRecord, rank: int) -> None:
        """A supervisor starts a rank."""
        if self.trap is not None:
            trap, self.trap = self.trap, None
            trap()
            raise Killed
        share = record.start.share
        self._pids += 1
        one = RankProcess(
            pid=self._pids,
            run_id=share.run_id,
            job_id=share.job_id,
            attempt=share.attempt,
            rank=rank,
            epoch=record.start.epoch,
            gpus=share.gpu_uuids,
            folder=record.folder,
            born_s=self.loop.time(),
        )
        self.started(self, one)
        self.ranks[share.run_id, rank] = one
        plan = self.plan_of(one)
        delay_s = self.random.uniform(0.5, 1.5) * plan.start_s + self.slow_s
        self._later(delay_s, self._up, one)

    def plan_of(self, rank: RankProcess) -> Plan:
        """What the rank's job does."""
        return self.plans[rank.job_id]

    def signal(self, rank: RankProcess, step: Step) -> None:
        """The rank is told."""
        if not rank.alive:
            return
        plan = self.plan_of(rank)
        rank.signalled = max(rank.signalled, step)
        match step:
            case Step.CHECKPOINT if plan.saves_every_s and not plan.stubborn:
                self._save(rank)
                self._later(plan.term_s, self._end, rank, 0 if self._done(rank) else TERM_CODE)
            case Step.TERM if not plan.stubborn:
                self._later(plan.term_s, self._end, rank, TERM_CODE)
            case Step.KILL:
                self._later(DIED_S + plan.unkillable_s, self._end, rank, EXIT_KILLED)
            case _:
                pass

    def lose_supervisor(self, rank: RankProcess) -> None:
        """What looks after the rank is killed; the rank lives on."""
        if rank.phase is Phase.RUNNING:
            rank.phase, rank.code, rank.message = Phase.LOST, EXIT_KILLED, "the supervisor of the rank was ended"
            rank.ended_s = self.monotonic()
            rank.stray = True
            self._woken(rank)

    def ends(self, rank: RankProcess, code: int) -> None:
        """The rank ends of itself, now."""
        self._end(rank, code)

    def monotonic(self) -> float:
        """The kernel's clock."""
        return self.loop.time() - self.booted_s

    def busy(self, among: frozenset[GpuUuid]) -> frozenset[GpuUuid]:
        """GPUs that a process holds, or held a moment ago."""
        now = self.loop.time()
        held = {gpu for rank in self.living for gpu in rank.gpus}
        return frozenset(gpu for gpu in among if gpu in held or self.held_until_s.get(gpu, 0.0) > now)

    def _up(self, rank: RankProcess) -> None:
        if rank.phase is not Phase.STARTING or not self.up:
            return
        plan = self.plan_of(rank)
        if rank.attempt <= plan.refuses and rank.rank == 0:
            self._end(rank, CANNOT_START, "cannot start: no such file")
            rank.phase = Phase.REFUSED
            return
        rank.phase = Phase.RUNNING
        self.started(self, rank)
        (rank.folder / f"rank-{rank.rank}.log").write_bytes(b"up\n")
        left_s = max(0.1, plan.runtime_s - plan.done_s)
        if rank.attempt <= plan.fails:
            self._later(left_s * self.random.uniform(0.1, 0.9), self._end, rank, plan.code)
        else:
            self._later(left_s, self._end, rank, 0)
        if plan.saves_every_s and rank.rank == 0:
            self._later(plan.saves_every_s, self._save_again, rank)

    def _done(self, rank: RankProcess) -> bool:
        return self.plan_of(rank).done_s >= self.plan_of(rank).runtime_s

    def _save_again(self, rank: RankProcess) -> None:
        if rank.phase is Phase.RUNNING:
            self._save(rank)
            self._later(self.plan_of(rank).saves_every_s, self._save_again, rank)

    def _save(self, rank: RankProcess) -> None:
        plan = self.plan_of(rank)
        if rank.phase is not Phase.RUNNING or rank.rank != 0 or not rank.folder.exists():
            return
        plan.done_s = min(plan.runtime_s, plan.done_s + (self.loop.time() - rank.born_s) * 0.5)
        file = rank.folder / "checkpoint"
        number = int(file.read_text()) if file.exists() else 0
        file.write_text(str(number + 1))

    def _end(self, rank: RankProcess, code: int, message: str = "") -> None:
        if not rank.alive:
            return
        rank.stray = False
        for gpu in rank.gpus:
            self.held_until_s[gpu] = self.loop.time() + self.random.choice((0.0, 0.0, 0.2, 1.0))
        if rank.phase in LIVING:
            rank.phase = Phase.ABSENT if rank.phase is Phase.STARTING else Phase.EXITED
            rank.code = CANNOT_START if rank.phase is Phase.ABSENT else code
            rank.ended_s, rank.message = self.monotonic(), message
        self._woken(rank)

    def _woken(self, rank: RankProcess) -> None:
        watchers, rank.watchers = rank.watchers, []
        for wake in watchers:
            wake()

    def _later(self, delay_s: float, call: Callable[..., None], rank: RankProcess, *args: object) -> None:
        """Unless the machine has booted since."""
        boot = self.boot

        def due() -> None:
            if self.boot == boot and self.up:
                call(rank, *args)

        self.loop.call_later(delay_s, due, context=self._context)


class SimProcesses:
    """The processes of a machine as one life of its agent has them. See `agent.machine.Processes`."""

    def __init__(self, machine: Machine, process: Process) -> None:
        self._machine = machine
        self._process = process
        self._watched: set[int] = set()
        self.boot_id = machine.boot_id

    def cgroup_of(self, name: str) -> str:
        """As there."""
        del name
        return ""

    def start(self, record: RunRecord, workdir: Path) -> None:
        """As there."""
        del workdir
        for rank in record.ranks:
            self._machine.begin(record, rank)

    def reap(self) -> None:
        """As there."""

    def ranks(self, record: RunRecord) -> tuple[Rank, ...]:
        """As there."""
        return tuple(self._rank(record, rank) for rank in record.ranks)

    def strays(self, record: RunRecord, ranks: tuple[Rank, ...]) -> bool:
        """As there."""
        del ranks
        return any(rank.stray for rank in self._of(record))

    def step(self, record: RunRecord, step: Step) -> None:
        """As there."""
        for rank in self._of(record):
            self._machine.signal(rank, step)

    def watch(self, record: RunRecord, rank: Rank, wake: Callable[[], None]) -> bool:
        """As there."""
        found = self._machine.ranks.get((record.start.share.run_id, rank.rank))
        if found is None or found.phase is not Phase.RUNNING:
            return False
        if found.pid not in self._watched:
            self._watched.add(found.pid)
            found.watchers.append(lambda: self._process.post(wake))
        return True

    def unwatch(self) -> None:
        """As there."""
        self._watched = set()

    def leftovers(self, known: set[RunId]) -> list[int]:
        """As there."""
        return [rank.pid for rank in self._machine.living if rank.run_id not in known]

    def kill(self, pids: list[int]) -> None:
        """As there."""
        for rank in self._machine.living:
            if rank.pid in pids:
                self._machine.signal(rank, Step.KILL)

    def pids(self, record: RunRecord) -> tuple[int, ...]:
        """As there."""
        return tuple(rank.pid for rank in self._of(record) if rank.alive)

    def out_of_memory(self, records: Iterable[RunRecord]) -> list[RunRecord]:
        """As there."""
        hit = [record for record in records if record.start.share.run_id in self._machine.short_of_memory]
        self._machine.short_of_memory.clear()
        return hit

    def forget(self, record: RunRecord) -> None:
        """As there."""
        for rank in record.ranks:
            self._machine.ranks.pop((record.start.share.run_id, rank), None)

    def _of(self, record: RunRecord) -> list[RankProcess]:
        run_id = record.start.share.run_id
        return [self._machine.ranks[run_id, n] for n in record.ranks if (run_id, n) in self._machine.ranks]

    def _rank(self, record: RunRecord, rank: int) -> Rank:
        found = self._machine.ranks.get((record.start.share.run_id, rank))
        if found is None:
            return Rank(rank, Phase.ABSENT, CANNOT_START)
        if found.phase in LIVING:
            return Rank(rank, found.phase)
        return Rank(rank, found.phase, found.code, found.ended_s, found.message)


class SimGpus:
    """The driver of a machine. See `agent.gpus.Gpus`."""

    gpu_type = "sim"

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.uuids = machine.uuids

    def busy(self, among: frozenset[GpuUuid]) -> frozenset[GpuUuid]:
        """As there."""
        return self._machine.busy(among)

    async def look(self, since: int) -> Look:
        """As there."""
        machine = self._machine
        await asyncio.sleep(machine.random.choice((0.01, 0.1, machine.slow_s)))
        return Look(
            readings=dict(machine.readings),
            xids=tuple(machine.xids[since:]),
            source="injected",
            mark=len(machine.xids),
        )

    async def reset(self, gpu_uuid: GpuUuid) -> str:
        """As there."""
        machine = self._machine
        held = [rank.run_id for rank in machine.living if gpu_uuid in rank.gpus]
        assert not held, f"{gpu_uuid} is reset, and {held} hold it"
        await asyncio.sleep(machine.random.choice((0.5, 3.0)))
        held = [rank.run_id for rank in machine.living if gpu_uuid in rank.gpus]
        assert not held, f"{gpu_uuid} is being reset, and {held} took it"
        if machine.resets_fail:
            machine.resets_fail -= 1
            return "it did not answer"
        machine.readings[gpu_uuid] = Reading(ecc_uncorrectable=0)
        return ""
