"""The node as its agent handles it: looked at as a whole, and changed by one action at a time. Knows no network."""

import platform
import secrets
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from agent import cgroups, procfs
from agent.checkpoints import number_in
from agent.core.action import Decline, EndLeftovers, Forget, ForgetReset, Local, Reset, Start, Stop
from agent.core.found import LIVING, Found, Step, Stopping, Told, Trace
from agent.core.ladder import unkillable
from agent.core.reconcile import in_question
from agent.gpus import Gpus
from agent.health import GpuHealth
from agent.machine import Life, Processes
from agent.processes import SupervisedProcesses
from agent.records import Identity, Records, RunRecord, StartRecord, StopRecord, tell_job
from agent.ship_logs import LogShipper
from events.base import NodeEpoch, NodeId
from events.desired import Desired
from runtime.clock import Clock
from runtime.fault import Fault
from runtime.logging import get_logger

logger = get_logger(__name__)

FORMER_MAX: Final = 8  # instances before this one that an agent remembers
PIDS_MAX: Final = 8  # that a report names
SAVED_EVERY_S: Final = 5.0  # between two reports of checkpoints of one run; the last one comes with its end
UNKILLABLE_AFTER_S: Final = 60.0  # from KILL, where the settings say nothing
UNSHIPPED_S: Final = 600.0  # so long after a run's end its output is waited for, then it is forgotten without


