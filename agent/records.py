"""What an agent keeps on its disk: who it is, and for each run that it ever began or declined, what became of it here.

lock  identity.json  as_of  contact
runs/<run>/{start.json, stop.json, told, shipped.json, stop, checkpoint, saved, out-of-memory, rank-N.{lock,exit,log}}
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from agent.checkpoints import number_in
from agent.core.found import Step, Told, Why
from agent.core.patience import Contact
from agent.files import decoded, overwrite, read
from events.base import GpuUuid, JobId, NodeEpoch, NodeId, Position, RunId
from events.desired import DesiredShare
from runtime.files import sync_folder, write
from runtime.logging import get_logger

logger = get_logger(__name__)

WORK_KEPT_MAX: Final = 50  # folders of ended runs in which something was left
OUT_OF_MEMORY: Final = "out-of-memory"
GONE: Final = ".gone-"  # before the name of a folder that is being removed


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs may ask of a node."""

    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()
    version: str = ""  # of the agent's program: another one says so without beginning a new life


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who this agent is, and which life of the node it is in."""

    node_id: NodeId
    instance: str  # made with the data directory, and anew at each boot
    port_base: int
    folder: int = 0  # which data directory that is: a copy is another; 0: not noted
    former: tuple[str, ...] = ()  # instances that it was before, the last of them
    boot_id: str = ""  # of the life below
    gpu_uuids: tuple[GpuUuid, ...] = ()  # likewise
    epoch: NodeEpoch = NodeEpoch(0)  # 0: not made known yet
    pooled: tuple[GpuUuid, ...] = ()  # reported clean in it
    description: Description = Description()  # reported of it last


class StartRecord(msgspec.Struct, frozen=True, kw_only=True):
    """That a run was begun or declined here. Written before anything of it starts, kept until it has left desired."""

    share: DesiredShare
    epoch: NodeEpoch
    boot_id: str
    instance: str
    at_s: float  # on the machine's monotonic clock
    cgroup: str = ""
    declined: bool = False
    refusal: str = ""


class StopRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stop under way: so that an agent that restarts goes on with it."""

    why: Why
    began_s: float  # on the machine's monotonic clock
    step: Step
    cause: str | None = None
    killed_s: float = 0.0  # when KILL was sent first, on the same clock; 0: it was not


class ExitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How a rank ended, written by its supervisor when nothing of it was left."""

    code: int
    ended_s: float
    message: str = ""  # why it could not be started


class Pids(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of a rank, in its lock file once it has been started."""

    supervisor: int
    rank: int
    ticks: int  # when the rank started


@dataclass
class RunRecord:
    """What the disk holds of one run."""

    folder: Path
    start: StartRecord
    stop: StopRecord | None = None
    told: frozenset[Told] = field(default_factory=frozenset)
    saved: int = 0  # the last checkpoint that was told
    saved_s: float = 0.0  # when that was, by this agent, on the machine's monotonic clock
    out_of_memory: bool = False  # the kernel killed a process of it for want of memory

    def path(self, rank: int, kind: str) -> Path:
        """A file of one rank: `lock`, `exit` or `log`."""
        return self.folder / f"rank-{rank}.{kind}"

    @property
    def ranks(self) -> range:
        """The numbers in the gang of the ranks that the share starts."""
        share = self.start.share
        return range(share.first_rank, share.first_rank + share.local_size) if not self.start.declined else range(0)

    @property
    def checkpoint_file(self) -> Path:
        """Where the job writes the number of its last checkpoint that is safe."""
        return self.folder / "checkpoint"

    @property
    def stop_file(self) -> Path:
        """Where the job reads why it is being stopped, and how long it has."""
        return self.folder / "stop"


