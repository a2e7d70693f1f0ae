"""A node made of values: what a disk, processes and a gate do with the actions of an agent that may die between any two."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from agent.core.action import (
    Action,
    Decline,
    Describe,
    EndLeftovers,
    Forget,
    ForgetReset,
    FoundClean,
    Join,
    Release,
    ReportEnded,
    ReportGpu,
    ReportSaved,
    ReportStarted,
    ReportUnkillable,
    Reset,
    Start,
    Stop,
)
from agent.core.found import EXIT_KILLED, Found, Phase, Rank, Step, Stopping, Told, Trace, Why
from agent.core.reconcile import in_question, reconcile
from events.base import GpuUuid, JobId, NodeEpoch, NodeId, Position, RunId, SlotMask, TeamId
from events.desired import Desired, DesiredShare, Order
from events.job import Checkpoint, JobSpec, OnLost

ME = "me"
NO_EPOCH = NodeEpoch(0)
GPUS = tuple(GpuUuid(f"GPU-{number}") for number in range(4))
TERM_S = {Step.TERM: 143, Step.KILL: EXIT_KILLED}


def share_of(number: int, ranks: int = 2, **spec: object) -> DesiredShare:
    """Run number `number`: on the first or the second two of four GPUs, in turn."""
    gpus = GPUS[:2] if number % 2 == 0 else GPUS[2:]
    return DesiredShare(
        run_id=RunId(f"j{number}-1"),
        job_id=JobId(f"j{number}"),
        team=TeamId("red"),
        attempt=1,
        order=Order.RUN,
        slots=SlotMask(0b11 if number % 2 == 0 else 0b1100),
        gpu_uuids=gpus[:ranks],
        node_rank=0,
        nodes=1,
        first_rank=0,
        world_size=ranks,
        local_size=ranks,
        master_addr="127.0.0.1",
        master_port=10_000,
        spec=JobSpec(name="x", command=("x",), gpus=ranks, stop_grace_s=5, **spec),  # type: ignore[arg-type]
    )


def desired_of(
    *shares: DesiredShare, epoch: int = 5, as_of: int = 6, instance: str = ME, lost: bool = False
) -> Desired:
    """These shares, in one life of the node."""
    return Desired(
        node_id=NodeId("n"),
        epoch=NodeEpoch(epoch),
        instance=instance,
        as_of=Position(as_of),
        lost=lost,
        shares=tuple(sorted(shares, key=lambda share: share.run_id)),
    )


def with_checkpoint(grace_s: int) -> dict[str, object]:
    """Fields of a spec whose job saves its progress."""
    return {"checkpoint": Checkpoint(grace_s=grace_s), "on_lost": OnLost.RESTART}


@dataclass
class World:
    """One node. Disk and processes outlive its agent; processes do not outlive the boot."""

    epoch: NodeEpoch = NO_EPOCH
    position: int = 1
    pooled: frozenset[GpuUuid] = frozenset()
    traces: dict[RunId, Trace] = field(default_factory=dict)  # the records
    living: dict[tuple[RunId, int], bool] = field(default_factory=dict)  # a rank's process: whether it heeds TERM
    started: list[tuple[RunId, int]] = field(default_factory=list)  # every process that was ever started
    released: list[RunId] = field(default_factory=list)
    ended: list[RunId] = field(default_factory=list)
    heeds_term: bool = True
    resets: list[GpuUuid] = field(default_factory=list)  # every one that was ever done
    tried: frozenset[GpuUuid] = frozenset()  # of GPUs, since it is wanted

    def found(self, desired: Desired | None) -> Found:
        """The node as an agent finds it."""
        holding = {gpu for run_id, _ in self.living for gpu in self.traces[run_id].share.gpu_uuids}
        found = Found(
            instance=ME,
            epoch=self.epoch,
            gpus=frozenset(GPUS),
            pooled=self.pooled,
            traces=dict(self.traces),
            tried=self.tried,
            unready=self.tried,
        )
        return replace(found, busy=frozenset(holding) & in_question(desired, found))

    def reconcile(self, desired: Desired | None, steps: int | None = None) -> list[Action]:
        """One look and its actions were done; after `steps` steps the agent died. Returns the actions."""
        actions = reconcile(desired, self.found(desired))
        left = steps if steps is not None else 1_000
        for action in actions:
            for step in self._steps(action):
                if left == 0:
                    return actions
                left -= 1
                step()
        return actions

    def settle(self, desired: Desired | None, *, turns: int = 12) -> list[Action]:
        """The actions of the last of many turns, the time of stops going on."""
        actions: list[Action] = []
        for _ in range(turns):
            actions = self.reconcile(desired)
            self.age(10)
        return actions

    def age(self, seconds: float) -> None:
        """So much time went by for every stop."""
        for run_id, trace in self.traces.items():
            if trace.stopping is not None:
                aged = replace(trace.stopping, age_s=trace.stopping.age_s + seconds)
                self.traces[run_id] = replace(trace, stopping=aged)

    def exit(self, run_id: RunId, rank: int, code: int) -> None:
        """The rank's process ended, and its supervisor wrote that down."""
        if self.living.pop((run_id, rank), None) is not None:
            self._set(run_id, Rank(rank, Phase.EXITED, code, float(self.position)))

    def reboot(self) -> None:
        """No process is left; the records are. An agent that finds another boot has no epoch yet."""
        for run_id, rank in list(self.living):
            self._set(run_id, Rank(rank, Phase.LOST, EXIT_KILLED))
        self.living.clear()
        self.traces = {run_id: replace(trace, this_boot=False) for run_id, trace in self.traces.items()}
        self.epoch, self.pooled = NodeEpoch(0), frozenset()

    def _steps(self, action: Action):  # noqa: ANN202 - a list of calls
        """What the shell does one after the other; an agent may die before each."""
        match action:
            case Start(share):
                ranks = range(share.local_size)
                return [lambda: self._begin(share), *(lambda rank=rank: self._spawn(share, rank) for rank in ranks)]
            case Decline(share):
                return [lambda: self._decline(share)]
            case Stop(run_id, why, step):
                return [lambda: self._note_stop(run_id, why, step), lambda: self._signal(run_id, step)]
            case Forget(run_id):
                assert not any(run == run_id for run, _ in self.living)
                return [lambda: self.traces.pop(run_id)]
            case Join():
                return [self._join]
            case FoundClean(_, gpus):
                return [lambda: self._pool(gpus)]
            case Reset() | ForgetReset():
                return [lambda: self._reset(action)]
            case ReportStarted(_, run_id):
                return [lambda: self._tell(run_id, Told.STARTED)]
            case ReportEnded(_, run_id):
                assert not any(run == run_id for run, _ in self.living)
                return [lambda: self.ended.append(run_id), lambda: self._tell(run_id, Told.ENDED)]
            case Release(_, run_id):
                assert not any(run == run_id for run, _ in self.living)
                return [lambda: self.released.append(run_id), lambda: self._tell(run_id, Told.RELEASED)]
            case EndLeftovers() | Describe() | ReportSaved() | ReportGpu() | ReportUnkillable():
                raise AssertionError("nothing of that is found here: every run has a record, and all GPUs are well")

    def _reset(self, action: Reset | ForgetReset) -> None:
        gpu = action.gpu_uuid
        if isinstance(action, ForgetReset):
            self.tried -= {gpu}
            return
        assert not any(gpu in self.traces[run].share.gpu_uuids for run, _ in self.living), "a process holds it"
        self.resets.append(gpu)
        self.tried |= {gpu}

    def _begin(self, share: DesiredShare) -> None:
        assert share.run_id not in self.traces
        ranks = tuple(Rank(rank, Phase.ABSENT, 127) for rank in range(share.local_size))
        self.traces[share.run_id] = Trace(share=share, epoch=self.epoch, ranks=ranks)

    def _spawn(self, share: DesiredShare, rank: int) -> None:
        assert all(self.traces[run].share.gpu_uuids != share.gpu_uuids for run, _ in self.living if run != share.run_id)
        self.started.append((share.run_id, rank))
        self.living[share.run_id, rank] = self.heeds_term
        self._set(share.run_id, Rank(rank, Phase.RUNNING))

    def _decline(self, share: DesiredShare) -> None:
        assert share.run_id not in self.traces
        self.traces[share.run_id] = Trace(share=share, epoch=self.epoch, declined=True)

    def _note_stop(self, run_id: RunId, why: Why, step: Step) -> None:
        trace = self.traces[run_id]
        age_s = trace.stopping.age_s if trace.stopping else 0.0
        self.traces[run_id] = replace(trace, stopping=Stopping(why, age_s, step))

    def _signal(self, run_id: RunId, step: Step) -> None:
        for (run, rank), heeds in list(self.living.items()):
            if run == run_id and (step is Step.KILL or (step is Step.TERM and heeds)):
                self.exit(run, rank, TERM_S[step])

    def _join(self) -> None:
        self.position += 1
        self.epoch, self.pooled = NodeEpoch(self.position), frozenset()

    def _pool(self, gpus: tuple[GpuUuid, ...]) -> None:
        assert not {gpu for run, _ in self.living for gpu in self.traces[run].share.gpu_uuids} & set(gpus)
        self.pooled |= set(gpus)

    def _tell(self, run_id: RunId, told: Told) -> None:
        trace = self.traces[run_id]
        self.traces[run_id] = replace(trace, told=trace.told | {told})

    def _set(self, run_id: RunId, new: Rank) -> None:
        trace = self.traces[run_id]
        ranks = tuple(new if rank.rank == new.rank else rank for rank in trace.ranks)
        self.traces[run_id] = replace(trace, ranks=ranks)
