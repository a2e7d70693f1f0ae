"""Supervision: what dies comes back, what is stopped stays away, and the order holds."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime import supervise
from runtime.children import log_tail
from runtime.clock import SystemClock
from runtime.stopping import Stop
from runtime.supervise import Change, Notice, Program, Supervisor
from tests.fixtures.waiting import until

OBEYS = "trap 'echo bye; exit 0' TERM; echo $NAME; while :; do sleep 0.01; done"
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.01; done"


def _program(name: str, script: str, grace_s: float = 5.0) -> Program:
    return Program(name=name, argv=("/bin/sh", "-c", script), env={"NAME": name}, grace_s=grace_s)


def _supervisor(programs: list[Program], logs: Path, tell: Callable[[Notice], None]) -> Supervisor:
    return Supervisor(programs, logs=logs, clock=SystemClock(), tell=tell)


def _exists(pid: int | None) -> bool:
    return pid is not None and Path(f"/proc/{pid}").exists()


async def test_the_last_started_is_stopped_first_and_none_is_left(tmp_path: Path) -> None:
    """What depends on another goes before it; one that does not obey is killed when its grace is over."""
    notices: list[Notice] = []
    programs = [_program("one", OBEYS), _program("two", STUBBORN, grace_s=0.1), _program("three", OBEYS)]
    supervisor = _supervisor(programs, tmp_path, notices.append)
    stop = Stop()
    running = asyncio.create_task(supervisor.run(stop))
    await until(lambda: all(log_tail(tmp_path / f"{program.name}.log") for program in programs))
    pids = [supervisor.pid(program.name) for program in programs]

    stop.request("test")
    await running

    assert [(notice.name, notice.change) for notice in notices] == [
        *((name, Change.STARTED) for name in ("one", "two", "three")),
        *((name, Change.STOPPED) for name in ("three", "two", "one")),
    ]
    assert [notice.exit_code for notice in notices[3:]] == [0, -signal.SIGKILL, 0]
    assert not any(map(_exists, pids))
    assert log_tail(tmp_path / "one.log") == "one\nbye"


async def test_what_dies_comes_back_after_waits_that_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that dies at once is not started in a busy loop, and the waits end growing."""
    monkeypatch.setattr(supervise, "WAIT_FIRST_S", 0.01)
    monkeypatch.setattr(supervise, "WAIT_MOST_S", 0.04)
    notices: list[Notice] = []
    stop = Stop()

    def tell(notice: Notice) -> None:
        notices.append(notice)
        if len(notices) == 9:
            stop.request("enough")

    await _supervisor([_program("one", "exit 7")], tmp_path, tell).run(stop)

    died = [notice for notice in notices if notice.change is Change.DIED]
    assert [notice.restart_in_s for notice in died[:4]] == [0.01, 0.02, 0.04, 0.04]
    assert {notice.exit_code for notice in died} == {7}


async def test_a_killed_program_is_a_new_process_soon(tmp_path: Path) -> None:
    """KILL from outside is a death like any other; `restart` is one that was wanted."""
    notices: list[Notice] = []
    supervisor = _supervisor([_program("one", OBEYS)], tmp_path, notices.append)
    stop = Stop()
    running = asyncio.create_task(supervisor.run(stop))
    await until(lambda: supervisor.pid("one") and log_tail(tmp_path / "one.log"))
    first = supervisor.pid("one")
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: supervisor.pid("one") not in {None, first})
    await until(lambda: log_tail(tmp_path / "one.log") == "one\none")
    await supervisor.restart("one")
    await until(lambda: log_tail(tmp_path / "one.log") == "one\none\nbye\none")
    stop.request("test")
    await running
    assert [notice.exit_code for notice in notices if notice.change is Change.DIED] == [-signal.SIGKILL, 0]


async def test_a_cancelled_supervisor_leaves_nothing_running(tmp_path: Path) -> None:
    """However it ends, its programs end with it."""
    supervisor = _supervisor([_program("one", OBEYS)], tmp_path, lambda _notice: None)
    running = asyncio.create_task(supervisor.run(Stop()))
    await until(lambda: log_tail(tmp_path / "one.log"))
    pid = supervisor.pid("one")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not _exists(pid)
