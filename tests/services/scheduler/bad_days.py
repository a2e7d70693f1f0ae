"""Random days on which nodes are lost, fail to start ranks and come back, while jobs come and run: for laws of recovery."""

from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from events.base import Event, JobId, NodeId
from events.job import Checkpoint, Priority
from events.node import EndReason
from projections.cluster.job import Run
from projections.cluster.node import NodeState
from tests.clusters import World

LOST: Final = 100_000.0  # seconds of silence after which any policy gives a node up
STEPS_MAX: Final = 3_000


class BadDay:
    """A world that goes on by itself: agents do as they are told, some later than others, and some not at all."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(seed)
        self.sizes = {f"n{number}": random.choice((4, 8)) for number in range(random.randrange(4, 8))}
        self.world = World(self.sizes)
        policy = {"promises": random.randrange(3), "preemption": random.random() < 0.5, "min_runtime_s": 0}
        self.world.policy(**policy, keep_place_s=random.choice((5, 30, 120)), avoid_s=random.choice((0, 20, 600)))
        self.said: list[tuple[datetime, Event]] = []
        self._lasts: dict[JobId, float] = {}
        self._ends: dict[str, datetime] = {}  # run -> when its ranks end by themselves
        self._leaves: dict[str, datetime] = {}  # run -> when a stopped one has given its GPUs back
        self._down: dict[str, datetime] = {}  # node -> when it comes back

    def run(self, jobs: int = 25) -> None:
        """All jobs came, what could go wrong did, and all of them ended."""
        left = jobs
        for _ in range(STEPS_MAX):
            if left and self._random.random() < 0.5:
                left -= 1
                self._submit(jobs - left)
            if left and self._random.random() < 0.15:
                self._lose()
            self._come_back(everybody=not left)
            self._agents()
            self._settle()
            if not left and not self.world.cluster.jobs:
                return
            self.world.wait(self._random.choice((0.3, 1, 4)))
        raise AssertionError(f"these never end: {sorted(self.world.cluster.jobs)}")

    def _submit(self, number: int) -> None:
        random = self._random
        nodes = random.choice((0, 2, 2, 3, 4))
        each = random.choice((1, 4))
        spec: dict[str, Any] = {"nodes": nodes, "gpus_per_node": each} if nodes else {}
        job_id = self.world.submit(
            f"j{number:02d}",
            nodes * each or random.choice((1, 2, 4)),
            stop_grace_s=random.choice((0, 10)),
            checkpoint=random.choice((None, Checkpoint(grace_s=5))),
            max_runtime_s=random.choice((0, 600)),
            priority=random.choice((Priority.NORMAL, Priority.NORMAL, Priority.HIGH)),
            retries_infrastructure=1_000,
            **spec,
        )
        self._lasts[job_id] = random.choice((5, 20, 60))

    def _lose(self) -> None:
        """A node falls silent for good; or a run cannot be started on a node."""
        up = [name for name in self.sizes if name not in self._down]
        starting = [run for run in self.world.cluster.runs.values() if not run.started and run.stopping is None]
        if starting and self._random.random() < 0.5:
            run = self._random.choice(starting)
            share = self._random.choice(run.shares)
            if self._alive(share.node_id) and share.node_id not in self._down:
                self.world.end(run.job_id, share.node_id, code=127, reason=EndReason.START_FAILED)
        elif len(up) > len(self.sizes) // 2:
            name = self._random.choice(up)
            self._down[name] = self.world.at + timedelta(seconds=self._random.choice((2, 10, 60)))

    def _come_back(self, *, everybody: bool) -> None:
        for name, at in sorted(self._down.items()):
            lost = self.world.cluster.nodes[NodeId(name)].state is NodeState.LOST
            if lost and (everybody or at <= self.world.at):
                del self._down[name]
                self.world.join(name, self.sizes[name])

    def _alive(self, node_id: NodeId) -> bool:
        return self.world.cluster.nodes[node_id].state is not NodeState.LOST

    def _agents(self) -> None:
        """Agents that are heard start, end and give back what they should by now."""
        for run in sorted(self.world.cluster.runs.values(), key=lambda run: run.run_id):
            names = [
                share.node_id
                for share in run.shares
                if share.node_id not in self._down
                and self.world.cluster.nodes[share.node_id].epoch == share.node_epoch
                and self._alive(share.node_id)
            ]
            if names:
                self._agents_of(run, names)

    def _agents_of(self, run: Run, names: list[NodeId]) -> None:
        now, told = self.world.at, run.stopping is not None
        if told:
            leaves = self._leaves.setdefault(run.run_id, now + timedelta(seconds=self._random.choice((0, 1, 12))))
            if leaves <= now:
                self.world.end(run.job_id, *names, code=143, reason=EndReason.STOPPED)
                self.world.release(run.job_id, *names)
        elif run.failure is None and not run.started:
            self.world.start(run.job_id, *names)
            self._ends[run.run_id] = now + timedelta(seconds=self._lasts[run.job_id])
        elif run.failure is None and self._ends.get(run.run_id, now) <= now and len(names) == len(run.shares):
            self.world.end(run.job_id)
            self.world.release(run.job_id)

    def _settle(self) -> None:
        while decided := self.world.round({NodeId(name): LOST for name in self._down}):
            self.said += [(self.world.at, event) for event in decided]
