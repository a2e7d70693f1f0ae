"""Which runs the kernel has taken processes from for want of memory: by their control groups, and by its log."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from agent import cgroups
from agent.core.found import Told
from agent.files import overwrite, read
from agent.kernel_log import KernelLog, OomKill, Record, oom_kill
from agent.records import RunRecord, pids_of

SLACK_S: Final = 1.0  # that the clocks of the log and of processes may differ
TICKS_IN_S: Final = os.sysconf("SC_CLK_TCK")


class OutOfMemory:
    """Reads the kernel's log on from where an agent of this data directory left it in this boot."""

    def __init__(self, data_dir: Path, boot_id: str, log: KernelLog | None = None) -> None:
        self._path = data_dir / "kernel-log"
        self._boot_id = boot_id
        self._log = log or KernelLog()
        noted, _, mark = read(self._path).decode().partition(" ")
        self._mark = int(mark) if noted == boot_id else 0

    def hit(self, records: Iterable[RunRecord]) -> list[RunRecord]:
        """Those of `records` that it is news of."""
        asked = [record for record in records if not record.out_of_memory and Told.ENDED not in record.told]
        found = self._log.after(self._mark)
        kills = [(kill, one) for one in found if (kill := oom_kill(one)) is not None]
        if found:
            self._mark = found[-1].sequence
            with suppress(OSError):  # what is read twice is found twice, and counts once
                overwrite(self._path, f"{self._boot_id} {self._mark:020}".encode())
        return [one for one in asked if _by_group(one) or any(_is_of(kill, at, one) for kill, at in kills)]


def _by_group(record: RunRecord) -> bool:
    return bool(record.start.cgroup) and cgroups.oom_kills(record.start.cgroup) > 0


def _is_of(kill: OomKill, at: Record, record: RunRecord) -> bool:
    """Whether it was a rank of the run, or anything in its control group."""
    if kill.group:
        return bool(record.start.cgroup) and Path(kill.group).name == Path(record.start.cgroup).name
    ranks = (pids_of(record, rank) for rank in record.ranks)
    began_s = at.at_s + SLACK_S
    return any(one is not None and one.rank == kill.pid and one.ticks / TICKS_IN_S <= began_s for one in ranks)
