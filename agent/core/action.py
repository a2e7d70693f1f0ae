"""What an agent can do about its node. Each may fail or be done twice; the next look at the node shows what is so."""

import msgspec

from agent.core.found import Exit, Step, Why
from agent.core.signs import Telling
from events.base import GpuUuid, NodeEpoch, RunId, SlotMask
from events.desired import DesiredShare


class Join(msgspec.Struct, frozen=True):
    """Make a new life of this node known."""


class Describe(msgspec.Struct, frozen=True):
    """Report the node's labels and taints, which are others than its life began with."""

    epoch: NodeEpoch


class FoundClean(msgspec.Struct, frozen=True):
    """Report GPUs that no process holds."""

    epoch: NodeEpoch
    gpus: tuple[GpuUuid, ...]


class Start(msgspec.Struct, frozen=True):
    """Record the share as begun, then start its ranks."""

    share: DesiredShare


class Decline(msgspec.Struct, frozen=True):
    """Record that the share never starts here."""

    share: DesiredShare
    refusal: str = ""


class Stop(msgspec.Struct, frozen=True):
    """Take a stop of living ranks to this rung, beginning it if none is under way."""

    run_id: RunId
    why: Why
    step: Step
    cause: str | None = None  # with `Why.ORDER`
    grace_s: float = 0.0  # from now to KILL: told to the job


class ReportStarted(msgspec.Struct, frozen=True):
    """Report that every rank of the share was started."""

    epoch: NodeEpoch
    run_id: RunId


class ReportSaved(msgspec.Struct, frozen=True):
    """Report a checkpoint that the run says is safe."""

    epoch: NodeEpoch
    run_id: RunId
    number: int


class ReportEnded(msgspec.Struct, frozen=True):
    """Report that nothing of the share runs any more, or ever will."""

    epoch: NodeEpoch
    run_id: RunId
    end: Exit


class Release(msgspec.Struct, frozen=True):
    """Report that no process holds the slots."""

    epoch: NodeEpoch
    run_id: RunId
    slots: SlotMask


class ReportUnkillable(msgspec.Struct, frozen=True):
    """Report that processes of the run live on long after KILL."""

    epoch: NodeEpoch
    run_id: RunId
    pids: tuple[int, ...]
    waited_s: int


class ReportGpu(msgspec.Struct, frozen=True):
    """Report a word about a GPU."""

    epoch: NodeEpoch
    telling: Telling


class Reset(msgspec.Struct, frozen=True):
    """Begin to reset a GPU that nothing holds."""

    gpu_uuid: GpuUuid


class ForgetReset(msgspec.Struct, frozen=True):
    """Remove what is kept of resetting a GPU."""

    gpu_uuid: GpuUuid


class Forget(msgspec.Struct, frozen=True):
    """Remove all that is kept of the run."""

    run_id: RunId


class EndLeftovers(msgspec.Struct, frozen=True):
    """Kill processes of runs that have no record."""


Local = Start | Decline | Stop | Forget | EndLeftovers | Reset | ForgetReset  # done on the node
ReportOfRun = ReportStarted | ReportSaved | ReportEnded | ReportUnkillable | Release
Report = Join | Describe | FoundClean | ReportGpu | ReportOfRun  # told to the gate
Action = Local | Report
