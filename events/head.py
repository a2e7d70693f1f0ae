"""The head family (`head`): how the log began, who leads, and what each round decided. The fence of every decision."""

from typing import ClassVar

import msgspec

from events.base import HEAD, Count, Event, Family, Position


class HeadEvent(Event, kw_only=True, frozen=True):
    """A record of the control plane about itself, on one literal subject that every append of it moves."""

    family: ClassVar[Family] = HEAD


class LogFounded(HeadEvent, kw_only=True, frozen=True, tag="musterbook.log.founded.v1"):
    """The first record of a log. Snapshots and tables keep its id, so that another log is noticed."""

    log_id: str
    cell: str


class LeadershipTaken(HeadEvent, kw_only=True, frozen=True, tag="musterbook.control.leadership_taken.v1"):
    """This instance leads from here on. Its position is the epoch; every older leader's append is refused."""

    instance: str
    version: str  # of the code


class PassedOver(msgspec.Struct, frozen=True):
    """A line of a decision record: why the waiting jobs of one shape got nothing this round."""

    shape: str  # "16 GPUs on h100"
    jobs: Count
    code: str  # a `HoldCode`


class RoundDecided(HeadEvent, kw_only=True, frozen=True, tag="musterbook.control.round_decided.v1"):
    """The events that follow in the same batch were decided together, on the fold at `decided_at`."""

    epoch: Position
    decided_at: Position
    events: Count  # that follow in this batch
    passed_over: tuple[PassedOver, ...] = ()
    version: str = ""  # of the code
