"""Small clusters written as words: the log of a test, in which a line is an event and agents do as they are told."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from events.base import (
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
    run_id_of,
)
from events.fleet import NodeLost
from events.head import LeadershipTaken, LogFounded, RoundDecided
from events.job import JobAdmitted, JobCancelRequested, JobPlaced, JobSpec, JobSubmitted, NodeShare
from events.node import EndReason, GpusFoundClean, GpusReleased, NodeJoined, ShareEnded, ShareStarted
from events.policy import PolicySet
from events.queues import Queue, QueuesSet
from projections.cluster.audit.audit import audit
from projections.cluster.evolve import evolve
from projections.cluster.job import JobState, Run
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.control.round import decide_all

BEGIN: Final = datetime.fromisoformat("2026-01-01T00:00:00+00:00")


class World:
    """A log, its fold, and what is said in it. `nodes` maps names to numbers of GPUs; all of them are clean."""

    def __init__(self, nodes: Mapping[str, int] | None = None, *, gpu_type: str = "h100") -> None:
        self.records: list[Recorded] = []
        self.cluster = Cluster()
        self.at = BEGIN
        self.add(LogFounded(at=self.at, log_id="test", cell="main"))
        self.add(LeadershipTaken(at=self.at, instance="a", version=""))
        for name, gpus in (nodes or {}).items():
            self.join(name, gpus, gpu_type=gpu_type)

    def add(self, *events: Event) -> None:
        """Append, and fold."""
        for event in events:
            recorded = Recorded(event, position_of(1, len(self.records) + 1), self.at)
            self.records.append(recorded)
            self.cluster = evolve(self.cluster, recorded)

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.at += timedelta(seconds=seconds)

    def join(self, name: str, gpus: int, *, gpu_type: str = "h100", clean: bool = True, **said: Any) -> NodeEpoch:
        """A node joins, again if it is known, and finds its GPUs clean. `said`: labels, taints, boot_id."""
        uuids = tuple(GpuUuid(f"{name}-{slot}") for slot in range(gpus))
        self.add(
            NodeJoined(
                at=self.at,
                node_id=NodeId(name),
                instance="i",
                gpu_type=gpu_type,
                gpu_uuids=uuids,
                address="127.0.0.1",
                port_base=20_000,
                **{"boot_id": "b", **said},
            )
        )
        epoch = NodeEpoch(self.records[-1].position)
        if clean:
            self.add(GpusFoundClean(at=self.at, node_id=NodeId(name), node_epoch=epoch, gpu_uuids=uuids))
        return epoch

    def decide(self, *events: Event) -> None:
        """A decision with its record."""
        tick = self.tick()
        record = RoundDecided(at=self.at, epoch=self.cluster.epoch, decided_at=tick.position, events=len(events))
        self.add(record, *events)

    def lose(self, name: str) -> None:
        """A node is given up, and nothing else is said."""
        node = self.cluster.nodes[NodeId(name)]
        self.decide(NodeLost(at=self.at, node_id=node.node_id, node_epoch=node.epoch, silent_s=92.0))

    def policy(self, **said: Any) -> None:
        """The policy is the default one, but for this."""
        self.add(PolicySet(at=self.at, **said))

    def queues(self, *queues: Queue) -> None:
        """Teams share the cluster by this tree."""
        self.add(QueuesSet(at=self.at, queues=queues))

    def submit(self, name: str, gpus: int, *, team: str = "t", **spec: Any) -> JobId:
        """A job of this name, which is its id too."""
        job_id = JobId(name)
        asked = JobSpec(name=name, command=("true",), gpus=gpus, **spec)
        self.add(JobSubmitted(at=self.at, team=TeamId(team), job_id=job_id, spec=asked, key=name, request_hash="h"))
        return job_id

    def cancel(self, job_id: JobId) -> None:
        """A user no longer wants a job."""
        self.add(JobCancelRequested(at=self.at, team=self.cluster.jobs[job_id].team, job_id=job_id))

    def put(self, job_id: JobId, **gpus: int) -> JobId:
        """The job has so many GPUs of these nodes, whatever a round would have said: the lowest free slots."""
        job = self.cluster.jobs[job_id]
        ids: dict[str, Any] = {"at": self.at, "team": job.team, "job_id": job_id}
        if job.state is JobState.QUEUED:
            self.add(JobAdmitted(**ids))
        shares = tuple(self._lowest(name, number) for name, number in sorted(gpus.items()))
        attempt = job.attempt + 1
        self.add(JobPlaced(**ids, run_id=run_id_of(job_id, attempt), attempt=attempt, shares=shares))
        return job_id

    def _lowest(self, name: str, gpus: int) -> NodeShare:
        node = self.cluster.nodes[NodeId(name)]
        slots = [1 << slot for slot in range(node.free.bit_length()) if node.free >> slot & 1][:gpus]
        assert len(slots) == gpus, node
        return NodeShare(node.node_id, node.epoch, SlotMask(sum(slots)))

    def finish(self, job_id: JobId) -> None:
        """The job's ranks ran to their end, its GPUs are given back, and a round says so."""
        self.start(job_id)
        self.end(job_id)
        self.release(job_id)
        self.round()

    def tick(self, silent: Mapping[NodeId, float] | None = None) -> Tick:
        """A tick for now."""
        return Tick(at=self.at, position=Position(self.records[-1].position), silent=silent or {})

    def round(self, silent: Mapping[NodeId, float] | None = None) -> list[Event]:
        """What one round decided, and is now in the log."""
        decided = decide_all(self.cluster, self.tick(silent))
        self.add(*decided)
        return decided[1:]

    def rounds(self) -> list[Event]:
        """What rounds decided until they had nothing to say."""
        said: list[Event] = []
        while decided := self.round():
            said += decided
        return said

    def run(self, job_id: JobId) -> Run | None:
        """The run that a job has now."""
        return next((run for run in self.cluster.runs.values() if run.job_id == job_id), None)

    def start(self, job_id: JobId, *nodes: str) -> None:
        """The job's ranks have started, on some nodes or on all."""
        for ids in self._shares(job_id, nodes):
            self.add(ShareStarted(**ids))

    def end(self, job_id: JobId, *nodes: str, code: int = 0, reason: EndReason = EndReason.EXITED) -> None:
        """The job's ranks have ended, on some nodes or on all."""
        for ids in self._shares(job_id, nodes):
            self.add(ShareEnded(**ids, exit_code=code, reason=reason))

    def release(self, job_id: JobId, *nodes: str) -> None:
        """The agents of some nodes, or of all, give the job's GPUs back."""
        run = self.run(job_id)
        assert run is not None
        for ids in self._shares(job_id, nodes):
            slots = next(share.slots for share in run.shares if share.node_id == ids["node_id"])
            self.add(GpusReleased(**ids, slots=slots))

    def _shares(self, job_id: JobId, nodes: tuple[str, ...]) -> list[dict[str, Any]]:
        run = self.run(job_id)
        assert run is not None, job_id
        return [
            {"at": self.at, "node_id": share.node_id, "node_epoch": share.node_epoch, "run_id": RunId(run.run_id)}
            for share in run.shares
            if not nodes or share.node_id in nodes
        ]

    @property
    def free(self) -> int:
        """GPUs that may be given away."""
        return sum(node.free.bit_count() for node in self.cluster.nodes.values())

    @property
    def placed(self) -> dict[str, list[tuple[str, int]]]:
        """Every job that was placed, with the nodes and GPUs it last got."""
        placed = [r.event for r in self.records if isinstance(r.event, JobPlaced)]
        return {e.job_id: [(s.node_id, s.slots.bit_count()) for s in e.shares] for e in placed}

    def assert_sound(self) -> None:
        """The independent reading of the log finds nothing."""
        assert audit(self.records) == []


def names(events: list[Event]) -> list[str]:
    """The kinds of events, in order."""
    return [type(event).__name__ for event in events]
