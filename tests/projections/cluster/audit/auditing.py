"""Small logs written by hand, legal or not, and what the auditor says of them."""

from datetime import datetime
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
)
from events.fleet import NodeLost
from events.head import LeadershipTaken, LogFounded, RoundDecided
from events.job import (
    JobAdmitted,
    JobPlaced,
    JobRequeued,
    JobSpec,
    JobSubmitted,
    JobSucceeded,
    NodeShare,
    StopCause,
)
from events.node import GpusFoundClean, GpusReleased, NodeJoined
from projections.cluster.audit.audit import audit

AT: Final = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
TEAM: Final = TeamId("t")


class Book:
    """A log that is written line by line, legal or not: two nodes of four clean GPUs, and what a test adds."""

    def __init__(self) -> None:
        self.records: list[Recorded] = []
        self.add(LogFounded(at=AT, log_id="test", cell="main"))
        self.epoch = self.add(LeadershipTaken(at=AT, instance="a", version=""))
        self.nodes = {name: self.join(name, "h100") for name in ("n1", "n2")}

    def add(self, *events: Event) -> Position:
        """The position of the last of them, which follow on what is there."""
        for event in events:
            self.records.append(Recorded(event, position_of(1, len(self.records) + 1), AT))
        return self.records[-1].position

    def decide(self, *events: Event, **record: Any) -> None:
        """A decision with its record."""
        fields: dict[str, Any] = {"epoch": self.epoch, "decided_at": self.records[-1].position, "events": len(events)}
        self.add(RoundDecided(at=AT, **(fields | record)), *events)

    def join(self, name: str, gpu_type: str, *, clean: bool = True, gpus: int = 4) -> NodeEpoch:
        """A node began a life."""
        node_id, uuids = NodeId(name), tuple(GpuUuid(f"{name}-{slot}") for slot in range(gpus))
        joined = NodeJoined(
            at=AT, node_id=node_id, boot_id="b", instance="i", gpu_type=gpu_type, gpu_uuids=uuids, address="", port_base=1
        )  # fmt: skip
        epoch = NodeEpoch(self.add(joined))
        if clean:
            self.add(GpusFoundClean(at=AT, node_id=node_id, node_epoch=epoch, gpu_uuids=uuids))
        return epoch

    def submit(self, name: str, gpus: int, **spec: Any) -> JobId:
        """A job was asked for."""
        job_id, asked = JobId(name), JobSpec(name=name, command=("true",), gpus=gpus, **spec)
        self.add(JobSubmitted(at=AT, team=TEAM, job_id=job_id, spec=asked, key=name, request_hash="h"))
        return job_id

    def share(self, name: str, slots: int) -> NodeShare:
        """A share on the node's life as it was at the beginning."""
        return NodeShare(NodeId(name), self.nodes[name], SlotMask(slots))

    def released(self, run_id: str, name: str, slots: int) -> None:
        """The node's agent gives GPUs back."""
        ids: dict[str, Any] = {"node_id": NodeId(name), "node_epoch": self.nodes[name], "run_id": RunId(run_id)}
        self.add(GpusReleased(at=AT, **ids, slots=SlotMask(slots)))

    def running(self, name: str, *shares: NodeShare, **spec: Any) -> JobId:
        """A job was asked for, and placed on some shares."""
        gpus = sum(share.slots.bit_count() for share in shares)
        job_id = self.submit(name, **({"gpus": gpus} | spec))
        self.decide(admitted(job_id))
        self.decide(placed(job_id, *shares))
        return job_id


def admitted(job_id: JobId) -> JobAdmitted:
    """It may run."""
    return JobAdmitted(at=AT, team=TEAM, job_id=job_id)


def placed(job_id: JobId, *shares: NodeShare, attempt: int = 1, run_id: str = "") -> JobPlaced:
    """It got these shares."""
    named = RunId(run_id or f"{job_id}-{attempt}")
    return JobPlaced(at=AT, team=TEAM, job_id=job_id, run_id=named, attempt=attempt, shares=shares)


def succeeded(job_id: JobId, attempt: int = 1) -> JobSucceeded:
    """It ended well."""
    return JobSucceeded(at=AT, team=TEAM, job_id=job_id, run_id=RunId(f"{job_id}-{attempt}"))


def requeued(job_id: JobId, attempt: int = 1) -> JobRequeued:
    """It waits again."""
    ids: dict[str, Any] = {"team": TEAM, "job_id": job_id, "run_id": RunId(f"{job_id}-{attempt}")}
    return JobRequeued(at=AT, **ids, cause=StopCause.NODE_LOST, not_before=AT)


def lost(book: Book, name: str) -> NodeLost:
    """The node is gone."""
    return NodeLost(at=AT, node_id=NodeId(name), node_epoch=book.nodes[name], silent_s=91.0)


def laws(records: list[Recorded]) -> set[str]:
    """The laws that a log breaks."""
    return {finding.law for finding in audit(records)}
