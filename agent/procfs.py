"""What /proc says about processes: parents, start times, and the environment that tells whose they are."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

READ_MAX: Final = 1 << 20


class Stat(NamedTuple):
    """One process."""

    pid: int
    parent: int
    state: str  # one letter; Z: ended, not yet taken in by its parent
    start_ticks: int  # since boot: with the pid, it names a process for ever


def boot_id() -> str:
    """The id of the kernel's present life."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pids() -> list[int]:
    """The ids of all processes."""
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdecimal()]


def stat(pid: int) -> Stat | None:
    """What is known of a process; None when there is none."""
    try:
        fields = _read(pid, "stat").rpartition(b")")[2].split()
    except OSError:
        return None
    return Stat(pid, int(fields[1]), fields[0].decode(), int(fields[19]))


def is_same(pid: int, start_ticks: int) -> bool:
    """Whether `pid` still is the process that started then, and has not ended."""
    found = stat(pid)
    return found is not None and found.start_ticks == start_ticks and found.state not in "ZX"


def descendants(roots: set[int]) -> list[int]:
    """All processes that `roots` started, directly or not; without the roots."""
    children: dict[int, list[int]] = {}
    for pid in pids():
        if (found := stat(pid)) is not None:
            children.setdefault(found.parent, []).append(pid)
    result: list[int] = []
    pending = sorted(roots)
    while pending:
        below = children.get(pending.pop(), [])
        result += below
        pending += below
    return result


def marked(mark: bytes) -> Iterator[tuple[int, dict[bytes, bytes]]]:
    """Every process with `mark` ("NAME=value") in its environment, and that environment.

    Those of other users, which cannot be read, are passed over, and so are those that have ended.
    """
    for pid in pids():
        with suppress(OSError):
            block = _read(pid, "environ")
            if mark in block and mark in (fields := block.split(b"\0")):
                yield pid, dict(_pair(field) for field in fields)


def is_alive(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    found = stat(pid)
    return found is not None and found.state not in "ZX"


def is_below(pid: int, mark: bytes) -> bool:
    """Whether the process, or one that it descends from, has `mark` ("NAME=value") in its environment."""
    while pid > 1 and (found := stat(pid)) is not None:
        with suppress(OSError):
            if mark in _read(pid, "environ").split(b"\0"):
                return True
        pid = found.parent
    return False


def _read(pid: int, name: str) -> bytes:
    """A file of a process, in few calls: many are read at a time."""
    file = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(file, READ_MAX)
        while len(data) % READ_MAX == 0 and (more := os.read(file, READ_MAX)):
            data += more
        return data
    finally:
        os.close(file)


def _pair(field: bytes) -> tuple[bytes, bytes]:
    name, _, value = field.partition(b"=")
    return name, value
