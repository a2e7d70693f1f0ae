"""The processes of `muster up`: started in order, restarted when they die, stopped in reverse, none left behind."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from runtime.children import Child, Command
from runtime.clock import Clock
from runtime.stopping import Stop

WAIT_FIRST_S: Final = 0.2  # before the first restart; doubles with each that follows
WAIT_MOST_S: Final = 5.0
SOUND_AFTER_S: Final = 10.0  # having lived this long, its next death is a first one again


@dataclass(frozen=True, kw_only=True)
class Program:
    """A process to keep running. Python of ours starts with `-I`, so that no job's folder is on its path."""

    name: str  # its log is `<name>.log`
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)  # beside our own environment
    grace_s: float = 5.0  # from TERM to KILL
    cwd: Path = Path("/")


class Change(StrEnum):
    """What became of a process."""

    STARTED = "started"
    DIED = "died"  # though nobody asked it to
    STOPPED = "stopped"


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Tells that a process changed."""

    name: str
    change: Change
    pid: int
    exit_code: int | None = None  # minus the signal's number if one ended it
    restart_in_s: float | None = None  # of one that died


class Supervisor:
    """Keeps programs running until it is told to stop. They die with us, whatever kills us."""

    def __init__(
        self, programs: Sequence[Program], *, logs: Path, clock: Clock, tell: Callable[[Notice], None]
    ) -> None:
        self._programs = programs
        self._logs = logs
        self._clock = clock
        self._tell = tell
        self._running: dict[str, Child] = {}

    def pid(self, name: str) -> int | None:
        """The process id of a program now; None between its death and its restart."""
        child = self._running.get(name)
        return child.pid if child is not None and child.exit_code is None else None

    async def run(self, stop: Stop) -> None:
        """All have run until `stop`, and have ended, the last one started first."""
        keepers: list[asyncio.Task[None]] = []
        try:
            async with asyncio.TaskGroup() as group:
                for program in self._programs:
                    self._start(program)
                    keepers.append(group.create_task(self._keep(program)))
                await stop.wait()
                for keeper in keepers:
                    keeper.cancel()
        finally:
            for program in reversed(self._programs):
                await self._end(program)

    async def restart(self, name: str) -> None:
        """The program has been stopped in order; it comes back as after a death."""
        program = next(program for program in self._programs if program.name == name)
        await self._running[name].end((signal.SIGTERM, program.grace_s))

    def _start(self, program: Program) -> None:
        child = Child(
            Command(
                argv=program.argv,
                log=self._logs / f"{program.name}.log",
                env=dict(os.environ) | dict(program.env),
                cwd=program.cwd,
            )
        )
        self._running[program.name] = child
        self._tell(Notice(name=program.name, change=Change.STARTED, pid=child.pid))

    async def _keep(self, program: Program) -> None:
        """Never returns: the program is started again each time it has died."""
        wait_s = WAIT_FIRST_S
        while True:
            child = self._running[program.name]
            started_s = self._clock.monotonic()
            exit_code = await child.wait()
            if self._clock.monotonic() - started_s >= SOUND_AFTER_S:
                wait_s = WAIT_FIRST_S
            self._tell(
                Notice(name=program.name, change=Change.DIED, pid=child.pid, exit_code=exit_code, restart_in_s=wait_s)
            )
            await asyncio.sleep(wait_s)
            wait_s = min(WAIT_MOST_S, wait_s * 2)
            self._start(program)

    async def _end(self, program: Program) -> None:
        child = self._running.get(program.name)
        if child is not None and child.exit_code is None:
            exit_code = await child.end((signal.SIGTERM, program.grace_s))
            self._tell(Notice(name=program.name, change=Change.STOPPED, pid=child.pid, exit_code=exit_code))
