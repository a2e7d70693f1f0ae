"""What keeps a node, or a GPU of it, from being used: verdicts, drains, maintenance; and what health has yet to judge."""

from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from events.base import GpuUuid, Position, RunId
from events.fleet import DrainCause
from events.gpu import GpuAction, GpuJudged, GpuSignal, Recovery

OUT: Final = frozenset({GpuAction.RESET, GpuAction.DRAIN, GpuAction.EVICT})  # the GPU is given to nobody
STOPS: Final = frozenset({GpuAction.RESTART, GpuAction.RESET, GpuAction.EVICT})  # and the run that holds it is stopped
GRAVITY: Final = {action: grave for grave, action in enumerate(GpuAction)}
LEAD: Final = timedelta(hours=1)  # before a window starts, nothing new comes, and what runs begins to save
PENDING_MAX: Final = 256  # signs of one node that wait for their verdict; later ones are on record only
HISTORY_MAX: Final = 64  # faults of one node that escalation looks back on
NOTED_MAX: Final = 64  # records of one node, likewise
LEMON_FAULTS: Final = 5  # verdicts that took GPUs of one node out, within a week, make it a lemon


class Pending(msgspec.Struct, frozen=True, gc=False):
    """A sign of trouble that health has not judged."""

    position: Position
    at: datetime
    gpu_uuid: GpuUuid
    signal: GpuSignal
    code: int = 0
    reset_failed: bool = False  # what was seen is that the reset for this signal did not help
    since: tuple[Recovery, ...] = ()  # what was done about the GPU after it was seen
    held_back: bool = False  # judged once: the breaker kept the GPU in use

    def again(self, later: "Pending") -> bool:
        """Whether what was seen later is the same: then that stands for both."""
        said = (self.gpu_uuid, self.signal, self.code, self.reset_failed)
        return said == (later.gpu_uuid, later.signal, later.code, later.reset_failed)


class Remedy(msgspec.Struct, frozen=True, gc=False):
    """Something was done about a GPU, and health has not said whether that returns it."""

    gpu_uuid: GpuUuid
    means: Recovery


class Ailment(msgspec.Struct, frozen=True, gc=False):
    """Why a GPU is given to nobody: the gravest verdict on it, and what helps against all of them."""

    action: GpuAction
    signal: GpuSignal
    code: int
    at: datetime
    returns_by: tuple[Recovery, ...]
    table: str
    rule: str
    whole_node: bool = False  # the node is drained with it

    def with_(self, other: "Ailment") -> "Ailment":
        """Both of one GPU: the graver one, of two that are as grave the earlier, and what helps against both."""
        returns_by = tuple(means for means in self.returns_by if means in other.returns_by)
        graver = other if GRAVITY[self.action] < GRAVITY[other.action] else self
        return replace(graver, returns_by=returns_by, whole_node=self.whole_node or other.whole_node)


class Fault(msgspec.Struct, frozen=True, gc=False):
    """A verdict that escalation looks back on."""

    at: datetime
    gpu_uuid: GpuUuid
    signal: GpuSignal
    code: int
    action: GpuAction


class Drain(msgspec.Struct, frozen=True, gc=False):
    """The node is to be empty."""

    cause: DrainCause
    since: datetime
    reason: str = ""
    deadline: datetime | None = None  # when what still runs is stopped
    window: str = ""  # of the maintenance that has begun, whatever the cause
    done_at: datetime | None = None  # when it was said, of the node's present life, that nothing runs there any more
    by: str = ""  # who asked for it; empty: nobody, it was decided

    @property
    def done(self) -> bool:
        """Whether the node is empty, as was said."""
        return self.done_at is not None


class Window(msgspec.Struct, frozen=True, gc=False):
    """Planned maintenance."""

    name: str
    starts: datetime
    ends: datetime
    reason: str = ""
    by: str = ""


class Fitness(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All of that, of one node. It outlives the node's lives: it is about the machine."""

    ailments: dict[GpuUuid, Ailment] = {}  # never changed in place
    history: tuple[Fault, ...] = ()  # the last `HISTORY_MAX`
    noted: tuple[Fault, ...] = ()  # verdicts that were records alone: the last of each GPU, signal and code
    pending: tuple[Pending, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    unkillable: tuple[RunId, ...] = ()  # runs whose processes outlived KILL; health has not said what follows
    drain: Drain | None = None
    undrained_at: datetime | None = None  # by an operator: what came before makes the node no lemon
    windows: tuple[Window, ...] = ()  # by their start
    retired: bool = False
    ahead_s: float = 0.0  # of the node's clock, as last said

    @property
    def closed(self) -> bool:
        """Whether nothing new is placed on the node."""
        return self.drain is not None or self.retired

    @property
    def window_at(self) -> datetime | None:
        """When maintenance next has something to say: a window comes near, or is over. None: nothing is planned."""
        if not self.windows:
            return None
        first, moments = self.windows[0], [window.ends for window in self.windows]
        if self.drain is None or self.drain.window != first.name:
            moments.append(first.starts - LEAD)
        return min(moments)

    @property
    def asks(self) -> bool:
        """Whether a verdict may be due. What drains and windows ask for, and when, the node knows: see `Node.asks`."""
        return bool(self.pending or self.remedies or self.mended or (self.drain is None and self._blames_node))

    @property
    def _blames_node(self) -> bool:
        """Whether something may ask for a drain."""
        if self.unkillable or any(ailment.whole_node for ailment in self.ailments.values()):
            return True
        enough = len(self.history) >= LEMON_FAULTS
        return enough and sum(fault.action in OUT for fault in self.history) >= LEMON_FAULTS

    @property
    def mended(self) -> bool:
        """Whether the node is drained for GPUs none of which asks for that any more."""
        if self.drain is None or self.drain.cause is not DrainCause.GPU:
            return False
        return not any(ailment.whole_node for ailment in self.ailments.values())


FIT: Final = Fitness()


def ailment_of(e: GpuJudged, at: datetime) -> Ailment | None:
    """What a verdict says of its GPU; None where that stays in use."""
    if e.action not in OUT or e.held_back:
        return None
    return Ailment(e.action, e.signal, e.code, at, e.returns_by, e.table, e.rule, e.whole_node)
