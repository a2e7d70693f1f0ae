"""The queues family (`queues`, one literal subject): the tree of teams, each event the whole document."""

from enum import StrEnum
from typing import ClassVar

import msgspec

from events.base import QUEUES, Count, Family, StandingDocument, TeamId


class QueueOrder(StrEnum):
    """Whether a job that may not run yet holds up those behind it in its queue."""

    BEST_EFFORT = "best_effort"  # no: a smaller one behind it may go first
    STRICT = "strict"  # yes: those that want the same GPU type wait for it


class QueueStop(StrEnum):
    """What a queue, and all below it, may do."""

    NONE = "none"
    PAUSE = "pause"  # nothing new starts; what runs goes on
    HOLD = "hold"  # nothing runs: what does is stopped, and waits again


class Bounds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a queue has for sure and at the most, in GPUs of one type, or of all together. None: no such bound."""

    gpu_type: str = ""  # empty: over all types
    floor: Count | None = None  # has this much whenever it wants it; None: its weight's part of what is above it
    limit: Count | None = None  # never more than this
    borrowing_limit: Count | None = None  # never more than this beyond its floor
    lending_limit: Count | None = None  # of a floor it does not use, others get this much at the most


class Queue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One team, or a group of them. Jobs of a team stand in the queue of its name."""

    name: TeamId
    parent: str = ""  # another queue of the document; empty: at the root
    weight: Count = 1  # its part among its siblings; 0: only what none of them wants
    bounds: tuple[Bounds, ...] = ()  # at most one a GPU type
    order: QueueOrder = QueueOrder.BEST_EFFORT
    stop: QueueStop = QueueStop.NONE
    pending_max: Count | None = None  # jobs that wait; one more is rejected
    running_max: Count | None = None  # jobs that have GPUs; one more waits


class QueuesSet(StandingDocument, kw_only=True, frozen=True, tag="musterbook.queues.set.v1"):
    """From here on teams share the cluster by this tree. Replaces the one before, whole.

    A team that is not in it stands at the root, with weight 1 and no bounds.
    """

    family: ClassVar[Family] = QUEUES

    queues: tuple[Queue, ...] = ()  # names differ; a parent comes before its children
