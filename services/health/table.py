"""The table of verdicts: what is done about each signal of a GPU, as data with a version that every verdict names.

Source: NVIDIA's catalogue of XIDs as of 2025-10 (https://docs.nvidia.com/deploy/xid-errors), and
`nvmlDeviceGpuRecoveryAction_t`. Where they leave a choice, docs/decisions/0023 says which was made.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from events.gpu import GpuAction, GpuSignal, Recovery

TABLE_VERSION: Final = "2026-11"  # another one whenever a line changes: verdicts of old ones stay as they were

BY_RESET: Final = (Recovery.RESET, Recovery.REBOOT, Recovery.DRIVER, Recovery.OPERATOR)
BY_REBOOT: Final = (Recovery.REBOOT, Recovery.OPERATOR)
BY_DRIVER: Final = (Recovery.REBOOT, Recovery.DRIVER, Recovery.OPERATOR)
BY_OPERATOR: Final = (Recovery.OPERATOR,)


class Line(NamedTuple):
    """What is done about a signal."""

    action: GpuAction
    words: str  # what the signal means, without a full stop
    returns_by: tuple[Recovery, ...] = ()
    whole_node: bool = False  # the node is drained with it: what helps concerns all of its GPUs


class Repeat(NamedTuple):
    """A record that is more than one where it comes again, on the same GPU and on no other of its node."""

    code: int  # of the XID
    burst_s: float  # what follows within so long is the same incident
    line: Line


APPLICATION: Final = Line(GpuAction.LOG, "an application's own error: its exit code says what becomes of it")
RECORD: Final = Line(GpuAction.LOG, "for the record, or follows another one")
TRANSIENT: Final = Line(GpuAction.RESTART, "what ran there cannot go on; the GPU can")
CONTAINED: Final = Line(GpuAction.RESTART, "a memory error that was contained: only what ran there is affected")
RESETTABLE: Final = Line(GpuAction.RESET, "the GPU, or its firmware, is stuck", BY_RESET)
UNCONTAINED: Final = Line(GpuAction.RESET, "a memory error that was not contained", BY_RESET)
LINKED: Final = Line(
    GpuAction.DRAIN, "an error of NVLink: what runs may not notice, what is new should not meet it", BY_RESET
)
DOUBLE_BIT: Final = Line(GpuAction.DRAIN, "a memory error of two bits: a row is remapped at the next reset", BY_RESET)
MECHANICAL: Final = Line(GpuAction.DRAIN, "power or cabling: somebody has to look", BY_OPERATOR)
FIRMWARE: Final = Line(GpuAction.DRAIN, "software or firmware has to be renewed", BY_OPERATOR)
OFF_THE_BUS: Final = Line(GpuAction.EVICT, "the GPU has fallen off the bus", BY_REBOOT, whole_node=True)
REBOOTABLE: Final = Line(GpuAction.EVICT, "the machine has to be started anew", BY_REBOOT, whole_node=True)
UNKNOWN_XID: Final = Line(GpuAction.LOG, "not in the table")

XIDS: Final[Mapping[int, Line]] = {
    **dict.fromkeys((13, 31, 43, 45, 68), APPLICATION),
    **dict.fromkeys(
        (14, 37, 38, 44, 63, 66, 67, 92, 93, 106, 107, 121, 137, 141, 152, 153, 154, 157, 160, 161), RECORD
    ),
    **dict.fromkeys(
        (8, 11, 25, 32, 39, 40, 41, 60, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89), TRANSIENT
    ),
    **dict.fromkeys((*range(96, 106), *range(126, 136), 139), TRANSIENT),
    94: CONTAINED,
    **dict.fromkeys((46, 62, 64, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158), RESETTABLE),
    95: UNCONTAINED,
    **dict.fromkeys((74, *range(144, 151)), LINKED),
    48: DOUBLE_BIT,
    54: MECHANICAL,
    78: FIRMWARE,
    79: OFF_THE_BUS,
    151: REBOOTABLE,
}

RECOVERY_ACTIONS: Final[Mapping[int, Line]] = {
    0: Line(GpuAction.LOG, "the driver asks for nothing"),
    1: Line(GpuAction.RESET, "the driver asks for a reset", BY_RESET),
    2: Line(GpuAction.EVICT, "the driver asks for a reboot of the node", BY_DRIVER, whole_node=True),
    3: Line(GpuAction.DRAIN, "the driver asks to drain its peers", BY_RESET),
    4: Line(GpuAction.DRAIN, "the driver asks to drain it, and for a reset", BY_RESET),
    5: Line(GpuAction.DRAIN, "the driver asks to recover the memory exchange between nodes", BY_DRIVER),
    6: Line(GpuAction.EVICT, "the driver asks for a reset of the bus", BY_DRIVER),
    7: Line(GpuAction.EVICT, "the driver asks for a reboot of the system", BY_DRIVER, whole_node=True),
}
UNKNOWN_RECOVERY: Final = Line(GpuAction.DRAIN, "the driver asks for what is not in the table", BY_DRIVER)

SIGNALS: Final[Mapping[GpuSignal, Line]] = {
    GpuSignal.ECC_UNCORRECTABLE: Line(GpuAction.RESET, "memory errors that could not be corrected", BY_RESET),
    GpuSignal.REMAP_PENDING: Line(GpuAction.DRAIN, "a row of memory is remapped at the next reset", BY_RESET),
    GpuSignal.REMAP_FAILED: Line(GpuAction.DRAIN, "no spare row of memory is left: it is to be replaced", BY_OPERATOR),
    GpuSignal.THROTTLED: Line(GpuAction.LOG, "clocks are held down by hardware"),
    GpuSignal.HOT: Line(GpuAction.DRAIN, "so hot that it slows down: cooling is to be looked at", BY_REBOOT),
    GpuSignal.NVLINK_DOWN: Line(GpuAction.DRAIN, "a link to other GPUs is down", BY_RESET),
    GpuSignal.FOREIGN_PROCESS: Line(GpuAction.DRAIN, "a process of no run holds it, and its memory", BY_REBOOT),
    GpuSignal.MISSING: Line(GpuAction.EVICT, "it no longer answers", BY_REBOOT),
}

RESET_FAILED: Final = Line(GpuAction.EVICT, "a reset was tried and did not help", BY_REBOOT)
REPEATED: Final = Line(GpuAction.RESET, "an application's error again, on this GPU alone", BY_RESET)
REPEATS: Final = (Repeat(13, 15.0, REPEATED), Repeat(31, 180.0, REPEATED))
OFFENDER: Final = Line(GpuAction.EVICT, "too many faults in a day", BY_OPERATOR)


def line_of(signal: GpuSignal, code: int) -> tuple[str, Line]:
    """The line for a signal, and its name: "xid 79", "hot"."""
    match signal:
        case GpuSignal.XID:
            line = XIDS.get(code)
            return (f"xid {code}", line) if line is not None else (f"xid {code}, unknown", UNKNOWN_XID)
        case GpuSignal.RECOVERY_ACTION:
            line = RECOVERY_ACTIONS.get(code)
            name = f"recovery_action {code}"
            return (name, line) if line is not None else (f"{name}, unknown", UNKNOWN_RECOVERY)
        case _:
            return signal.value, SIGNALS[signal]
