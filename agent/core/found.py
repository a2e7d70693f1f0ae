"""What is found on a node: the life it is in, its GPUs, and a trace of every run that was ever begun or declined there."""

from enum import IntEnum, StrEnum

import msgspec
from msgspec.structs import replace

from agent.core.signs import Telling
from events.base import GpuUuid, NodeEpoch, RunId
from events.desired import DesiredShare
from events.node import EndReason

EXIT_KILLED = 137  # what a rank is counted as whose supervisor was ended together with it


class Phase(StrEnum):
    """Where one rank of a share stands."""

    STARTING = "starting"  # its supervisor lives and has not started it yet
    RUNNING = "running"
    EXITED = "exited"  # and nothing that it started lives
    REFUSED = "refused"  # it could not be started
    LOST = "lost"  # its supervisor ended without a record, after it had started the rank
    ABSENT = "absent"  # its supervisor never came, or ended before it had started the rank


LIVING = frozenset({Phase.STARTING, Phase.RUNNING})


class Rank(msgspec.Struct, frozen=True):
    """One rank of a share."""

    rank: int  # in the gang
    phase: Phase
    code: int = 0  # 128 + n after signal n
    ended_s: float = 0.0  # when, on the machine's monotonic clock
    message: str = ""  # what could not be done


class Step(IntEnum):
    """How far a stop has gone."""

    NONE = 0
    CHECKPOINT = 1  # the checkpoint signal was sent
    TERM = 2
    KILL = 3


class Why(StrEnum):
    """Why ranks are stopped on the node. Written to the stop file, which the job may read."""

    ORDER = "order"  # desired says so; the file names its cause
    RANK_FAILED = "rank_failed"
    START_FAILED = "start_failed"
    TIME_LIMIT = "time_limit"
    ISOLATED = "isolated"  # so long without contact that the job may be started elsewhere
    DEAD_EPOCH = "dead_epoch"  # it belongs to an earlier life of the node
    UNWANTED = "unwanted"  # desired no longer names it


class Stopping(msgspec.Struct, frozen=True):
    """A stop under way."""

    why: Why
    age_s: float = 0.0
    step: Step = Step.NONE  # the last one taken
    killed_s: float = 0.0  # since KILL was sent first


class Told(StrEnum):
    """What the gate has accepted of a run: never sent again."""

    STARTED = "started"
    ENDED = "ended"
    RELEASED = "released"
    UNKILLABLE = "unkillable"


class Exit(msgspec.Struct, frozen=True):
    """How a share ended."""

    reason: EndReason
    exit_code: int = 0
    rank: int = -1
    message: str = ""
    out_of_memory: bool = False
    isolated: bool = False


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one run on this node, from its record and from its processes."""

    share: DesiredShare  # as it was when the record was written
    epoch: NodeEpoch  # the life in which that was
    this_boot: bool = True
    declined: bool = False  # recorded so that it never starts
    refusal: str = ""  # with `declined`: what made a start impossible; empty when a stop came first
    ranks: tuple[Rank, ...] = ()
    strays: bool = False  # processes of the run live that no supervisor looks after
    age_s: float = 0.0  # since its start
    stopping: Stopping | None = None
    told: frozenset[Told] = frozenset()
    shipped: bool = True  # all its output is where it belongs
    saved: int = 0  # a checkpoint that it says is safe and that is to be told now; 0: none
    pids: tuple[int, ...] = ()  # of its processes that live on long after KILL
    out_of_memory: bool = False  # the kernel killed a process of it for want of memory

    @property
    def alive(self) -> bool:
        """Whether anything of it lives, or may come to life."""
        return self.strays or any(rank.phase in LIVING for rank in self.ranks)

    @property
    def started(self) -> bool:
        """Whether every rank was started."""
        begun = {Phase.RUNNING, Phase.EXITED, Phase.LOST}
        return bool(self.ranks) and all(rank.phase in begun for rank in self.ranks)

    @property
    def failed(self) -> Rank | None:
        """The rank that ended first of those that did not end well."""
        failed = [rank for rank in self.ranks if rank.phase not in LIVING and (rank.code or rank.phase != Phase.EXITED)]
        return min(failed, key=lambda rank: (rank.ended_s, rank.rank), default=None)

    @property
    def end(self) -> Exit | None:
        """How it ended; None while anything of it lives."""
        if self.alive:
            return None
        if self.declined:
            reason = EndReason.START_FAILED if self.refusal else EndReason.NEVER_STARTED
            return Exit(reason, message=self.refusal)
        if not self.this_boot and any(rank.phase is not Phase.EXITED for rank in self.ranks):
            return Exit(EndReason.NODE_REBOOTED)
        end = _end_of_ranks(self.ranks, self.failed, self.stopping)
        return replace(end, out_of_memory=self.out_of_memory)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The node as it is."""

    instance: str  # of this agent
    epoch: NodeEpoch  # 0: this life has not been made known yet
    former: frozenset[str] = frozenset()  # instances that this agent was before
    gpus: frozenset[GpuUuid] = frozenset()
    pooled: frozenset[GpuUuid] = frozenset()  # of them, reported clean in this epoch
    busy: frozenset[GpuUuid] = frozenset()  # held by a process
    described: bool = True  # the log has its labels and taints as they are
    leftovers: bool = False  # processes of runs live that have no record
    silent_s: float = 0.0  # since the last sign of the control plane's servers
    lost_after_s: float = 40.0  # after so much silence all has ended that may be started elsewhere
    unkillable_after_s: float = 60.0  # from KILL: what lives on so long waits for hardware, or a server of files
    traces: dict[RunId, Trace] = {}
    tellings: tuple[Telling, ...] = ()  # of GPUs, not accepted yet
    missing: frozenset[GpuUuid] = frozenset()  # GPUs that do not answer
    resetting: frozenset[GpuUuid] = frozenset()  # those that are being reset
    tried: frozenset[GpuUuid] = frozenset()  # those that were, since they are wanted so
    unready: frozenset[GpuUuid] = frozenset()  # those that are not to be, for now


def _end_of_ranks(ranks: tuple[Rank, ...], failed: Rank | None, stopping: Stopping | None) -> Exit:
    refused = next((rank for rank in ranks if rank.phase is Phase.REFUSED), None)
    absent = next((rank for rank in ranks if rank.phase is Phase.ABSENT), None)
    code, number = (failed.code, failed.rank) if failed else (0, -1)
    if refused:
        return Exit(EndReason.START_FAILED, code, refused.rank, refused.message)
    if absent and (stopping is None or stopping.why is Why.START_FAILED):
        return Exit(EndReason.START_FAILED, code, absent.rank, "the supervisor of the rank ended before it began")
    message = failed.message if failed else ""
    match stopping:
        case Stopping(why=Why.TIME_LIMIT):
            return Exit(EndReason.TIME_LIMIT, code, number, message)
        case Stopping(why=Why.ISOLATED):
            return Exit(EndReason.STOPPED, code, number, "the node was without contact", isolated=True)
        case Stopping(why=Why.ORDER | Why.DEAD_EPOCH | Why.UNWANTED):
            return Exit(EndReason.STOPPED, code, number, message)
        case _ if failed is not None and failed.phase is Phase.LOST:  # whoever ends supervisors ends them for a node
            return Exit(EndReason.NODE_REBOOTED, code, number, message)
        case _:  # they ended by themselves, or one failed and the others were stopped
            return Exit(EndReason.EXITED, code, number, message)
