"""What GPUs say of themselves (`node.<node>`, by agents) and what health says of them (`fleet.<node>`, by the control plane)."""

from enum import StrEnum

from events.base import Code, Count, GpuUuid, NodeEpoch, Position
from events.fleet import FleetEvent
from events.node import NodeReport


class GpuSignal(StrEnum):
    """What was seen of a GPU. What `code` is, each says."""

    XID = "xid"  # the driver's error report; code: its number
    ECC_UNCORRECTABLE = (
        "ecc_uncorrectable"  # memory errors that could not be corrected; code: new ones since the last report
    )
    REMAP_PENDING = "remap_pending"  # a row of memory is remapped at the next reset
    REMAP_FAILED = "remap_failed"  # no spare row was left
    RECOVERY_ACTION = (
        "recovery_action"  # what the driver asks for; code: `nvmlDeviceGpuRecoveryAction_t`, 0 for nothing
    )
    THROTTLED = "throttled"  # clocks are held down by hardware; code: the reasons, as NVML's bits
    HOT = "hot"  # code: degrees Celsius
    NVLINK_DOWN = "nvlink_down"  # code: the link
    FOREIGN_PROCESS = "foreign_process"  # a process of no run holds it; code: its id
    MISSING = "missing"  # it no longer answers


class GpuAction(StrEnum):
    """What is done about a signal, from the least to the gravest."""

    LOG = "log"  # nothing: it is on record
    RESTART = "restart"  # the run that holds it is stopped and started again; the GPU stays in use
    RESET = "reset"  # likewise stopped; nothing new until its agent has reset it
    DRAIN = "drain"  # nothing new; what runs on it may finish
    EVICT = "evict"  # nothing new, and what runs on it is stopped now


class Recovery(StrEnum):
    """What returns a GPU to use. Silence never does."""

    RESET = "reset"  # its agent reset it, and it answered as it should
    REBOOT = "reboot"  # its node began a new life after another boot
    DRIVER = "driver"  # the driver withdrew what it had asked for
    OPERATOR = "operator"  # an operator's word


class GpuSignalled(NodeReport, kw_only=True, frozen=True, tag="musterbook.node.gpu_signalled.v1"):
    """A GPU showed a sign of trouble, or a sign ended. A change, never a sample."""

    node_epoch: NodeEpoch
    gpu_uuid: GpuUuid
    signal: GpuSignal
    code: Code = 0
    ended: bool = False  # of signs that last: it is no longer seen, which alone returns nothing
    source: str = ""  # "nvml", "kernel", "injected"
    message: str = ""  # as the driver put it


class GpuRecovered(NodeReport, kw_only=True, frozen=True, tag="musterbook.node.gpu_recovered.v1"):
    """Something was done about a GPU that may return it to use: health says whether it does."""

    node_epoch: NodeEpoch
    gpu_uuid: GpuUuid
    means: Recovery


class GpuResetFailed(NodeReport, kw_only=True, frozen=True, tag="musterbook.node.gpu_reset_failed.v1"):
    """A GPU was to be reset and could not be, or did not answer as it should afterwards."""

    node_epoch: NodeEpoch
    gpu_uuid: GpuUuid
    message: str = ""


class GpuJudged(FleetEvent, kw_only=True, frozen=True, tag="musterbook.gpu.judged.v1"):
    """What is done about one signal of a GPU, and by which table."""

    gpu_uuid: GpuUuid
    signalled: Position  # of the `GpuSignalled` that is judged
    signal: GpuSignal
    code: Code = 0
    action: GpuAction
    returns_by: tuple[Recovery, ...] = ()  # what takes it back into use, for actions that take it out
    whole_node: bool = False  # the node is drained with it
    table: str  # version of the table that decided
    rule: str = ""  # its line: "xid 79", or the escalation: "5 faults in 24 h"
    score: Count = 0  # of the node, as a lemon: weighted faults of its last 30 days
    held_back: bool = False  # by the breaker: what runs there is stopped if the action says so, the GPU stays in use


class GpuReturned(FleetEvent, kw_only=True, frozen=True, tag="musterbook.gpu.returned.v1"):
    """The GPU may be used again."""

    gpu_uuid: GpuUuid
    means: Recovery
    table: str = ""  # version of the table that decided
