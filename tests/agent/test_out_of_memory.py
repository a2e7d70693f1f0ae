"""Whose process the kernel killed for want of memory: by its log, and by what a control group counts."""

from pathlib import Path

import pytest

from agent import cgroups
from agent.core.found import Told
from agent.kernel_log import KernelLog
from agent.out_of_memory import TICKS_IN_S, OutOfMemory
from agent.records import Records, RunRecord, StartRecord
from events.base import GpuUuid, NodeEpoch
from tests.agent.control import share_of

BOOT = "b1"
NAME = "muster-i-jaa-1"


def begun(folder: Path, cgroup: str = "", *, pid: int = 4711, ticks: int = 0) -> RunRecord:
    """A run whose only rank has this process."""
    share = share_of((GpuUuid("g"),), "true")
    start = StartRecord(share=share, epoch=NodeEpoch(1), boot_id=BOOT, instance="i", at_s=0.0, cgroup=cgroup)
    record = Records(folder).begin(start)
    record.path(0, "lock").write_text(f'{{"supervisor":1,"rank":{pid},"ticks":{ticks}}}')
    return record


def said(folder: Path, text: str, *, at_s: float = 100.0) -> OutOfMemory:
    """After the kernel said this, to an agent that has just started."""
    log = folder / "kmsg"
    log.write_text(f"4,7,{at_s * 1e6:.0f},-;{text}\n")
    return OutOfMemory(folder, BOOT, KernelLog(log))


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        ("Out of memory: Killed process 4711 (python) total-vm:1kB", True),
        ("Out of memory: Killed process 4712 (python) total-vm:1kB", False),
        (f"oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/a/{NAME},task=worker,pid=99,uid=0", True),
        (f"oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/a/{NAME}0,task=worker,pid=99,uid=0", False),
        ("nothing of the kind", False),
    ],
)
def test_a_run_is_hit_when_its_rank_or_anything_in_its_group_was_killed(
    tmp_path: Path, text: str, *, hit: bool
) -> None:
    """What a rank started is known by the group alone."""
    record = begun(tmp_path, f"/sys/fs/cgroup/x/{NAME}")
    assert said(tmp_path, text).hit([record]) == [record] * hit


def test_a_process_that_had_the_same_number_before_the_rank_was_another(tmp_path: Path) -> None:
    """By the kernel's clock; the log goes back to the boot."""
    record = begun(tmp_path, ticks=50 * TICKS_IN_S)
    text = "Out of memory: Killed process 4711 (python) total-vm:1kB"
    assert said(tmp_path, text, at_s=40.0).hit([record]) == []
    assert said(tmp_path / "work", text, at_s=60.0).hit([record]) == [record]


def test_what_was_read_is_not_read_again_in_this_boot(tmp_path: Path) -> None:
    """After a restart either; and what is known of a run, or was told of it, is no news."""
    record = begun(tmp_path)
    text = "Out of memory: Killed process 4711 (python) total-vm:1kB"
    assert said(tmp_path, text).hit([record]) == [record]
    assert said(tmp_path, text).hit([record]) == []
    (tmp_path / "kernel-log").unlink()
    record.told = frozenset({Told.ENDED})
    assert said(tmp_path, text).hit([record]) == []


def test_a_group_counts_what_the_kernel_killed_in_it(tmp_path: Path) -> None:
    """As it writes it; a group without the memory controller counts nothing."""
    record = begun(tmp_path, str(tmp_path))
    quiet = OutOfMemory(tmp_path, BOOT, KernelLog(tmp_path / "none"))
    assert quiet.hit([record]) == []
    (tmp_path / "memory.events").write_text("low 0\nhigh 3\nmax 9\noom 2\noom_kill 0\noom_group_kill 0\n")
    assert quiet.hit([record]) == []
    (tmp_path / "memory.events").write_text("low 0\nhigh 3\nmax 9\noom 2\noom_kill 1\noom_group_kill 1\n")
    assert quiet.hit([record]) == [record]


def test_a_group_that_is_short_of_memory_ends_as_a_whole() -> None:
    """Where the kernel has the controller for it."""
    group = Path(cgroups.made(cgroups.root_of_runs(), "muster-test-together") or "/none")
    try:
        if not (group / "memory.oom.group").exists():
            pytest.skip("control groups of the second version have no memory controller here")
        assert (group / "memory.oom.group").read_text() == "1\n"
    finally:
        cgroups.remove(str(group))
