"""The auditor's books: what the events so far add up to, kept apart from the fold."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from events.base import START, JobId, NodeId, Position, Recorded, RunId
from events.chain import Chain
from events.gpu import Recovery
from events.job import JobSpec, NodeShare
from projections.cluster.audit.purses import CreditBooks


class Finding(NamedTuple):
    """Something in the log that must not be."""

    position: Position
    law: str
    message: str


class Gpu(NamedTuple):
    """One GPU in one life of its node."""

    node_id: NodeId
    epoch: int
    slot: int


@dataclass
class JobBook:
    """A job as the auditor has it."""

    spec: JobSpec
    admitted: bool = False
    held: bool = False  # for its failures, until a user resumes it
    run_id: RunId | None = None
    attempts: int = 0
    ended: str = ""
    aside: tuple[NodeShare, ...] = ()  # set aside for it
    aside_at: Position = START  # what that was decided on
    aside_until: datetime | None = None  # of what is kept for a gang that lost a member
    promised: bool = False
    stopped_for: set[JobId] = field(default_factory=set)  # the jobs that runs of it were to end for


class SickBook(NamedTuple):
    """A GPU that is out, as the auditor has it."""

    seen: Position  # the last sign that it was taken out for
    helps: frozenset[Recovery]  # against all of them


@dataclass
class NodeBook:
    """A node as the auditor has it."""

    epoch: int = 0
    alive: bool = False
    uuids: list[str] = field(default_factory=list)
    gpu_type: str = ""
    pool: int = 0  # slots found clean in this life
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    boot_id: str = ""
    sick: dict[str, SickBook] = field(default_factory=dict)  # GPUs that are out
    done: dict[tuple[str, Recovery], Position] = field(
        default_factory=dict
    )  # when each thing was last done about a GPU
    described: Position = START  # when these became others in this life; START: they are those that it began with


@dataclass
class Books:
    """What the events so far add up to, kept by the auditor alone."""

    findings: list[Finding] = field(default_factory=list)
    position: Position = START
    at: datetime | None = None
    epoch: Position = START  # of the last leader
    to_come: int = 0  # events that the last decision record announced
    decided_at: Position = START  # what these were decided on
    jobs: dict[JobId, JobBook] = field(default_factory=dict)
    nodes: dict[NodeId, NodeBook] = field(default_factory=dict)
    owners: dict[Gpu, RunId] = field(default_factory=dict)
    owed: dict[RunId, set[Gpu]] = field(default_factory=dict)  # GPUs of a run that were neither released nor lost
    haunted: dict[RunId, set[tuple[NodeId, int]]] = field(
        default_factory=dict
    )  # lost with the node, not found clean yet
    marks: dict[Gpu, JobId] = field(default_factory=dict)  # whom a GPU is set aside for
    claims: dict[RunId, JobId] = field(default_factory=dict)  # whom a run is to end for
    moves: set[RunId] = field(default_factory=set)  # of these, the runs that have a new place
    ending: set[RunId] = field(default_factory=set)  # told to stop
    quiet: dict[RunId, set[NodeId]] = field(default_factory=dict)  # where all ranks of a run have ended
    credit: CreditBooks = field(default_factory=CreditBooks)
    closed: bool = False  # whether the last record closed its chapter
    chain: Chain | None = field(default_factory=Chain)  # the digest; None behind a gap

    def find(self, recorded: Recorded, law: str, message: str) -> None:
        """Note what must not be."""
        self.findings.append(Finding(recorded.position, law, message))


def slots_of(mask: int) -> Iterator[int]:
    """The numbers of the slots in a mask."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def gpus_of(shares: tuple[NodeShare, ...]) -> Iterator[Gpu]:
    """The GPUs of some shares."""
    return (Gpu(share.node_id, share.node_epoch, slot) for share in shares for slot in slots_of(share.slots))
