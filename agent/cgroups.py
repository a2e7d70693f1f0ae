"""Control groups of runs (cgroup v2), where they can be made: one write ends everything in a group, forks or not."""

import os
from contextlib import suppress
from pathlib import Path


def root_of_runs() -> Path | None:
    """Our own control group, if groups for runs can be made below it; None otherwise."""
    with suppress(OSError):
        mounts = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
        mounted = next((Path(fields[4]) for fields in mounts if fields[fields.index("-") + 1] == "cgroup2"), None)
        own = next((line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line[:3] == "0::"), None)
        if mounted is not None and own is not None:
            root = mounted / own.lstrip("/")
            probe = root / f"muster-probe-{os.getpid()}"
            probe.mkdir()
            able = (probe / "cgroup.kill").exists()
            probe.rmdir()
            with suppress(OSError):  # the kernel refuses where processes are in the group itself
                (root / "cgroup.subtree_control").write_text("+memory")
            return root if able else None
    return None


def made(root: Path | None, name: str) -> str:
    """The path of a new group; empty where none can be made: then process groups and descent must do."""
    if root is None:
        return ""
    path = root / name
    with suppress(OSError):
        path.mkdir()
        _end_together(path)
        return str(path)
    return ""


def populated(path: str) -> bool:
    """Whether processes are in the group or below it."""
    with suppress(OSError):
        return "populated 1" in Path(path, "cgroup.events").read_text()
    return False


def kill(path: str) -> None:
    """Everything in the group was sent KILL, at once."""
    with suppress(FileNotFoundError):
        Path(path, "cgroup.kill").write_text("1")


def oom_kills(path: str) -> int:
    """How many processes of the group the kernel has killed for want of memory, as far as it counts them there."""
    with suppress(OSError):
        counts = dict(line.split() for line in Path(path, "memory.events").read_text().splitlines())
        return int(counts.get("oom_kill", 0))
    return 0


def pids(path: str) -> list[int]:
    """The processes of the group."""
    with suppress(OSError):
        return [int(pid) for pid in Path(path, "cgroup.procs").read_text().split()]
    return []


def _end_together(path: Path) -> None:
    """Where the kernel must kill one process of the group for want of memory, it kills all: half a rank is of no use."""
    with suppress(OSError):
        if (file := path / "memory.oom.group").exists():
            file.write_text("1")


def remove(path: str) -> None:
    """The group is gone, unless something is in it after all."""
    with suppress(OSError):
        Path(path).rmdir()