class Node:
    """Runs, GPUs and identity of one node, on the disk and alive."""

    def __init__(self, records: Records, identity: Identity, gpus: Gpus, processes: Processes, *, clock: Clock) -> None:
        self.records = records
        self.identity = identity
        self.gpus = gpus
        self.description = identity.description  # as it is now
        self.shipper: LogShipper | None = None  # before there is a connection, output waits
        self.health = GpuHealth(records.data_dir, gpus, processes.boot_id, clock)
        self.unkillable_after_s = UNKILLABLE_AFTER_S
        self._processes = processes
        self._clock = clock
        self._boot_id = processes.boot_id
        self._ended_s: dict[str, float] = {}  # when a run was first seen ended with output waiting
        self._may_have_leftovers = True  # of an earlier life with other records

    @property
    def alive(self) -> int:
        """Runs with living processes."""
        return sum(
            any(rank.phase in LIVING for rank in self._processes.ranks(record)) for record in self.records.runs.values()
        )

    def look(self, desired: Desired | None, *, silent_s: float, lost_after_s: float) -> Found:
        """The node as it is now."""
        self._processes.reap()
        self._note_out_of_memory()
        found = Found(
            instance=self.identity.instance,
            former=frozenset(self.identity.former),
            epoch=self.identity.epoch,
            gpus=frozenset(self.gpus.uuids),
            pooled=frozenset(self.identity.pooled),
            described=self.identity.description == self.description,
            leftovers=self._leftovers(),
            silent_s=silent_s,
            lost_after_s=lost_after_s,
            unkillable_after_s=self.unkillable_after_s,
            tellings=self.health.tellings,
            missing=self.health.missing,
            resetting=self.health.resetting,
            tried=self.health.tried,
            unready=self.health.unready,
            traces={run_id: self._trace(record) for run_id, record in self.records.runs.items()},
        )
        return replace(found, busy=self.gpus.busy(in_question(desired, found)))

    def carry_out(self, action: Local) -> None:
        """The action was done, as far as it can be done at once; raises `OSError` where it cannot."""
        match action:
            case Start(share):
                name = f"muster-{self.identity.instance}-{share.run_id}"
                start = self._record_of(action, cgroup=self._processes.cgroup_of(name))
                record = self.records.begin(start)
                self._processes.start(record, self.records.work_dir(share.run_id))
                logger.info("share_begun", run_id=share.run_id, ranks=share.local_size, gpus=len(share.gpu_uuids))
            case Decline(share, refusal):
                self.records.begin(self._record_of(action, refusal=refusal))
                self.health.tell_missing(share.gpu_uuids)
                logger.info("share_declined", run_id=share.run_id, refusal=refusal)
            case Stop():
                self._stop(action)
            case Forget(run_id):
                self._processes.forget(self.records.runs[run_id])
                if self.shipper is not None:
                    self.shipper.forget(run_id)
                self._ended_s.pop(run_id, None)
                self.records.forget(run_id)
            case EndLeftovers():
                pids = self._processes.leftovers(set(self.records.runs))
                logger.warning("leftovers_killed", pids=pids)
                self._processes.kill(pids)
            case Reset(gpu_uuid):
                self.health.reset(gpu_uuid)
            case ForgetReset(gpu_uuid):
                self.health.forget_reset(gpu_uuid)

    def watch(self, found: Found, wake: Callable[[], None]) -> bool:
        """`wake` is called when a rank ends; False where the kernel cannot tell, or one is not known yet."""
        known = True
        for run_id, trace in found.traces.items():
            if trace.alive:
                record = self.records.runs[run_id]
                for rank in trace.ranks:
                    if rank.phase in LIVING:
                        known = self._processes.watch(record, rank, wake) and known
        return known

    def unwatch(self) -> None:
        """No rank is watched any more; all live on."""
        self._processes.unwatch()

    def keep_identity(self, identity: Identity) -> None:
        """`identity` holds from now on, also after a restart."""
        self.records.keep_identity(identity)
        self.identity = identity

    def joined(self, epoch: NodeEpoch) -> None:
        """A new life of the node began at `epoch`: no GPU is in the pool."""
        uuids = tuple(self.gpus.uuids)
        life = replace(self.identity, epoch=epoch, boot_id=self._boot_id, gpu_uuids=uuids, pooled=())
        self.keep_identity(replace(life, description=self.description))
        self.health.joined()
        logger.info("node_joined", node_id=self.identity.node_id, epoch=epoch, gpus=len(uuids))

    @property
    def boot_id(self) -> str:
        """The id of the kernel's present life."""
        return self._boot_id

    def _trace(self, record: RunRecord) -> Trace:
        start, stop = record.start, record.stop
        this_boot = start.boot_id == self._boot_id
        ranks = self._processes.ranks(record)
        now_s = self._clock.monotonic()
        trace = Trace(
            share=start.share,
            epoch=start.epoch,
            this_boot=this_boot,
            declined=start.declined,
            refusal=start.refusal,
            ranks=ranks,
            strays=this_boot and not start.declined and self._processes.strays(record, ranks),
            age_s=now_s - start.at_s if this_boot else 0.0,
            stopping=_stopping(stop, now_s) if stop else None,
            told=record.told,
        )
        trace = replace(trace, saved=self._saved(record, now_s, ended=not trace.alive))
        if trace.alive:
            unkilled = unkillable(trace, self.unkillable_after_s) and Told.UNKILLABLE not in record.told
            return replace(trace, pids=self._processes.pids(record)[:PIDS_MAX]) if unkilled else trace
        return replace(trace, shipped=self._shipped(record, now_s), out_of_memory=record.out_of_memory)

    def _note_out_of_memory(self) -> None:
        """What the kernel did is noted before an end is told."""
        for record in self._processes.out_of_memory(self.records.runs.values()):
            self.records.keep_out_of_memory(record)

    def _saved(self, record: RunRecord, now_s: float, *, ended: bool) -> int:
        """The checkpoint of a run that is to be told now: rank 0 says so, on its node, and not too often."""
        if record.start.share.first_rank or record.start.declined or Told.ENDED in record.told:
            return 0
        if not ended and record.saved and now_s < record.saved_s + SAVED_EVERY_S:
            return 0
        number = number_in(record.checkpoint_file)
        return number if number > record.saved else 0

    def _shipped(self, record: RunRecord, now_s: float) -> bool:
        if self.shipper is not None and not self.shipper.waits(record):
            return True
        return now_s - self._ended_s.setdefault(record.start.share.run_id, now_s) > UNSHIPPED_S

    def _leftovers(self) -> bool:
        if self._may_have_leftovers:
            self._may_have_leftovers = bool(self._processes.leftovers(set(self.records.runs)))
        return self._may_have_leftovers

    def _record_of(self, action: Start | Decline, *, cgroup: str = "", refusal: str = "") -> StartRecord:
        return StartRecord(
            share=action.share,
            epoch=self.identity.epoch,
            boot_id=self._boot_id,
            instance=self.identity.instance,
            at_s=self._clock.monotonic(),
            cgroup=cgroup,
            declined=isinstance(action, Decline),
            refusal=refusal,
        )

    def _stop(self, action: Stop) -> None:
        """The rung is recorded, then taken: a signal may be missed by a crash between, and is not sent twice."""
        record = self.records.runs[action.run_id]
        before = record.stop
        if before is None:
            reason = action.cause or action.why.value
            until = self._clock.now() + timedelta(seconds=action.grace_s)
            tell_job(record, reason, until.isoformat(timespec="seconds"))
        if before is None or before.step is not action.step:
            began_s = before.began_s if before else self._clock.monotonic()
            killed_s = self._clock.monotonic() if action.step is Step.KILL else 0.0
            stop = StopRecord(why=action.why, began_s=began_s, step=action.step, cause=action.cause, killed_s=killed_s)
            self.records.keep_stop(action.run_id, stop)
            logger.info(
                "share_stopping", run_id=action.run_id, why=action.why, cause=action.cause, step=action.step.name
            )
        self._processes.step(record, action.step)


