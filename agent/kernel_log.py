"""The kernel's log, as /dev/kmsg gives it: GPU errors of the NVIDIA driver, and processes killed for want of memory."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from runtime.logging import get_logger

logger = get_logger(__name__)

KMSG: Final = Path("/dev/kmsg")
RECORD_MAX: Final = 8_192  # bytes; the kernel cuts longer ones
RECORDS_MAX: Final = 20_000  # in one reading: more than the kernel keeps by default
MESSAGE_MAX: Final = 300  # characters that are kept of one

XID: Final = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+),? ?(.*)")
OOM_KILL: Final = re.compile(r"[Oo]ut of memory: Killed process (\d+)")
OOM_GROUP: Final = re.compile(r"oom-kill:.*?task_memcg=([^,]+),")


class Record(NamedTuple):
    """One message of the kernel."""

    sequence: int  # in this boot, from 1: the kernel's own, which begin at 0, and one
    at_s: float  # since the boot
    text: str


class DriverError(NamedTuple):
    """An XID in the log."""

    pci: str  # "0000:3b:00": which device
    code: int
    message: str


class OomKill(NamedTuple):
    """A process that the kernel killed for want of memory. Two records tell of it: its control group, then its id."""

    pid: int = 0
    group: str = ""  # the control group it was in


class KernelLog:
    """Reads the log from where it was left. One that cannot be read is said to be so once, and gives nothing."""

    def __init__(self, path: Path = KMSG) -> None:
        self._path = path
        self._descriptor = -1  # open while the log can be read
        self._readable = True
        self._reached = 0  # the last record that was read

    def after(self, sequence: int) -> list[Record]:
        """The records that came after `sequence` and are still kept, up to `RECORDS_MAX`; 0: from the boot on."""
        if not self._readable:
            return []
        try:
            if sequence < self._reached or self._descriptor < 0:
                self.close()
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            return [record for record in self._records() if record.sequence > sequence]
        except OSError as error:
            self._readable = False
            _say_unreadable(self._path, str(error))
            return []

    def close(self) -> None:
        """Nothing is held open; the next reading begins where it is told to."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._reached = -1, 0

    def _records(self) -> Iterator[Record]:
        """Those not read yet: one a read."""
        for _ in range(RECORDS_MAX):
            try:
                data = os.read(self._descriptor, RECORD_MAX)
            except BrokenPipeError:  # it was overwritten before it was read: the next one that is kept follows
                continue
            except BlockingIOError:
                return
            if not data:
                return
            if (record := parsed(data)) is not None:
                self._reached = record.sequence
                yield record


@cache
def _say_unreadable(path: Path, error: str) -> None:
    """Once, however many read it."""
    logger.warning("kernel_log_unreadable", path=str(path), error=error, hint="See docs/nodes.md.")


def parsed(data: bytes) -> Record | None:
    """`6,339,5140900,-;text`, then lines of details that begin with a blank; None for what is no record."""
    head, _, rest = data.decode(errors="replace").partition(";")
    fields = head.split(",")
    with suppress(ValueError, IndexError):
        return Record(int(fields[1]) + 1, int(fields[2]) / 1e6, rest.partition("\n")[0])
    return None


def driver_error(record: Record) -> DriverError | None:
    """The XID that a record tells of, if it does."""
    if (found := XID.search(record.text)) is None:
        return None
    return DriverError(device_of(found[1]), int(found[2]), found[3][:MESSAGE_MAX])


def device_of(pci: str) -> str:
    """A PCI address without its function, its domain of four digits: the driver and NVML write it in several ways."""
    parts = pci.lower().partition(".")[0].split(":")
    domain = f"{int(parts[0], 16):04x}" if len(parts) > 2 else "0000"
    return ":".join([domain, *parts[-2:]])


def oom_kill(record: Record) -> OomKill | None:
    """The process that a record says was killed for want of memory, if it does."""
    if (found := OOM_KILL.search(record.text)) is not None:
        return OomKill(pid=int(found[1]))
    if (found := OOM_GROUP.search(record.text)) is not None:
        return OomKill(group=found[1])
    return None
