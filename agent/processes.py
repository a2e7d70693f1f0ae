"""The processes of runs: starting them under their supervisors, seeing where they stand, and signalling them."""

import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from agent import cgroups, procfs
from agent.core.found import EXIT_KILLED, LIVING, Phase, Rank, Step
from agent.environment import DATA_MARK, RUN_MARK, SUPERVISOR_MARK, Places, of_rank, of_supervisor
from agent.out_of_memory import OutOfMemory
from agent.records import Pids, RunRecord, exit_of, pids_of
from agent.supervise_rank import CANNOT_START, LOCK_FD, PLAN_FD
from events.base import JobId, RunId
from runtime.logging import get_logger

logger = get_logger(__name__)

SUPERVISE: Final = Path(__file__).with_name("supervise_rank.py")
LEFTOVER_GRACE_S: Final = 2.0  # what a rank leaves behind has this long after TERM
SUPERVISOR_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # meant for the agent: held back from them


class SupervisedProcesses:
    """All processes that the agent of one data directory has started, in this life of it or before."""

    def __init__(
        self, data_dir: Path, base: Mapping[str, str], *, cgroup_root: Path | None, checkpoint_dir: Path
    ) -> None:
        self._data_dir = data_dir.absolute()
        self._base = base
        self._checkpoints = checkpoint_dir
        self._cgroup_root = cgroup_root
        self.boot_id = procfs.boot_id()
        self._mark = f"{DATA_MARK}={self._data_dir}".encode()
        self._final: dict[tuple[RunId, int], Rank] = {}
        self._children: set[int] = set()  # supervisors that this process has started and not taken in
        self._watched: dict[int, int] = {}  # supervisor -> descriptor that tells of its end
        self._short = OutOfMemory(self._data_dir, self.boot_id)

    def cgroup_of(self, name: str) -> str:
        """A new control group for a run; empty where none can be made."""
        return cgroups.made(self._cgroup_root, name)

    def start(self, record: RunRecord, workdir: Path) -> None:
        """The supervisors of all ranks were started. A rank that cannot be started is found so."""
        share = record.start.share
        checkpoints = self._checkpoint_dir(record, share.job_id)
        places = Places(
            data_dir=self._data_dir,
            checkpoint_dir=checkpoints,
            checkpoint_file=record.checkpoint_file,
            stop_file=record.stop_file,
            workdir=workdir,
        )
        rank = share.first_rank
        try:
            checkpoints.mkdir(parents=True, exist_ok=True)
            if not share.spec.workdir:
                workdir.mkdir(parents=True, exist_ok=True)
            for local, rank in enumerate(record.ranks):
                env = of_rank(share, local, self._base, places)
                self._children.add(self._supervise(record, rank, _plan(record, rank, places, env)))
        except OSError as error:  # no process to be had, or no folder: the ranks begun are stopped by reconciling
            logger.error("rank_not_started", run_id=share.run_id, rank=rank, error=str(error))
            self._final[share.run_id, rank] = Rank(rank, Phase.REFUSED, CANNOT_START, 0.0, f"cannot start: {error}")

    def reap(self) -> None:
        """Supervisors that have ended, and were started by this process, are taken in."""
        for pid in list(self._children):
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            self._children.discard(pid)

    def ranks(self, record: RunRecord) -> tuple[Rank, ...]:
        """Where each rank of a run stands."""
        return tuple(self._rank(record, rank) for rank in record.ranks)

    def strays(self, record: RunRecord, ranks: tuple[Rank, ...]) -> bool:
        """Whether processes of a run live that no supervisor looks after."""
        if record.start.cgroup and not any(rank.phase in LIVING for rank in ranks):
            return cgroups.populated(record.start.cgroup)
        return bool(self._stray_pids(record, ranks))

    def step(self, record: RunRecord, step: Step) -> None:
        """The living ranks were sent what belongs to this rung of a stop."""
        ranks = self.ranks(record)
        living = [rank.rank for rank in ranks if rank.phase in LIVING]
        running = [pids for rank in living if (pids := pids_of(record, rank)) is not None]
        match step:
            case Step.CHECKPOINT if (contract := record.start.share.spec.checkpoint) is not None:
                for pids in running:
                    if procfs.is_same(pids.rank, pids.ticks):
                        _kill(pids.rank, signal.Signals[contract.signal])
            case Step.TERM:
                for pids in running:
                    if procfs.is_same(pids.rank, pids.ticks):
                        _kill_group(pids.rank, signal.SIGTERM)
            case Step.KILL:
                self._kill_all(record, ranks, running)
            case _:
                pass  # the job has no signal to be told by: it has the stop file

    def watch(self, record: RunRecord, rank: Rank, wake: Callable[[], None]) -> bool:
        """`wake` is called when the supervisor of a rank ends; False where the kernel cannot tell, or it is not known yet."""
        pids = pids_of(record, rank.rank)
        return pids is not None and (pids.supervisor in self._watched or self._watch(pids.supervisor, wake))

    def unwatch(self) -> None:
        """No supervisor is watched any more; all live on."""
        for pid in list(self._watched):
            self._unwatch(pid)

    def leftovers(self, known: set[RunId]) -> list[int]:
        """Processes of this data directory's runs that have no record."""
        names = {run_id.encode() for run_id in known}
        return [pid for pid, env in procfs.marked(self._mark) if env.get(RUN_MARK.encode()) not in names]

    def kill(self, pids: list[int]) -> None:
        """All of them were sent KILL."""
        kill(pids)

    def pids(self, record: RunRecord) -> tuple[int, ...]:
        """Processes of a run that live, in order: ranks and what they started, or else supervisors."""
        run_id = record.start.share.run_id.encode()
        marked = [(pid, env) for pid, env in procfs.marked(self._mark) if env.get(RUN_MARK.encode()) == run_id]
        supervisors = [pid for pid, env in marked if SUPERVISOR_MARK.encode() in env]
        ours = {*(pid for pid, _ in marked), *cgroups.pids(record.start.cgroup), *procfs.descendants(set(supervisors))}
        living = sorted(pid for pid in ours if procfs.is_alive(pid))
        return tuple([pid for pid in living if pid not in supervisors] or living)

    def out_of_memory(self, records: Iterable[RunRecord]) -> list[RunRecord]:
        """Those of these runs of which the kernel killed a process for want of memory, as far as it is news."""
        return self._short.hit(records)

    def forget(self, record: RunRecord) -> None:
        """Nothing is kept of a run that has ended."""
        if record.start.cgroup:
            cgroups.remove(record.start.cgroup)
        for rank in record.ranks:
            self._final.pop((record.start.share.run_id, rank), None)

    def _checkpoint_dir(self, record: RunRecord, job_id: JobId) -> Path:
        contract = record.start.share.spec.checkpoint
        return Path(contract.directory) if contract and contract.directory else self._checkpoints / job_id

    def _supervise(self, record: RunRecord, rank: int, plan: list[bytes]) -> int:
        """The pid of a new supervisor. It alone holds the lock of its rank: unlocked means that it is gone."""
        share = record.start.share
        lock = os.open(record.path(rank, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        plan_file = os.memfd_create("plan")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(plan_file, b"\0".join(plan))
            os.lseek(plan_file, 0, os.SEEK_SET)
            return os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", str(SUPERVISE)],
                of_supervisor(share, rank, self._data_dir),
                file_actions=_file_actions(lock, plan_file),
                setsid=True,
                setsigmask=SUPERVISOR_SIGNALS,
            )
        finally:
            os.close(plan_file)
            os.close(lock)

    def _rank(self, record: RunRecord, rank: int) -> Rank:
        key = record.start.share.run_id, rank
        if (known := self._final.get(key)) is not None:
            return known
        found = _look(record, rank)
        if found.phase not in LIVING:
            self._final[key] = found
        return found

    def _stray_pids(self, record: RunRecord, ranks: tuple[Rank, ...]) -> list[int]:
        """Processes of ranks whose supervisor is gone before its work was done."""
        orphaned = {str(rank.rank).encode() for rank in ranks if rank.phase in {Phase.LOST, Phase.ABSENT}}
        if not orphaned:
            return []
        mark = f"{RUN_MARK}={record.start.share.run_id}".encode()
        return [
            pid
            for pid, env in procfs.marked(mark)
            if env.get(b"RANK") in orphaned and env.get(DATA_MARK.encode()) == str(self._data_dir).encode()
        ]

    def _kill_all(self, record: RunRecord, ranks: tuple[Rank, ...], running: list[Pids]) -> None:
        """All that ranks started gets KILL, not their supervisors, which record it; one without a rank does too."""
        if record.start.cgroup:
            cgroups.kill(record.start.cgroup)
        for pid in procfs.descendants({pids.supervisor for pids in running}) if running else ():
            _kill(pid, signal.SIGKILL)
        for pid in self._stray_pids(record, ranks):
            _kill(pid, signal.SIGKILL)
        starting = {str(rank.rank).encode() for rank in ranks if rank.phase is Phase.STARTING}
        for pid, env in procfs.marked(f"{RUN_MARK}={record.start.share.run_id}".encode()) if starting else ():
            if env.get(SUPERVISOR_MARK.encode()) in starting:
                _kill(pid, signal.SIGKILL)

    def _watch(self, pid: int, wake: Callable[[], None]) -> bool:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            wake()
            return True
        except OSError:  # an old kernel, or a sandbox
            return False
        self._watched[pid] = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._ended, pid, wake)
        return True

    def _ended(self, pid: int, wake: Callable[[], None]) -> None:
        self._unwatch(pid)
        wake()

    def _unwatch(self, pid: int) -> None:
        descriptor = self._watched.pop(pid)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)


