"""A whole cluster in the background, for as long as a block runs: what the demo and tests of users' paths stand on."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from runtime.children import Child, Command, exited, log_tail
from runtime.fault import Fault
from services.main.local import CLOCK, read_running

READY_WITHIN_S: Final = 60.0
LOOK_EVERY_S: Final = 0.05
STOP_WITHIN_S: Final = 30.0
LEFTOVERS_WITHIN_S: Final = 5.0


@contextmanager
def background_cluster(data_dir: Path, *options: str) -> Iterator[str]:
    """The URL of the API of a `muster up --data-dir DIR OPTIONS`, which ends with the block, and with this process."""
    log = data_dir / "logs" / "up.log"
    argv = (sys.executable, "-I", "-m", "services.cli", "up", "--data-dir", str(data_dir), *options)
    child = Child(Command(argv=argv, log=log, death_signal=signal.SIGTERM))
    try:
        yield _ready(child, data_dir, log)
    finally:
        asyncio.run(child.end((signal.SIGTERM, STOP_WITHIN_S)))


def _ready(child: Child, data_dir: Path, log: Path) -> str:
    """The URL, once the cluster says that it is ready. Raises `Fault`."""
    given_up_s = CLOCK.monotonic() + READY_WITHIN_S
    while CLOCK.monotonic() < given_up_s and child.exit_code is None:
        if running := read_running(data_dir):
            return running.url
        time.sleep(LOOK_EVERY_S)
    raise Fault("cluster_not_started", "The cluster did not start.", log_tail(log))


def end_leftovers(data_dir: Path) -> list[int]:
    """No process that works in `data_dir` is left; returns the ids of those that there were.

    They are ranks and what supervises them, which outlive a cluster by design: known by their environment.
    """
    first = leftovers(data_dir)
    asyncio.run(_end(data_dir))
    return first


def leftovers(data_dir: Path) -> list[int]:
    """The ids of all processes, ours excepted, whose command line or environment names a path in `data_dir`."""
    wanted = str(data_dir.resolve()).encode() + b"/"
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):  # it has just ended, or is another user's
                if wanted in entry.joinpath("environ").read_bytes() + entry.joinpath("cmdline").read_bytes():
                    found.append(int(entry.name))
    return sorted(found)


async def _end(data_dir: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        pids = leftovers(data_dir)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(LEFTOVERS_WITHIN_S):
                for pid in pids:
                    await exited(pid)
