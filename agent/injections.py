"""What somebody wants simulated GPUs to show: files in the data directory of their node, which their driver takes in."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from events.base import Code
from events.gpu import GpuSignal
from runtime.files import write
from runtime.logging import get_logger

logger = get_logger(__name__)

FOLDER: Final = "simulated-gpus"  # in the data directory of a node
STATE: Final = "state.json"  # in it: what the driver keeps
TAKEN_AT_ONCE: Final = 100  # files
BYTES_MAX: Final = 4_096  # of one

CODES: Final = {  # that a signal has where none is said
    GpuSignal.ECC_UNCORRECTABLE: 1,
    GpuSignal.RECOVERY_ACTION: 1,  # reset the GPU
    GpuSignal.THROTTLED: 0x40,  # its heat
    GpuSignal.HOT: 95,
    GpuSignal.FOREIGN_PROCESS: 1,
}


class Injection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A sign of trouble, or the end of all trouble."""

    gpu: int | None = None  # its number on the node; None: every one
    signal: GpuSignal | None = None  # None: `clear`
    code: Code = 0
    clear: bool = False


class Driver(msgspec.Struct, frozen=True):
    """What of a simulated driver's state others may read."""

    count: int


def driver_of(data_dir: Path) -> Driver | None:
    """The simulated driver of a node; None where the node has none."""
    try:
        return msgspec.json.decode((data_dir / FOLDER / STATE).read_bytes(), type=Driver)
    except (OSError, msgspec.DecodeError):
        return None


def put(data_dir: Path, injection: Injection, at_s: float) -> Path:
    """The file that the driver takes in at its next look, whole. `at_s` puts them in order."""
    folder = data_dir / FOLDER / "inject"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{at_s:017.6f}-{secrets.token_hex(4)}.json"
    write(path, msgspec.json.encode(injection))
    return path


def waiting(data_dir: Path, gpus: int) -> Iterator[tuple[Path, Injection]]:
    """What was put and not taken, in order. What is none is moved aside, and said."""
    folder = data_dir / FOLDER / "inject"
    names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))  # noqa: PTH208 - at each look
    for name in names[:TAKEN_AT_ONCE]:
        path = folder / name
        try:
            injection = _read(path, gpus)
        except (OSError, ValueError) as error:
            logger.warning("injection_refused", file=str(path), error=str(error))
            path.replace(folder.parent / "refused" / name)
        else:
            yield path, injection


def _read(path: Path, gpus: int) -> Injection:
    """Raises `ValueError` for what is no injection."""
    if path.stat().st_size > BYTES_MAX:
        raise ValueError(f"it is larger than {BYTES_MAX} bytes")
    injection = msgspec.json.decode(path.read_bytes(), type=Injection)
    if (injection.signal is None) != injection.clear:
        raise ValueError("it names a signal, or clears")
    if injection.gpu is not None and not 0 <= injection.gpu < gpus:
        raise ValueError(f"there is no GPU {injection.gpu}: there are {gpus}, from 0")
    return injection
