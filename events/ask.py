"""Asks and answers: what users send on `ask.<team>`, agents on `report.<node>`, and what the gate replies."""

from enum import StrEnum
from typing import Any

import msgspec

from events.base import JobId, Position
from events.node import GpusFoundClean, GpusReleased, NodeJoined, ShareEnded, ShareStarted


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", tag="submit", forbid_unknown_fields=True):
    """Run this. The same key again gives the same job; with another spec, a conflict."""

    key: str
    spec: Any  # as typed by the user: a mapping, checked by the gate
    trace: str = ""


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", tag="cancel", forbid_unknown_fields=True):
    """No longer run this."""

    job_id: JobId
    reason: str = ""
    trace: str = ""


Ask = Submit | Cancel


class RefusalCode(StrEnum):
    """Why the gate did not take something. Stable: programs compare them."""

    INVALID = "invalid"  # the ask or its spec is wrong; the message says where and what was meant
    TOO_LARGE = "too_large"
    CONFLICT = "conflict"  # the same key with another spec
    NOT_FOUND = "not_found"
    FORBIDDEN = "forbidden"
    STALE = "stale"  # a report of an agent that has been replaced
    BUSY = "busy"  # more waits than the gate may hold: try again
    UNKNOWN = "unknown"  # the log did not answer: it may or may not be done; ask again with the same key


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="accepted"):
    """It is in the log, for ever, at `position` (of the last fact, where there were several)."""

    position: Position
    job_id: JobId = JobId("")
    repeated: bool = False  # it already was, from an earlier ask with the same key


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="refused"):
    """Nothing was written."""

    code: RefusalCode
    message: str  # a sentence that names the field and the value
    hint: str = ""  # what was probably meant, or what to do
    job_id: JobId = JobId("")  # with `conflict`: the job that has the key


Answer = Accepted | Refused


AgentReport = NodeJoined | GpusFoundClean | ShareStarted | ShareEnded | GpusReleased


class Report(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent saw since its last report, in order; all or nothing."""

    instance: str
    reports: tuple[AgentReport, ...]


class WhyAsk(msgspec.Struct, frozen=True, kw_only=True):
    """Why does this job wait (or what became of it)? Sent on `why`, answered by any control plane from its fold."""

    job_id: JobId


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job at a position and, while it waits, the reason with its numbers."""

    job_id: JobId
    found: bool  # False: the fold does not know it (never submitted, or ended and forgotten)
    position: Position
    leader: bool = False  # of whether the answer came from the leader
    state: str = ""
    code: str = ""  # a `HoldCode` while it waits
    message: str = ""  # one sentence with the numbers
    need: dict[str, int] = {}  # "gpus", "nodes", "gpus_per_node"
    have: dict[str, int] = {}  # "gpus_free", "gpus_total", "whole_nodes_free", "largest_free", …
    ahead: int = 0  # waiting jobs before it in order
    blockers: tuple[str, ...] = ()  # jobs that hold what it needs, the largest first; bounded
    next_action: str = ""  # what the user can do
    halted: Position = Position(0)  # the record at which all deciding stopped; 0: it goes on