def _stopping(stop: StopRecord, now_s: float) -> Stopping:
    return Stopping(stop.why, now_s - stop.began_s, stop.step, now_s - stop.killed_s if stop.killed_s else 0.0)


def identified(records: Records, node_id: NodeId, gpus: Gpus, choose_ports: Callable[[], int], life: Life) -> Identity:
    """Who this agent is. Within one boot and with the same GPUs it goes on with its epoch; else it has none yet.

    On another machine, in another boot or in a copy of the data directory it is another agent: then two that began with
    the same files are told apart, and the newer one counts. Raises `Fault` when the data directory belongs to another node.
    """
    identity = records.identity()
    if identity is None:
        identity = Identity(node_id=node_id, instance=life.instance, port_base=choose_ports())
    if identity.node_id != node_id:
        raise Fault(
            "node_mistaken",
            f"{records.data_dir} belongs to node {identity.node_id!r}, not {node_id!r}.",
            "Give each node a data directory of its own.",
        )
    here = (identity.boot_id or life.boot_id, identity.folder or records.folder)
    if here != (life.boot_id, records.folder):
        logger.info("identity_renewed", node_id=node_id, before=identity.instance)
        former = (*identity.former, identity.instance)[-FORMER_MAX:]
        identity = replace(identity, instance=life.instance, former=former, boot_id="")
    if (identity.boot_id, identity.gpu_uuids) != (life.boot_id, tuple(gpus.uuids)):
        identity = replace(identity, epoch=NodeEpoch(0), boot_id="", gpu_uuids=(), pooled=())
    identity = replace(identity, folder=records.folder)
    records.keep_identity(identity)
    return identity


def this_life() -> Life:
    """Of this machine, now, with a name that is drawn."""
    return Life(procfs.boot_id(), secrets.token_hex(8))


def host_name() -> str:
    """The machine's name."""
    return platform.node().partition(".")[0].lower()


def processes_of(
    data_dir: Path, base: Mapping[str, str], *, checkpoint_dir: Path | None, contain: bool
) -> SupervisedProcesses:
    """The processes of an agent; `contain` in control groups where those can be made."""
    root = cgroups.root_of_runs() if contain else None
    return SupervisedProcesses(
        data_dir, base, cgroup_root=root, checkpoint_dir=checkpoint_dir or data_dir / "checkpoints"
    )
