"""Child processes that end with us: started bound to our life, awaited without polling, ended with a deadline.

Also what an earlier life of ours may have left: its processes are found and ended, and a lock says who owns a folder.
"""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from runtime.fault import Fault

LAUNCH: Final = Path(__file__).with_name("launch.py")
LOG_BYTES_MAX: Final = (
    20 * 1024 * 1024
)  # looked at when a process starts: a longer log becomes `.1`, replacing the last
KILL_WAIT_S: Final = 5.0  # until a process must be gone after KILL; longer means that the kernel holds it
LOOK_EVERY_S: Final = 0.02  # where the kernel cannot tell us that a process has ended


@dataclass(frozen=True, kw_only=True)
class Account:
    """Another account to run as, and whether folders that are closed to it must be passed."""

    uid: int
    gid: int
    override: bool = False


@dataclass(frozen=True, kw_only=True)
class Command:
    """What to start: the program by its full path and its arguments, and where its output goes."""

    argv: Sequence[str]
    log: Path  # stdout and stderr are appended
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cwd: Path = Path("/")
    death_signal: signal.Signals = signal.SIGKILL  # what it gets when we die
    account: Account | None = None


class Child:
    """A running process of ours. Bound to no event loop: started in one, it may be ended in another."""

    def __init__(self, command: Command) -> None:
        # The kernel takes the thread that forked for the parent: one that ends early would take the child along.
        assert threading.current_thread() is threading.main_thread(), "children are started by the main thread"
        account = command.account
        owner = f"{account.uid}:{account.gid}" if account else "-"
        override = "1" if account and account.override else "0"
        bound = (str(os.getpid()), str(int(command.death_signal)), owner, override, "--")
        with _opened_log(command.log) as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LAUNCH), *bound, *command.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=command.env,
                cwd=command.cwd,
                start_new_session=True,  # Ctrl-C on the terminal is for us alone: we stop our children in order
            )

    @property
    def pid(self) -> int:
        """Its process id: that of the program itself, nothing stands between."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number if a signal ended it."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """The signal has been sent, if the process still runs."""
        self._process.send_signal(number)

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        while (code := self.exit_code) is None:
            await exited(self.pid)
        return code

    async def end(self, *steps: tuple[signal.Signals, float]) -> int:
        """Its exit code: each signal is given its seconds in turn, and KILL has the last word."""
        for number, within_s in (*steps, (signal.SIGKILL, KILL_WAIT_S)):
            self.send(number)
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    return await self.wait()
        raise Fault("process_stuck", f"Process {self.pid} does not end, not even by KILL.", "Look at its state in ps.")


def _opened_log(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        if path.stat().st_size > LOG_BYTES_MAX:
            path.replace(path.with_name(path.name + ".1"))
    return path.open("ab")


def log_tail(path: Path, lines_max: int = 15) -> str:
    """The last lines of a log, for the error that says why a process did not start."""
    with suppress(FileNotFoundError), path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - 8192))
        return "\n".join(log.read().decode(errors="replace").splitlines()[-lines_max:])
    return ""


async def exited(pid: int) -> None:
    """Return once process `pid`, a child or not, has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # an old kernel, or a sandbox
        while _alive(pid):  # noqa: ASYNC110 - nothing sets an event for us there
            await asyncio.sleep(LOOK_EVERY_S)
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def processes(match: Callable[[Sequence[str]], bool]) -> list[int]:
    """The ids of all processes, ours excepted, whose command line fits `match`, in ascending order."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):  # it has just ended
                argv = entry.joinpath("cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
                if match(argv):
                    found.append(int(entry.name))
    return sorted(found)


async def end_processes(match: Callable[[Sequence[str]], bool], *steps: tuple[signal.Signals, float]) -> list[int]:
    """None is left whose command line fits `match`; returns which there were. `steps` as in `Child.end`."""
    first = processes(match)
    for number, within_s in (*steps, (signal.SIGKILL, KILL_WAIT_S)):
        pids = processes(match)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for pid in pids:
                    await exited(pid)
        if not processes(match):
            return first
    raise Fault("process_stuck", f"Processes {processes(match)} of an earlier life do not end.", "Look at them in ps.")


class FolderLock:
    """Says that a folder is ours as long as we live: what runs on it that is not ours is left over."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._file: IO[str] | None = None

    def take(self) -> None:
        """The folder is ours, if it was not yet. Raises `Fault` if another living process has it, or none can."""
        if self._file is not None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = self._path.open("a+")
        except OSError as error:
            raise Fault(
                "folder_unusable",
                f"{self._path.parent} cannot be used: {error.strerror}.",
                "Choose a folder that can be made and written to.",
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as held:
            file.seek(0)
            owner = file.read().strip()
            file.close()
            raise Fault(
                "folder_in_use",
                f"{self._path.parent} is in use by process {owner}.",
                "Stop that one first, or choose another data directory.",
            ) from held
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._file = file

    def give_back(self) -> None:
        """The folder is free."""
        if self._file is not None:
            self._file.close()
            self._file = None
