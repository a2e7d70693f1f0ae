"""Histories that the log could hold: real rounds between random asks, reports, losses and returns, from a seed.

Reports come late, twice, in part and from earlier lives; facts land between a decision and its commit; leaders change.
"""

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from hypothesis import strategies as st

from events.accounts import Account, AccountsSet
from events.base import (
    START,
    AccountId,
    Event,
    GpuUuid,
    JobId,
    NodeEpoch,
    NodeId,
    Position,
    Recorded,
    RunId,
    SlotMask,
    TeamId,
    position_of,
)
from events.credit import CreditCommitted
from events.gpu import GpuRecovered, GpuResetFailed, GpuSignal, GpuSignalled, Recovery
from events.head import LeadershipTaken, LogFounded
from events.job import (
    GpusEarmarked,
    HoldCode,
    JobCancelRequested,
    JobPlaced,
    JobResumeAsked,
    JobSpec,
    JobSubmitted,
    NodeShare,
)
from events.node import (
    CheckpointSaved,
    EndReason,
    GpusFoundClean,
    GpusReleased,
    NodeJoined,
    RanksUnkillable,
    ShareEnded,
    ShareStarted,
)
from events.operator import GpuReturnAsked, NodeCordoned, NodeUncordoned, NodeUndrainAsked
from events.policy import Consolidation, PolicySet
from events.queues import QueuesSet
from projections.cluster.evolve import evolve
from projections.cluster.node import NodeState
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.control.round import decide_all
from tests.asked import TEAMS, a_policy, a_small_spec, a_spec, size_of, some_queues, stands
from tests.spending import an_ask, some_accounts, some_prices

BEGIN: Final = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
NODES: Final = 8