class Records:
    """The records under one data directory. One process at a time may hold them."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.absolute()
        self._runs_dir = self.data_dir / "runs"
        self._work_dir = self.data_dir / "work"
        for folder in (self._runs_dir, self._work_dir):
            folder.mkdir(parents=True, exist_ok=True)
        self.runs: dict[RunId, RunRecord] = {}
        self.as_of = Position(int(read(self.data_dir / "as_of") or b"0"))
        self._load()

    @property
    def folder(self) -> int:
        """What tells the data directory from a copy of it."""
        return self.data_dir.stat().st_ino

    def identity(self) -> Identity | None:
        """Who this agent is; None at its first start."""
        return decoded(self.data_dir / "identity.json", Identity)

    def keep_identity(self, identity: Identity) -> None:
        """`identity` is on the disk, if that can be written. Else the next agent has an older one, and joins anew."""
        if identity != self.identity():
            with _noted("identity"):
                write(self.data_dir / "identity.json", msgspec.json.encode(identity), lasting=True)

    def keep_as_of(self, as_of: Position) -> None:
        """Nothing older is obeyed from now on. It need not survive the machine: a new boot is a new epoch."""
        self.as_of = as_of
        overwrite(self.data_dir / "as_of", b"%020d" % as_of)

    def contact(self, boot_id: str) -> Contact | None:
        """The last contact that was noted in this boot."""
        noted, *seconds = read(self.data_dir / "contact").decode().split() or [""]
        if noted != boot_id or len(seconds) != len(Contact.__struct_fields__):
            return None  # of another boot, or of another version
        sent_s, patience_s, told_s = map(float, seconds)
        return Contact(sent_s=sent_s, patience_s=patience_s, told_s=told_s)

    def keep_contact(self, boot_id: str, contact: Contact) -> None:
        """An agent that restarts while the node is cut off does not begin to wait anew."""
        seconds = " ".join(f"{value:020.6f}" for value in msgspec.structs.astuple(contact))
        with _noted("contact"):
            overwrite(self.data_dir / "contact", f"{boot_id} {seconds}".encode())

    def begin(self, start: StartRecord) -> RunRecord:
        """The run is on the disk: it will never be started again."""
        run_id = start.share.run_id
        assert run_id not in self.runs
        folder = self._runs_dir / _file_name(run_id)
        folder.mkdir(exist_ok=True)  # without a record in it, nothing was started from it
        write(folder / "start.json", msgspec.json.encode(start), lasting=True)
        sync_folder(self._runs_dir)
        record = self.runs[run_id] = RunRecord(folder, start)
        return record

    def keep_stop(self, run_id: RunId, stop: StopRecord) -> None:
        """How far the stop has gone is known, and on the disk if that can be written: a full one stops no stop."""
        record = self.runs[run_id]
        record.stop = stop
        with _noted("stop"):
            write(record.folder / "stop.json", msgspec.json.encode(stop))

    def keep_told(self, run_id: RunId, told: Told) -> None:
        """The gate has accepted this of the run. A run that was forgotten meanwhile needs no note."""
        if (record := self.runs.get(run_id)) is not None:
            record.told |= {told}
            with _noted("told"), (record.folder / "told").open("a") as file:
                file.write(f"{told}\n")

    def keep_saved(self, run_id: RunId, number: int, at_s: float) -> None:
        """The gate has accepted that this checkpoint is safe: neither it nor one before it is told again."""
        if (record := self.runs.get(run_id)) is not None:
            record.saved, record.saved_s = number, at_s
            with _noted("saved"):
                write(record.folder / "saved", b"%d" % number)

    def keep_out_of_memory(self, record: RunRecord) -> None:
        """The kernel killed a process of the run for want of memory: that is in no log for ever."""
        record.out_of_memory = True
        with _noted("out of memory"):
            (record.folder / OUT_OF_MEMORY).touch()

    def forget(self, run_id: RunId) -> None:
        """Nothing is kept of the run, except what it left in a folder of its own."""
        folder = self.runs.pop(run_id).folder
        gone = folder.with_name(GONE + folder.name)
        folder.rename(gone)
        shutil.rmtree(gone)
        with suppress(OSError):  # something was left in it, or it never had one
            self.work_dir(run_id).rmdir()
            return
        kept = sorted(self._work_dir.iterdir(), key=lambda path: path.stat().st_mtime)
        in_use = {_file_name(name) for name in self.runs}
        for path in [path for path in kept if path.name not in in_use][:-WORK_KEPT_MAX]:
            shutil.rmtree(path)

    def work_dir(self, run_id: RunId) -> Path:
        """The folder that a run works in which asks for none."""
        return self._work_dir / _file_name(run_id)

    def checkpoint_dir(self, job_id: JobId) -> Path:
        """The folder for checkpoints of a job, for all its attempts on this node."""
        return self.data_dir / "checkpoints" / _file_name(job_id)

    def _load(self) -> None:
        for folder in sorted(self._runs_dir.iterdir()):
            start = decoded(folder / "start.json", StartRecord)
            if folder.name.startswith(GONE) or start is None:  # the agent ended while it removed or began it
                shutil.rmtree(folder)
                continue
            words = set(read(folder / "told").decode().split())
            told = frozenset(word for word in Told if word in words)  # of a word that was cut off, nothing is known
            stop = decoded(folder / "stop.json", StopRecord)
            saved = number_in(folder / "saved")
            short = (folder / OUT_OF_MEMORY).exists()
            self.runs[start.share.run_id] = RunRecord(folder, start, stop, told, saved, out_of_memory=short)


def exit_of(record: RunRecord, rank: int) -> ExitRecord | None:
    """How a rank ended; None while that is not recorded."""
    return decoded(record.path(rank, "exit"), ExitRecord)


def pids_of(record: RunRecord, rank: int) -> Pids | None:
    """The processes of a rank; None while it was not started."""
    data = read(record.path(rank, "lock"))
    return msgspec.json.decode(data, type=Pids) if data.endswith(b"}") else None


def tell_job(record: RunRecord, reason: str, deadline: str) -> None:
    """The stop file says why, and until when: signals cannot."""
    with _noted("stop file"):
        write(record.stop_file, msgspec.json.encode({"reason": reason, "deadline": deadline}))


@contextmanager
def _noted(what: str) -> Iterator[None]:
    """What is written in the block is kept if it can be: without it, something is done once more after a restart."""
    try:
        yield
    except OSError as error:
        logger.error("note_not_kept", note=what, error=str(error))


def _file_name(name: str) -> str:
    assert name not in {"", ".", ".."}
    assert "/" not in name, f"{name!r} cannot be the name of a folder"
    assert not name.startswith(GONE), f"{name!r} is one that is being removed"
    return name
