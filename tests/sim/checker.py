"""What must hold after every step of the log and of the machines. Trusts no fold: books of the audit, and some of its own."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from agent.files import read as read_file
from events.base import Event, NodeId, Position, Recorded, RunId, job_id_of
from events.desired import Desired
from events.fleet import NodeLost
from events.head import LeadershipTaken, RoundDecided
from events.job import (
    JobCancelled,
    JobFailed,
    JobPlaced,
    JobRejected,
    JobRequeued,
    JobSubmitted,
    JobSucceeded,
    JobTimedOut,
    OnLost,
    RunStarted,
    RunStopping,
)
from events.node import GpusFoundClean, GpusReleased, NodeJoined, ShareStarted
from projections.cluster.audit.audit import read
from projections.cluster.audit.books import Books, slots_of
from tests.sim.heard import Heard
from tests.sim.machine import Machine, RankProcess
from tests.sim.shut import Shut
from tests.sim.trace import Trace

STEADY_S: Final = 10.0  # for which an agent has run undisturbed before it fell silent, and is to have done its part
TURNS_MAX: Final = 20  # times that the lead is taken within a second: each time by who was shut out a moment ago
ENDS: Final = (JobRejected, JobSucceeded, JobFailed, JobCancelled, JobTimedOut)


class Checker:
    """Reads each record as it is written, and looks at each process as it starts."""

    def __init__(self, trace: Trace, machines: Mapping[NodeId, Machine]) -> None:
        self.trace = trace
        self.machines = machines
        self.books = Books()
        self.jobs: dict[str, JobSubmitted] = {}
        self.placed: dict[RunId, JobPlaced] = {}
        self.ended: dict[str, str] = {}  # jobs, and how
        self.stopping: dict[RunId, Position] = {}  # runs that are to end, since when
        self.over: set[RunId] = set()  # runs that are settled
        self.up: set[tuple[RunId, NodeId]] = set()  # shares that said that they started
        self.lives: dict[NodeId, tuple[int, tuple[str, ...]]] = {}  # the present one, and its GPUs by slot
        self.released: set[tuple[RunId, NodeId]] = set()
        self.lost: set[tuple[NodeId, int]] = set()
        self.begun: set[tuple[str, int]] = set()  # every rank that was ever started, by its folder
        self.shut = Shut()
        self.heard = Heard(lambda: trace.now_s)
        self.turns: deque[datetime] = deque(maxlen=TURNS_MAX)
        self.desired: dict[str, int] = {}
        self.decided_at = Position(0)
        self.steady: Callable[[NodeId], float] = lambda _node_id: 0.0  # for how long its agent has run undisturbed
        self.steps = 0
        self._found = 0

    # The log

    def record(self, recorded: Recorded) -> None:
        """One more record is in the log."""
        self.steps += 1
        event = recorded.event
        self.trace.note("log", type(event).__name__, at=recorded.position & 0xFFFFFFFF, **_told(event))
        read(self.books, recorded)
        for finding in self.books.findings[self._found :]:
            self.trace.broke(f"audit: {finding.law}", finding.message)
        self._found = len(self.books.findings)
        for kinds, reader in READERS:
            if isinstance(event, kinds):
                reader(self, recorded, event)
        self.shut.read(recorded)

    def superseded(self, node_id: NodeId, epoch: int) -> bool:
        """Whether a life of a node is over, as the log has it."""
        return self.lives.get(node_id, (0, ()))[0] != epoch or (node_id, epoch) in self.lost

    def decides(self, plane: str, decision: Sequence[Event]) -> None:
        """A plane is about to append this, whether it may or not."""
        for message in self.heard.against(plane, decision):
            self.trace.broke("who is heard is not given up", message)

    def _leads(self, recorded: Recorded, e: LeadershipTaken) -> None:
        self.turns.append(recorded.at)
        if len(self.turns) == TURNS_MAX and recorded.at - self.turns[0] < timedelta(seconds=1):
            self.trace.broke("the lead is not taken by turns", f"{e.instance}: {TURNS_MAX} times within a second")

    def _stopping(self, recorded: Recorded, e: RunStopping) -> None:
        self.stopping.setdefault(e.run_id, recorded.position)

    def _submitted(self, _recorded: Recorded, e: JobSubmitted) -> None:
        self.jobs[e.job_id] = e

    def _decided(self, _recorded: Recorded, e: RoundDecided) -> None:
        self.decided_at = e.decided_at

    def _placed(self, _recorded: Recorded, e: JobPlaced) -> None:
        self.placed[e.run_id] = e
        for share in e.shares:
            _, uuids = self.lives.get(share.node_id, (0, ()))
            for reason in self.shut.against(share, uuids, self.decided_at):
                self.trace.broke("nothing new where it is shut", f"{e.run_id} is placed on {share.node_id}: {reason}")

    def _run_over(self, _recorded: Recorded, e: Any) -> None:
        if run_id := getattr(e, "run_id", ""):
            self.over.add(run_id)
        if isinstance(e, ENDS):
            self.ended[e.job_id] = type(e).__name__

    def _joined(self, recorded: Recorded, e: NodeJoined) -> None:
        known = list(self.lives.get(e.node_id, (0, ()))[1])
        known += [uuid for uuid in e.gpu_uuids if uuid not in known]
        self.lives[e.node_id] = (recorded.position, tuple(known))

    def _node_lost(self, _recorded: Recorded, e: NodeLost) -> None:
        """Who is given up has ended what may be started elsewhere, if anybody was there to end it."""
        if not self.superseded(e.node_id, e.node_epoch) and self.steady(e.node_id) > e.silent_s + STEADY_S:
            for rank in self.machines[e.node_id].living:
                spec, plan = self.jobs[rank.job_id].spec, self.machines[e.node_id].plan_of(rank)
                if rank.epoch == e.node_epoch and spec.on_lost is OnLost.RESTART and not plan.unkillable_s:
                    self.trace.broke(
                        "who is given up has ended", f"{e.node_id}: rank {rank.rank} of {rank.run_id} lives"
                    )
        self.lost.add((e.node_id, e.node_epoch))

    def _share_started(self, _recorded: Recorded, e: ShareStarted) -> None:
        """Also where its node has begun another life since: the whole gang was up then, if not for long."""
        placed = self.placed.get(e.run_id)
        if placed is not None and any((s.node_id, s.node_epoch) == (e.node_id, e.node_epoch) for s in placed.shares):
            self.up.add((e.run_id, e.node_id))

    def _run_started(self, _recorded: Recorded, e: RunStarted) -> None:
        missing = [s.node_id for s in self.placed[e.run_id].shares if (e.run_id, s.node_id) not in self.up]
        if missing:
            self.trace.broke("no partial gang", f"{e.run_id} counts as started, and {missing} said nothing")

    def _released(self, _recorded: Recorded, e: GpusReleased) -> None:
        alive = [r for r in self.machines[e.node_id].living if (r.run_id, r.epoch) == (e.run_id, e.node_epoch)]
        if alive:
            self.trace.broke("nothing is released that lives", f"{e.run_id} on {e.node_id}: rank {alive[0].rank}")
        epoch, uuids = self.lives.get(e.node_id, (0, ()))
        gpus = frozenset(uuids[slot] for slot in slots_of(e.slots) if slot < len(uuids))
        first = (e.run_id, e.node_id) not in self.released  # what comes twice may come late
        self.released.add((e.run_id, e.node_id))
        if first and epoch == e.node_epoch and (held := self.machines[e.node_id].busy(gpus)):
            self.trace.broke("nothing is released that is held", f"{e.run_id} on {e.node_id}: {sorted(held)}")

    def _clean(self, _recorded: Recorded, e: GpusFoundClean) -> None:
        if self.superseded(e.node_id, e.node_epoch):
            return  # late: it changes nothing
        for rank in self.machines[e.node_id].living:
            if rank.epoch != e.node_epoch and set(rank.gpus) & set(e.gpu_uuids):
                self.trace.broke("clean means free", f"{e.node_id}: rank {rank.rank} of {rank.run_id} lives")

    # The machines

    def starts(self, machine: Machine, rank: RankProcess) -> None:
        """A rank is started, or is up."""
        name, node_id = f"rank {rank.rank} of {rank.run_id}", machine.node_id
        self.trace.note(machine.node_id, f"rank_{rank.phase.value}", run=rank.run_id, rank=rank.rank)
        if rank.phase.value == "starting":
            key = (f"{rank.folder}", rank.rank)
            if key in self.begun:
                self.trace.broke("no rank is started twice", f"{name} on {node_id}")
            self.begun.add(key)
            self._may_start(machine, rank)
        for other in machine.living:
            if other.run_id != rank.run_id and set(other.gpus) & set(rank.gpus):
                self.trace.broke("no GPU is held by two", f"{name} and {other.run_id} on {node_id}")

    def _may_start(self, machine: Machine, rank: RankProcess) -> None:
        name, node_id = f"rank {rank.rank} of {rank.run_id}", machine.node_id
        placed = self.placed.get(rank.run_id)
        share = next((s for s in placed.shares if s.node_id == node_id), None) if placed else None
        if share is None or share.node_epoch != rank.epoch:
            self.trace.broke("what runs was placed", f"{name} on {node_id} in epoch {rank.epoch}: {share}")
            return
        _, uuids = self.lives[node_id]
        gpus = tuple(uuids[slot] for slot in slots_of(share.slots))
        if gpus != rank.gpus:
            self.trace.broke("what runs was placed", f"{name} has {rank.gpus}, placed were {gpus}")
        if self.superseded(node_id, rank.epoch):
            return  # its life was given up: whatever it does counts for nothing
        if rank.run_id in self.over or rank.job_id in self.ended:
            self.trace.broke("nothing starts after its end", f"{name} on {node_id}: {self.ended.get(rank.job_id)}")
        obeyed = int(read_file(rank.folder.parent.parent / "as_of") or b"0")
        if 0 < self.stopping.get(rank.run_id, 0) <= obeyed:
            self.trace.broke("what is to stop is not started", f"{name} on {node_id}, which obeys {obeyed}")
        waits = self.jobs[rank.job_id].spec.on_lost is OnLost.WAIT
        for other_node, other_machine in self.machines.items():
            for other in other_machine.living:
                if other.job_id != rank.job_id or other.run_id == rank.run_id:
                    continue
                if waits or not self.superseded(other_node, other.epoch):
                    self.trace.broke(
                        "one attempt at a time", f"{name} starts, and {other.run_id} lives on {other_node}"
                    )

    # Desired

    def wrote(self, subject: str, payload: bytes) -> None:
        """A desired value was written."""
        desired = DECODE.decode(payload)
        if desired.as_of < self.desired.get(subject, 0):
            self.trace.broke("desired never goes back", f"{subject}: {desired.as_of} after {self.desired[subject]}")
        self.desired[subject] = desired.as_of
        runs = [f"{share.run_id}:{share.order}" for share in desired.shares]
        self.trace.note("desired", desired.node_id, as_of=desired.as_of & 0xFFFFFFFF, lost=desired.lost, runs=runs)


DECODE: Final = msgspec.json.Decoder(Desired)

READERS: Final[list[tuple[Any, Callable[[Checker, Recorded, Any], None]]]] = [
    (JobSubmitted, Checker._submitted),
    (RoundDecided, Checker._decided),
    (LeadershipTaken, Checker._leads),
    (RunStopping, Checker._stopping),
    (JobPlaced, Checker._placed),
    ((JobRequeued, *ENDS), Checker._run_over),
    (NodeJoined, Checker._joined),
    (NodeLost, Checker._node_lost),
    (ShareStarted, Checker._share_started),
    (RunStarted, Checker._run_started),
    (GpusReleased, Checker._released),
    (GpusFoundClean, Checker._clean),
]

TOLD: Final = ("run_id", "job_id", "node_id", "cause", "code", "gpu_uuid", "action", "account", "reason", "instance")


def _told(event: Any) -> dict[str, Any]:
    said = {name: getattr(event, name) for name in TOLD if getattr(event, name, "")}
    if isinstance(event, JobPlaced):
        said["shares"] = [f"{share.node_id}:{share.slots:b}" for share in event.shares]
    if (run_id := said.get("run_id")) and said.get("job_id") == job_id_of(run_id):
        del said["job_id"]
    return said