def kill(pids: list[int]) -> None:
    """All of them were sent KILL."""
    for pid in pids:
        _kill(pid, signal.SIGKILL)


def _look(record: RunRecord, rank: int) -> Rank:
    """Where a rank stands, by its files. The lock is asked first: what a supervisor wrote before it let go is seen."""
    held = _is_held(record.path(rank, "lock"))
    end = exit_of(record, rank)
    if held:
        return Rank(rank, Phase.RUNNING if pids_of(record, rank) else Phase.STARTING)
    if end is not None:
        return Rank(rank, Phase.REFUSED if end.message else Phase.EXITED, end.code, end.ended_s, end.message)
    if held is not None and pids_of(record, rank) is not None:
        return Rank(rank, Phase.LOST, EXIT_KILLED, 0.0, "the supervisor of the rank was ended")
    return Rank(rank, Phase.ABSENT, CANNOT_START)


def _is_held(path: Path) -> bool | None:
    """Whether a supervisor holds the lock; None where there never was one."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _plan(record: RunRecord, rank: int, places: Places, env: dict[str, str]) -> list[bytes]:
    """The fields that `supervise_rank` reads."""
    spec, group = record.start.share.spec, record.start.cgroup
    fields = [
        str(record.path(rank, "exit")),
        str(record.path(rank, "log")),
        spec.workdir or str(places.workdir),
        f"{group}/cgroup.procs" if group else "",
        str(LEFTOVER_GRACE_S),
        str(len(env)),
        *(f"{name}={value}" for name, value in env.items()),
        *spec.command,
    ]
    return [os.fsencode(field) for field in fields]


def _file_actions(lock: int, plan: int) -> list[tuple[int, int, int] | tuple[int, int, str, int, int]]:
    """0, 1 and 2 lead nowhere; the lock and the plan are where `supervise_rank` expects them, whatever was there."""
    high = [(os.POSIX_SPAWN_DUP2, lock, 100), (os.POSIX_SPAWN_DUP2, plan, 101)]
    low = [(os.POSIX_SPAWN_DUP2, 100, LOCK_FD), (os.POSIX_SPAWN_DUP2, 101, PLAN_FD)]
    closed = [(os.POSIX_SPAWN_CLOSE, 100), (os.POSIX_SPAWN_CLOSE, 101)]
    nowhere = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in range(3)]
    return [*nowhere, *high, *low, *closed]  # type: ignore[list-item]  # pairs are fine too


def _kill(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _kill_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, number)
