"""Clusters for tests of who is stopped: runs stand where a test puts them, and the search is asked alone."""

from datetime import timedelta
from typing import Any, Final

from events.base import JobId, NodeId, RunId, SlotMask, TeamId, run_id_of
from events.job import GpusEarmarked, JobAdmitted, JobPlaced, NodeShare, Priority, RunStarted
from events.node import CheckpointSaved
from events.queues import Bounds, Queue
from projections.cluster.job import Job
from projections.cluster.placing.place import Room
from projections.cluster.quota.entitlement import Standing
from services.scheduler.consolidate import Consolidated, consolidate
from services.scheduler.preempt import Preemption, preempt
from services.scheduler.scene import Scene
from tests.clusters import World

LOW: Final[dict[str, Any]] = {"priority": Priority.LOW}
HIGH: Final[dict[str, Any]] = {"priority": Priority.HIGH}


class Stage(World):
    """A world whose runs are put where they are to be."""

    saved = 0  # checkpoints so far

    def running(self, name: str, on: dict[str, int], *, team: str = "t", **spec: Any) -> RunId:
        """A job runs with so many GPUs on these nodes: the lowest free slots."""
        job_id = self.submit(name, sum(on.values()), team=team, **spec)
        ids: Any = {"at": self.at, "team": TeamId(team), "job_id": job_id}
        shares = tuple(self._share(node, gpus) for node, gpus in sorted(on.items()))
        run_id = run_id_of(job_id, 1)
        self.decide(JobAdmitted(**ids), JobPlaced(**ids, run_id=run_id, attempt=1, shares=shares))
        self.decide(RunStarted(**ids, run_id=run_id))
        return run_id

    def _share(self, name: str, gpus: int) -> NodeShare:
        node, slots = self.cluster.nodes[NodeId(name)], 0
        free = node.spare
        for _ in range(gpus):
            slots |= free & -free
            free &= free - 1
        return NodeShare(node.node_id, node.epoch, SlotMask(slots))

    def waiting(self, name: str, gpus: int, *, team: str = "t", **spec: Any) -> JobId:
        """A job is admitted and waits."""
        job_id = self.submit(name, gpus, team=team, **spec)
        self.decide(JobAdmitted(at=self.at, team=TeamId(team), job_id=job_id))
        return job_id

    def save(self, name: str) -> None:
        """The job's run has one more checkpoint."""
        run = self.run(JobId(name))
        assert run is not None
        ids: Any = {"node_id": run.shares[0].node_id, "node_epoch": run.shares[0].node_epoch, "run_id": run.run_id}
        self.saved += 1
        self.add(CheckpointSaved(at=self.at, **ids, number=self.saved))

    def job(self, name: str) -> Job:
        """The job of this name."""
        return self.cluster.jobs[JobId(name)]

    def scene(self) -> Scene:
        """What a round would look at."""
        return Scene(
            cluster=self.cluster,
            tick=self.tick(),
            room=Room(self.cluster),
            standing=Standing(self.cluster, self.at),
        )

    def ask(self, job_id: JobId, scene: Scene | None = None) -> Preemption | None:
        """Who would be stopped for the job."""
        return preempt(scene or self.scene(), self.cluster.jobs[job_id])

    def victims(self, job_id: JobId) -> list[str]:
        """The jobs that would be stopped for it, sorted; none where nobody would."""
        found = self.ask(job_id)
        return sorted(self.cluster.runs[run_id].job_id for run_id in found.victims) if found is not None else []

    def moves(self, job_id: JobId) -> Consolidated | None:
        """What would be moved for the job."""
        return consolidate(self.scene(), self.cluster.jobs[job_id])

    def stop_for(self, job_id: JobId, found: Preemption) -> None:
        """What was found is in the log."""
        job = self.cluster.jobs[job_id]
        self.decide(GpusEarmarked(**self.tick().of_job(job), shares=found.shares, victims=found.victims))

    def hour(self) -> None:
        """An hour passes."""
        self.at += timedelta(hours=1)


def destination(found: Preemption | None) -> dict[str, int]:
    """The nodes of the answer, with the GPUs on each."""
    assert found is not None
    return {share.node_id: share.slots.bit_count() for share in found.shares}


def team(name: str, *, weight: int = 1, parent: str = "", **bounds: Any) -> Queue:
    """A queue; `bounds` over all types."""
    return Queue(name=TeamId(name), parent=parent, weight=weight, bounds=(Bounds(**bounds),) if bounds else ())


def stage(nodes: dict[str, int] | None = None, **policy: Any) -> Stage:
    """Nodes, and a policy under which everything may be tried."""
    made = Stage(nodes or {"n1": 8})
    made.policy(**({"min_runtime_s": 0, "cool_down_s": 0} | policy))
    return made


def shared(made: Stage) -> None:
    """Two teams of equal weight."""
    made.queues(team("a"), team("b"))
