"""Histories that the log could hold: real rounds between random asks, reports, losses and returns, from a seed.

Reports come late, twice, in part and from earlier lives; facts land between a decision and its commit; leaders change.
"""

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Final

from hypothesis import strategies as st

from events.base import (
    START,
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
from events.head import LeadershipTaken, LogFounded
from events.job import JobCancelRequested, JobPlaced, JobSpec, JobSubmitted, NodeShare, OnLost, Priority
from events.node import EndReason, GpusFoundClean, GpusReleased, NodeJoined, ShareEnded, ShareStarted
from projections.cluster.evolve import evolve
from projections.cluster.node import NodeState
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.control.round import decide_all

BEGIN: Final = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
SIZES: Final = (1, 2, 4, 4, 8)
TYPES: Final = ("h100", "h100", "a100")
PLACES: Final = ({}, {"rack": "r1", "spine": "s1"}, {"rack": "r2", "spine": "s1"}, {"rack": "r1", "fabric": "ib"})


class History:
    """A log that grows by random steps, with its fold. The agents in it tell the truth, but not always in time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.records: list[Recorded] = []
        self.cluster = Cluster()
        self.kinds: Counter[str] = Counter()
        self.at = BEGIN
        self.epochs: list[tuple[NodeId, NodeEpoch, tuple[GpuUuid, ...]]] = []  # every life of every node
        self.placed: list[JobPlaced] = []
        self.ended: set[tuple[RunId, NodeId]] = set()  # shares that said how they ended
        self.jobs: list[JobSubmitted] = []
        self.add(LogFounded(at=self.at, log_id="test", cell="main"))
        self.add(LeadershipTaken(at=self.at, instance="a", version=""))

    def add(self, *events: Event) -> None:
        """Append facts or decisions, as the server would."""
        for event in events:
            self.at += timedelta(milliseconds=self.random.choice((0, 1, 900)))
            recorded = Recorded(event, position_of(1, len(self.records) + 1), self.at)
            self.records.append(recorded)
            self.kinds[type(event).__name__] += 1
            if isinstance(event, JobPlaced):
                self.placed.append(event)
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
        ]
        weights = [weight for weight, _ in steps]
        self.random.choices([step for _, step in steps], weights)[0]()

    def submit(self) -> None:
        """A user asks for a gang."""
        number = len(self.jobs)
        nodes, each = self.random.choice(((0, 0), (0, 0), (0, 0), (2, 2), (3, 1)))
        gpus = nodes * each or self.random.choice((1, 1, 2, 3, 4, 6, 8, 8, 12))
        spec = JobSpec(
            name=f"job{number}",
            command=("true",),
            gpus=gpus,
            nodes=nodes,
            gpus_per_node=each,
            gpu_types=self.random.choice(((), (), ("h100",), ("a100", "h100"))),
            priority=self.random.choice(list(Priority)),
            on_lost=self.random.choice((OnLost.RESTART, OnLost.RESTART, OnLost.WAIT)),
            retries_application=self.random.choice((0, 1)),
        )
        job = JobSubmitted(
            at=self.at, team=TeamId("t"), job_id=JobId(f"j{number}"), spec=spec, key=f"k{number}", request_hash="h"
        )
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

    def join(self) -> None:
        """A node joins, or joins anew with other GPUs."""
        node_id = NodeId(f"n{self.random.randrange(8)}")
        number = int(node_id[1:])
        size = SIZES[number % len(SIZES)]
        uuids = [GpuUuid(f"{node_id}-gpu{slot}") for slot in range(size)]
        if self.random.random() < 0.2:
            uuids[0] = GpuUuid(f"{uuids[0]}-new{self.random.randrange(3)}")  # one was replaced
        self.add(
            NodeJoined(
                at=self.at,
                node_id=node_id,
                boot_id="b",
                instance="i",
                gpu_type=TYPES[number % len(TYPES)],
                gpu_uuids=tuple(uuids),
                address="127.0.0.1",
                port_base=20_000,
                labels=PLACES[number % len(PLACES)],
            )
        )
        self.epochs.append((node_id, NodeEpoch(self.position), tuple(uuids)))
        self.end_lives(node_id)

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

    def silence(self) -> None:
        """Some nodes have been silent for a while, or for long."""
        nodes = [n for n in sorted(self.cluster.nodes) if self.cluster.nodes[n].state is not NodeState.LOST]
        silent = {node_id: self.random.choice((40.0, 100.0)) for node_id in nodes if self.random.random() < 0.3}
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
                ids = {"at": self.at, "node_id": share.node_id, "node_epoch": share.node_epoch, "run_id": run_id}
                self.ended.add((run_id, share.node_id))
                self.add(ShareEnded(**ids, reason=EndReason.EXITED), GpusReleased(**ids, slots=share.slots))

    def _return_nodes(self) -> None:
        for node_id, epoch, _ in list(self.epochs):
            node = self.cluster.nodes[node_id]
            if node.state is NodeState.LOST and node.epoch == epoch:
                self.add(
                    NodeJoined(
                        at=self.at,
                        node_id=node_id,
                        boot_id="b",
                        instance="i",
                        gpu_type=node.gpu_type,
                        gpu_uuids=node.uuids,
                        address="127.0.0.1",
                        port_base=20_000,
                    )
                )
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


def histories(most: int = 250) -> st.SearchStrategy[History]:
    """Histories of up to `most` steps."""
    return st.builds(history, st.integers(0, 2**32), st.integers(0, most))


def fold(records: list[Recorded], cluster: Cluster | None = None) -> Cluster:
    """The cluster after some records."""
    cluster = cluster or Cluster()
    for recorded in records:
        cluster = evolve(cluster, recorded)
    return cluster
