"""Child processes: their output, their end, and what is left of others."""

import signal
import sys
from pathlib import Path

import pytest

from runtime import children
from runtime.children import Child, Command, FolderLock, end_processes, exited, log_tail, processes
from runtime.fault import Fault
from tests.fixtures.waiting import until

STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"


def _shell(script: str, log: Path) -> Child:
    return Child(Command(argv=("/bin/sh", "-c", script), log=log))


def _stubborn(log: Path, mark: str = "") -> Child:
    return Child(Command(argv=(sys.executable, "-I", "-S", "-c", STUBBORN, mark), log=log))


async def test_a_child_that_ignores_term_is_killed(tmp_path: Path) -> None:
    """KILL has the last word, once the grace is over."""
    child = _stubborn(tmp_path / "log")
    await until(lambda: "ready" in log_tail(tmp_path / "log"))
    assert await child.end((signal.SIGTERM, 0.1)) == -signal.SIGKILL


async def test_a_child_that_obeys_ends_with_its_own_code(tmp_path: Path) -> None:
    """Its exit code is its own; what it said is appended to its log."""
    child = _shell("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done", tmp_path / "log")
    await until(lambda: "ready" in log_tail(tmp_path / "log"))
    assert await child.end((signal.SIGTERM, 5)) == 3
    assert await child.wait() == 3
    assert log_tail(tmp_path / "log") == "ready\nbye"


async def test_a_program_that_is_not_there_is_told_in_the_log(tmp_path: Path) -> None:
    """The reason is where one looks for it."""
    child = Child(Command(argv=("/no/such/program",), log=tmp_path / "log"))
    assert await child.wait() == 71
    assert "No such file" in log_tail(tmp_path / "log")


async def test_the_parents_interrupt_is_not_the_childs(tmp_path: Path) -> None:
    """Ctrl-C reaches the foreground session only: the child is in one of its own."""
    child = Child(
        Command(
            argv=(sys.executable, "-I", "-c", "import os; print(os.getsid(0) == os.getpid())"), log=tmp_path / "log"
        )
    )
    assert await child.wait() == 0
    assert log_tail(tmp_path / "log") == "True"


async def test_a_long_log_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs have a limit: the last one is kept beside."""
    monkeypatch.setattr(children, "LOG_BYTES_MAX", 3)
    (tmp_path / "log").write_text("long")
    await _shell("echo new", tmp_path / "log").wait()
    assert ((tmp_path / "log").read_text(), (tmp_path / "log.1").read_text()) == ("new\n", "long")


async def test_waiting_works_where_the_kernel_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old kernels and sandboxes have no pidfd: then it is looked for."""

    def missing(_pid: int, _flags: int = 0) -> int:
        raise OSError

    monkeypatch.setattr("os.pidfd_open", missing)
    assert await _shell("sleep 0.05; exit 4", tmp_path / "log").wait() == 4
    await exited(2**22 + 1)


async def test_processes_of_another_life_are_found_and_ended(tmp_path: Path) -> None:
    """By their command line, and only those."""
    mark = f"mark-of-{tmp_path}"
    child, other = _stubborn(tmp_path / "log", mark), _stubborn(tmp_path / "other")
    await until(lambda: "ready" in log_tail(tmp_path / "log"))
    assert await end_processes(lambda argv: mark in argv[-1], (signal.SIGTERM, 0.05)) == [child.pid]
    assert processes(lambda argv: mark in argv[-1]) == []
    assert (child.exit_code, other.exit_code) == (-signal.SIGKILL, None)
    await other.end()


def test_a_folder_has_one_owner_at_a_time(tmp_path: Path) -> None:
    """The second is refused, until the first gives it back."""
    first, second = FolderLock(tmp_path), FolderLock(tmp_path)
    first.take()
    first.take()  # no matter how often
    with pytest.raises(Fault):
        second.take()
    first.give_back()
    second.take()
    second.give_back()