class History:
    """A log that grows by random steps, with its fold. The agents in it tell the truth, but not always in time."""

    def __init__(self, seed: int) -> None:
        """Every other one begins crowded: all nodes are there, and more is asked for than they hold."""
        self.random = Random(seed)
        self.records: list[Recorded] = []
        self.cluster = Cluster()
        self.kinds: Counter[str] = Counter()
        self.at = BEGIN
        self.epochs: list[tuple[NodeId, NodeEpoch, tuple[GpuUuid, ...]]] = []  # every life of every node
        self.placed: list[JobPlaced] = []
        self.ended: set[tuple[RunId, NodeId]] = set()  # shares that said how they ended
        self.jobs: list[JobSubmitted] = []
        self.commits: list[Recorded] = []  # what runs were charged
        self.asks = 0
        self.add(LogFounded(at=self.at, log_id="test", cell="main"))
        self.add(LeadershipTaken(at=self.at, instance="a", version=""))
        if seed % 3:
            self.fund()
        if seed % 2:
            self.crowd()
        if seed % 4 == 3:
            self.scatter()

    def crowd(self) -> None:
        """All nodes are there and clean, teams share them, and a policy lets things happen."""
        for number in range(NODES):
            self.join(number)
            node_id, epoch, uuids = self.epochs[-1]
            self.add(GpusFoundClean(at=self.at, node_id=node_id, node_epoch=epoch, gpu_uuids=uuids))
        self.add(a_policy(self.random, self.at))
        for _ in range(self.random.randrange(24)):
            self.submit()

    def fund(self) -> None:
        """Accounts pay for teams, GPUs have prices, and something was granted."""
        self.add(some_accounts(self.random, self.at), some_prices(self.random, self.at))
        for _ in range(4):
            self.ask()

    def ask(self) -> None:
        """An operator asks something of an account."""
        self.asks += 1
        self.add(an_ask(self.random, self.asks, self.at, self.commits))

    def scatter(self) -> None:
        """Small jobs on every node, every other one ends: much is free, in pieces, and runs may be moved."""
        if self.cluster.credits.payers:
            rich = Account(
                name=AccountId("alpha"), queues=(TeamId("t"), TeamId("u"), TeamId("v")), overdraft_micro=None
            )
            self.add(AccountsSet(at=self.at, accounts=(rich,)))
        self.add(
            PolicySet(at=self.at, preemption=False, min_runtime_s=0, consolidation=Consolidation.DO, start_within_s=0)
        )
        for _ in range(12):
            self.submit(a_small_spec(len(self.jobs)))
        for _ in range(3):
            self.round()
        for run_id in sorted(self.cluster.runs)[::2]:
            self._finish(run_id)
        self.submit(a_small_spec(len(self.jobs), gpus=4))
        self.submit(a_small_spec(len(self.jobs), gpus=8))
        for _ in range(3):
            self.round()

    def add(self, *events: Event) -> None:
        """Append facts or decisions, as the server would."""
        for event in events:
            self.at += timedelta(milliseconds=self.random.choice((0, 1, 900)))
            number = len(self.records) + 1
            recorded = Recorded(event, position_of(1, number), self.at, f"id-{number}")
            self.records.append(recorded)
            self.kinds[type(event).__name__] += 1
            if isinstance(event, JobPlaced):
                self.placed.append(event)
            elif isinstance(event, CreditCommitted):
                self.commits.append(recorded)
            elif isinstance(event, GpusEarmarked):
                self.kinds["moved" if event.moved else "evicted"] += len(event.victims)
            self.cluster = evolve(self.cluster, recorded)

    @property
    def position(self) -> Position:
        """The last position."""
        return self.records[-1].position if self.records else START

    def tick(self, silent: dict[NodeId, float] | None = None) -> Tick:
        """A tick for now."""
        return Tick(at=self.at, position=self.position, silent=silent or {})

    def step(self) -> None:
        """One random thing happens."""
        steps: list[tuple[int, Callable[[], None]]] = [
            (4, self.submit),
            (6, self.round),
            (1, self.lead),
            (2, self.join),
            (4, self.find_clean),
            (6, self.start_share),
            (6, self.end_share),
            (8, self.release),
            (1, self.cancel),
            (1, self.silence),
            (2, self.save),
            (1, self.operate),
            (2, self.ask),
            (1, self.rest),
            (1, self.resume),
            (1, self.ail),
            (1, self.mend),
        ]
        weights = [weight for weight, _ in steps]
        self.random.choices([step for _, step in steps], weights)[0]()

    def submit(self, spec: JobSpec | None = None) -> None:
        """A user asks for a gang."""
        number, team = len(self.jobs), TeamId(self.random.choice(TEAMS))
        spec, job_id = spec or a_spec(self.random, number), JobId(f"j{number}")
        job = JobSubmitted(at=self.at, team=team, job_id=job_id, spec=spec, key=f"k{number}", request_hash="h")
        self.jobs.append(job)
        self.add(job)

    def round(self, silent: dict[NodeId, float] | None = None) -> None:
        """The leader decides, and sometimes facts land before its decision does."""
        if self.random.random() < 0.2:
            self.at += timedelta(seconds=40)
        decided = decide_all(self.cluster, self.tick(silent))
        if decided and self.random.random() < 0.3:
            self.random.choice((self.join, self.release, self.cancel, self.submit, self.end_share))()
        self.add(*decided)

    def lead(self) -> None:
        """Another control plane takes over."""
        self.add(LeadershipTaken(at=self.at, instance=self.random.choice("abc"), version=""))

    def join(self, number: int | None = None) -> None:
        """A node joins, or joins anew with other GPUs."""
        number = self.random.randrange(NODES) if number is None else number
        node_id = NodeId(f"n{number}")
        uuids = [GpuUuid(f"{node_id}-gpu{slot}") for slot in range(size_of(number))]
        if self.random.random() < 0.2:
            uuids[0] = GpuUuid(f"{uuids[0]}-new{self.random.randrange(3)}")  # one was replaced
        self.add(self.joined(node_id, tuple(uuids)))
        self.epochs.append((node_id, NodeEpoch(self.position), tuple(uuids)))
        self.end_lives(node_id)

    def joined(self, node_id: NodeId, uuids: tuple[GpuUuid, ...]) -> NodeJoined:
        """What its agent says."""
        said = stands(int(node_id[1:]))
        where: Any = {"address": "127.0.0.1", "port_base": 20_000}
        where["boot_id"] = self.random.choice("bbbc")  # seldom another boot
        return NodeJoined(at=self.at, node_id=node_id, instance="i", gpu_uuids=uuids, **where, **said)

    def end_lives(self, node_id: NodeId) -> None:
        """What ran in an earlier life has ended: nobody will say how."""
        self.ended |= {(run.run_id, s.node_id) for run in self.placed for s in run.shares if s.node_id == node_id}

    def find_clean(self) -> None:
        """An agent finds some or all of its GPUs clean; sometimes of an earlier life."""
        if self.epochs:
            node_id, epoch, uuids = self.random.choice(self.epochs[-10:])
            some = tuple(uuid for uuid in uuids if self.random.random() < 0.9)
            self.add(GpusFoundClean(at=self.at, node_id=node_id, node_epoch=epoch, gpu_uuids=some))

    def share(self) -> tuple[JobPlaced, NodeShare] | None:
        """Some share of some run, mostly a late one."""
        if not self.placed:
            return None
        run = self.random.choice(self.placed[-8:] if self.random.random() < 0.9 else self.placed)
        return run, self.random.choice(run.shares)

    def start_share(self) -> None:
        """A node says that its ranks have started."""
        if (found := self.share()) is not None:
            run, share = found
            self.add(ShareStarted(at=self.at, node_id=share.node_id, node_epoch=share.node_epoch, run_id=run.run_id))

    def end_share(self) -> None:
        """A node says how a share ended, perhaps again."""
        if (found := self.share()) is not None:
            run, share = found
            reason = self.random.choice([EndReason.EXITED] * 5 + list(EndReason))
            code = self.random.choice((0, 0, 0, 1))
            self.ended.add((run.run_id, share.node_id))
            self.add(
                ShareEnded(
                    at=self.at,
                    node_id=share.node_id,
                    node_epoch=share.node_epoch,
                    run_id=run.run_id,
                    reason=reason,
                    exit_code=code,
                )
            )

    def release(self) -> None:
        """An agent gives GPUs back: late, twice, in part, or naming slots that are another run's by now."""
        if (found := self.share()) is None:
            return
        run, share = found
        if (run.run_id, share.node_id) not in self.ended:
            return  # its ranks may still run: no agent says that
        slots = share.slots
        match self.random.randrange(6):
            case 0:
                slots = SlotMask(slots & self.random.getrandbits(8))
            case 1:
                slots = SlotMask(slots | self.random.getrandbits(8))  # beyond its own
            case _:
                pass
        self.add(
            GpusReleased(at=self.at, node_id=share.node_id, node_epoch=share.node_epoch, run_id=run.run_id, slots=slots)
        )

    def cancel(self) -> None:
        """A user no longer wants a job, which may have ended."""
        if self.jobs:
            job = self.random.choice(self.jobs[-10:])
            self.add(JobCancelRequested(at=self.at, team=job.team, job_id=job.job_id))

    def resume(self) -> None:
        """Somebody lets a job try again, that is held for its failures."""
        held = [job for job in self.cluster.jobs.values() if job.hold is HoldCode.FAILED_TOO_OFTEN]
        if held:
            job = self.random.choice(held)
            self.add(JobResumeAsked(at=self.at, team=job.team, job_id=job.job_id))

    def save(self) -> None:
        """A run has a checkpoint; perhaps one that is over."""
        if (found := self.share()) is not None:
            run, share = found
            ids: Any = {"node_id": share.node_id, "node_epoch": share.node_epoch, "run_id": run.run_id}
            self.add(CheckpointSaved(at=self.at, **ids, number=self.random.randrange(9)))

    def operate(self) -> None:
        """An operator sets the queues or the policy anew, or says that a node is to take nothing new, or again."""
        match self.random.randrange(6):
            case 4:
                self.add(some_accounts(self.random, self.at))
            case 5:
                self.add(some_prices(self.random, self.at))
            case 0:
                self.add(QueuesSet(at=self.at, queues=some_queues(self.random)))
            case 1:
                self.add(a_policy(self.random, self.at))
            case 2:
                self.add(NodeCordoned(at=self.at, node_id=NodeId(f"n{self.random.randrange(NODES)}")))
            case _:
                for number in range(NODES):
                    self.add(NodeUncordoned(at=self.at, node_id=NodeId(f"n{number}")))

    def ail(self) -> None:
        """A GPU, or all of a node, shows a sign, a reset fails, or ranks outlive KILL; perhaps of an earlier life."""
        if not self.epochs:
            return
        node_id, epoch, uuids = self.random.choice(self.epochs[-10:])
        ids: Any = {"at": self.at, "node_id": node_id, "node_epoch": epoch}
        uuid = self.random.choice(uuids)
        match self.random.randrange(6):
            case 0:
                self.add(GpuResetFailed(**ids, gpu_uuid=uuid))
            case 1 if (found := self.share()) is not None:
                run, share = found
                ids |= {"node_id": share.node_id, "node_epoch": share.node_epoch}
                self.add(RanksUnkillable(**ids, run_id=run.run_id))
            case _:
                code = self.random.choice((13, 31, 63, 74, 79, 94, 95, 95, 999))
                for one in uuids if self.random.random() < 0.3 else (uuid,):
                    self.add(GpuSignalled(**ids, gpu_uuid=one, signal=GpuSignal.XID, code=code))

    def mend(self) -> None:
        """Something is done about a GPU that is out, or about all of a node."""
        out = [(node, uuid) for _, node in sorted(self.cluster.nodes.items()) for uuid in sorted(node.fitness.ailments)]
        if not out:
            return
        node, uuid = self.random.choice(out)
        match self.random.randrange(5):
            case 0:
                self.add(NodeUndrainAsked(at=self.at, node_id=node.node_id))
            case 1 | 2:
                self.add(GpuReturnAsked(at=self.at, node_id=node.node_id, gpu_uuid=uuid))
            case _:
                means = self.random.choice((Recovery.RESET, Recovery.RESET, Recovery.DRIVER))
                ids: Any = {"node_id": node.node_id, "node_epoch": node.epoch}
                self.add(GpuRecovered(at=self.at, **ids, gpu_uuid=uuid, means=means))

    def rest(self) -> None:
        """Nothing happens for a while, in which hours may end; then it is decided until there is nothing more to say."""
        self.at += timedelta(seconds=self.random.choice((60, 600, 1_800, 5_000)))
        for _ in range(20):
            before = self.position
            self.round()
            if self.position == before:
                return

    def silence(self) -> None:
        """Some nodes have been silent for a while, or for long."""
        nodes = [n for n in sorted(self.cluster.nodes) if self.cluster.nodes[n].state is not NodeState.LOST]
        silent = {node_id: self.random.choice((40.0, 1_000.0)) for node_id in nodes if self.random.random() < 0.3}
        self.round(silent)

    def settle(self) -> None:
        """Everything that runs ends, every agent says so, and rounds go on until nothing is left to decide."""
        for _ in range(200):
            self.at += timedelta(seconds=400)
            for run in sorted(self.cluster.runs.values(), key=lambda run: run.run_id):
                self._finish(run.run_id)
            self._return_nodes()
            before = self.position
            self.round()
            if self.position == before and not self.cluster.runs:
                return
        raise AssertionError(f"never settles: {sorted(self.cluster.runs)}")

    def _finish(self, run_id: RunId) -> None:
        run = self.cluster.runs[run_id]
        for share in run.shares:
            node = self.cluster.nodes[share.node_id]
            if node.epoch == share.node_epoch and run_id in node.held:
                ids: Any = {"at": self.at, "node_id": share.node_id, "node_epoch": share.node_epoch, "run_id": run_id}
                self.ended.add((run_id, share.node_id))
                self.add(ShareEnded(**ids, reason=EndReason.EXITED), GpusReleased(**ids, slots=share.slots))

    def _return_nodes(self) -> None:
        for node_id, epoch, _ in list(self.epochs):
            node = self.cluster.nodes[node_id]
            if node.state is NodeState.LOST and node.epoch == epoch:
                self.add(self.joined(node_id, node.uuids))
                self.epochs.append((node_id, NodeEpoch(self.position), node.uuids))
                self.end_lives(node_id)
            node = self.cluster.nodes[node_id]
            self.add(GpusFoundClean(at=self.at, node_id=node_id, node_epoch=node.epoch, gpu_uuids=node.uuids))


def history(seed: int, steps: int) -> History:
    """The history of `steps` steps from `seed`."""
    grown = History(seed)
    for _ in range(steps):
        grown.step()
    return grown


def histories(most: int = 130) -> st.SearchStrategy[History]:
    """Histories of up to `most` steps."""
    return st.builds(history, st.integers(0, 2**32), st.integers(0, most))


def fold(records: list[Recorded], cluster: Cluster | None = None) -> Cluster:
    """The cluster after some records."""
    cluster = cluster or Cluster()
    for recorded in records:
        cluster = evolve(cluster, recorded)
    return cluster
