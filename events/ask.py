"""Asks and answers: what users send on `ask.<team>`, operators on `operate`, agents on `report.<node>`, and the replies."""

from enum import StrEnum
from typing import Any

import msgspec

from events.base import START, AccountId, AskId, GpuUuid, JobId, Moment, NodeId, Position, TeamId
from events.fleet import DrainCause
from events.gpu import GpuRecovered, GpuResetFailed, GpuSignalled
from events.job import JobSpec
from events.node import (
    CheckpointSaved,
    GpusFoundClean,
    GpusReleased,
    NodeDescribed,
    NodeJoined,
    RanksUnkillable,
    ShareEnded,
    ShareStarted,
)


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


class Resume(msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", tag="resume", forbid_unknown_fields=True):
    """Let a job that failed too often try again."""

    job_id: JobId
    reason: str = ""
    trace: str = ""


Ask = Submit | Cancel | Resume


class SetQueues(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", tag="set_queues", forbid_unknown_fields=True
):
    """Share the cluster by this document. The one that holds already: nothing is written."""

    document: Any  # as typed by an operator: a mapping, checked by the gate
    replaces: Position | None  # of the document that its writer saw; 0: there was none; null: whatever holds
    trace: str = ""


class SetPolicy(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", tag="set_policy", forbid_unknown_fields=True
):
    """Decide by this document. The one that holds already: nothing is written."""

    document: Any  # as typed by an operator: a mapping, checked by the gate; what it leaves out has its default
    replaces: Position | None  # of the document that its writer saw; 0: there was none; null: whatever holds
    trace: str = ""


class SetAccounts(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", tag="set_accounts", forbid_unknown_fields=True
):
    """Let these accounts pay. The document that holds already: nothing is written."""

    document: Any  # as typed by an operator: a mapping, checked by the gate
    replaces: Position | None  # of the document that its writer saw; 0: there was none; null: whatever holds
    trace: str = ""


class SetPrices(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", tag="set_prices", forbid_unknown_fields=True
):
    """Price runs by this document. The one that holds already: nothing is written."""

    document: Any  # as typed by an operator: a mapping, checked by the gate
    replaces: Position | None  # of the document that its writer saw; 0: there was none; null: whatever holds
    trace: str = ""


SetDocument = SetQueues | SetPolicy | SetAccounts | SetPrices


class Grant(msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", tag="grant", forbid_unknown_fields=True):
    """Give an account more credits. The same key again is the same grant; with another amount or reason, a conflict."""

    account: AccountId
    key: str  # idempotency key: of this account, for ever
    credits: str  # a decimal, more than 0: "192", "0.5"
    reason: str = ""
    trace: str = ""


class Adjust(msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", tag="adjust", forbid_unknown_fields=True):
    """Correct the balance of an account. The same key again is the same correction; with another body, a conflict."""

    account: AccountId
    key: str  # idempotency key: of this account, for ever
    credits: str  # a decimal, what the balance changes by: "5", "-0.25"; never 0
    reason: str = ""
    refunds: Position = START  # of the `CreditCommitted` that is given back, in whole or in part; 0: of none
    trace: str = ""


AccountAsk = Grant | Adjust


class Cordon(msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", tag="cordon", forbid_unknown_fields=True):
    """Place nothing new on these nodes: on all of them, or nothing is written."""

    node_ids: tuple[NodeId, ...]
    reason: str = ""
    trace: str = ""


class Uncordon(msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", tag="uncordon", forbid_unknown_fields=True):
    """Place on these nodes again: on all of them, or nothing is written."""

    node_ids: tuple[NodeId, ...]
    reason: str = ""
    trace: str = ""


class Drain(msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", tag="drain", forbid_unknown_fields=True):
    """Empty these nodes: all of them, or nothing is written."""

    node_ids: tuple[NodeId, ...]
    reason: str
    deadline: Moment | None = None  # when what still runs there is stopped and moved; None: never
    cause: DrainCause = DrainCause.OPERATOR  # or `upgrade`, or `retire`: for good
    trace: str = ""


class Undrain(msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", tag="undrain", forbid_unknown_fields=True):
    """Use these nodes again: all of them, or nothing is written."""

    node_ids: tuple[NodeId, ...]
    reason: str = ""
    trace: str = ""


class Maintain(msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", tag="maintain", forbid_unknown_fields=True):
    """Have these nodes empty for a while: all of them, or nothing is written."""

    node_ids: tuple[NodeId, ...]
    window: str  # a name
    starts: Moment
    ends: Moment
    reason: str = ""
    trace: str = ""


class CancelMaintenance(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", tag="cancel_maintenance", forbid_unknown_fields=True
):
    """The window is not needed on these nodes, or over already."""

    node_ids: tuple[NodeId, ...]
    window: str
    reason: str = ""
    trace: str = ""


class ReturnGpus(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", tag="return_gpus", forbid_unknown_fields=True
):
    """These GPUs of a node are sound."""

    node_id: NodeId
    gpu_uuids: tuple[GpuUuid, ...]
    reason: str = ""
    trace: str = ""


NodeAsk = Cordon | Uncordon | Drain | Undrain | Maintain | CancelMaintenance | ReturnGpus
OperatorAsk = (
    SetQueues
    | SetPolicy
    | SetAccounts
    | SetPrices
    | Grant
    | Adjust
    | Cordon
    | Uncordon
    | Drain
    | Undrain
    | Maintain
    | CancelMaintenance
    | ReturnGpus
)


class RefusalCode(StrEnum):
    """Why the gate did not take something. Stable: programs compare them."""

    INVALID = "invalid"  # the ask or its spec is wrong; the message says where and what was meant
    TOO_LARGE = "too_large"
    CONFLICT = "conflict"  # the same key with another body
    MOVED = "moved"  # the document is no longer the one that its writer saw: look at it, then set it again
    NOT_FOUND = "not_found"
    FORBIDDEN = "forbidden"
    STALE = "stale"  # a report of an agent that has been replaced
    BUSY = "busy"  # more waits than the gate may hold: try again
    UNKNOWN = "unknown"  # the log did not answer: it may or may not be done; ask again with the same key

    @classmethod
    def _missing_(cls, _value: object) -> "RefusalCode":
        """A newer gate's code: the message says what is meant, and to ask again does no harm."""
        return cls.UNKNOWN


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="accepted"):
    """It is in the log, for ever, at `position` (of the last fact, where there were several)."""

    position: Position
    job_id: JobId = JobId("")
    repeated: bool = False  # it already was, from an earlier ask with the same key
    changes: tuple[str, ...] = ()  # of a document, against the one that held before: a line each
    warnings: tuple[str, ...] = ()  # of a document: what is legal, and probably not meant
    ask_id: AskId = AskId("")  # of what was asked of an account: what becomes of it is told under this id


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="refused"):
    """Nothing was written."""

    code: RefusalCode
    message: str  # a sentence that names the field and the value
    hint: str = ""  # what was probably meant, or what to do
    job_id: JobId = JobId("")  # with `conflict`: the job that has the key
    position: Position = Position(0)  # with `moved`: of the document that holds
    ask_id: AskId = AskId("")  # with `conflict`: what was asked of the account under the key


Answer = Accepted | Refused


AgentReport = (
    NodeJoined
    | NodeDescribed
    | GpusFoundClean
    | ShareStarted
    | CheckpointSaved
    | ShareEnded
    | GpusReleased
    | RanksUnkillable
    | GpuSignalled
    | GpuRecovered
    | GpuResetFailed
)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent saw since its last report, in order; all or nothing."""

    instance: str
    reports: tuple[AgentReport, ...]


class WhyAsk(msgspec.Struct, frozen=True, kw_only=True):
    """Why does this job wait (or what became of it)? Sent on `why`, answered by any control plane from its fold."""

    job_id: JobId


class Tier(StrEnum):
    """What kind of reason a job waits for, the gravest first: the gravest that holds is the one told."""

    HELD = "held"  # by an operator, or by its own back-off
    IMPOSSIBLE = "impossible"  # with the cluster and the queues of now
    OVER_QUOTA = "over_quota"  # its team may claim no more now
    ROOM = "room"  # it may run, and waits for GPUs
    NOT_EVALUATED = "not_evaluated"  # a round will look at it, or at those before it


class Basis(StrEnum):
    """What an estimated start rests on."""

    NEXT_ROUND = "next_round"  # it fits: only the next round is missing
    BACK_OFF = "back_off"  # not before its back-off ends
    PREEMPTED = "preempted"  # what its victims may take to stop
    PROMISE = "promise"  # the start that it is promised
    DECLARED_ENDS = "declared_ends"  # when enough runs end by their declared runtimes: not before that
    UNKNOWN = "unknown"  # nothing says when; the message says what is missing


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job at a position and, while it waits, the reason with its numbers."""

    job_id: JobId
    found: bool  # False: the fold does not know it (never submitted, or ended and forgotten)
    position: Position
    leader: bool = False  # of whether the answer came from the leader
    state: str = ""
    code: str = ""  # a `HoldCode` while it waits
    message: str = ""  # one sentence with the numbers
    need: dict[str, int] = {}  # "gpus", "min_gpus", "nodes", "gpus_per_node"
    have: dict[str, int] = {}  # "gpus_free", "gpus_total", "nodes", "nodes_free_whole", …
    ahead: int = 0  # waiting jobs before it in order
    blockers: tuple[str, ...] = ()  # jobs that hold what it needs, the largest first; bounded
    next_action: str = ""  # what the user can do
    halted: Position = Position(0)  # the record at which all deciding stopped; 0: it goes on
    at: Moment | None = None  # the moment that the answer is of
    team: str = ""
    tier: str = ""  # a `Tier` while it waits
    behind: str = ""  # the job before it that holds it up, or the first in order of those before it
    queue: str = ""  # whose bound, pause or order it is, for the codes that have one
    gpu_type: str = ""  # that the next numbers are of
    entitled: int | None = None  # GPUs of that type that its team may claim now
    used: int | None = None  # GPUs of that type that its team has
    limit: int | None = None  # of `queue`, for the codes that have one
    preempting: tuple[str, ...] = ()  # jobs that are stopped for it; bounded
    reserved: tuple[str, ...] = ()  # nodes that drain towards it, or are set aside for it; bounded
    estimated_start: Moment | None = None  # None: see `basis`
    basis: str = ""  # a `Basis` while it waits
    estimate: str = ""  # one sentence about that
    account: str = ""  # that pays for it; empty: nobody charges it, or none may be charged
    reserves_micro: int | None = None  # micro-credits that are reserved for its run, or will be before it may run
    has_micro: int | None = None  # micro-credits that the account can still pay; None: nobody pays, or no bound
    short_micro: int = 0  # of what is to be reserved, what the account cannot pay now
    charge: str = ""  # how `reserves_micro` is worked out


class EntitledAsk(msgspec.Struct, frozen=True, kw_only=True):
    """What may each queue claim now? Sent on `entitled`, answered by any control plane from its fold."""


class Entitled(msgspec.Struct, frozen=True, kw_only=True):
    """What queues may claim, each with all below it, as of a position."""

    position: Position
    leader: bool = False  # of whether the answer came from the leader
    queues: dict[str, dict[str, int]] = {}  # by name and GPU type: GPUs; without those that may claim none


class RollAsk(msgspec.Struct, frozen=True, kw_only=True):
    """Close this chapter of the log, and go on in the next. Sent on `roll`, done by any control plane that is awake."""

    by: str = ""  # who asks


class RollAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The chapter that was closed, and the next; or why not."""

    closed: Position = START  # of the last record of the one; `START`: it was not closed
    opened: Position = START  # of the first record of the other
    gap_s: float = 0.0  # for how long nothing was written
    message: str = ""  # why not


class DryRunAsk(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of this job, were it submitted now? Sent on `dry_run`, answered by any control plane."""

    team: TeamId
    spec: JobSpec  # as the gate has checked it


class Outcome(StrEnum):
    """What the deciders would do with a job that is submitted now."""

    STARTS = "starts"  # it gets its GPUs at once
    PREEMPTS = "preempts"  # others are stopped for it
    MOVES = "moves"  # others are moved, so that it finds whole nodes
    PROMISED = "promised"  # nodes drain towards it
    WAITS = "waits"
    REJECTED = "rejected"
    NOT_EVALUATED = "not_evaluated"  # more waits before it than was tried


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What the deciders would do, as of a position. Nothing was written."""

    position: Position
    leader: bool = False  # of whether the answer came from the leader
    halted: Position = Position(0)  # the record at which all deciding stopped; 0: it goes on
    outcome: str = ""  # an `Outcome`
    code: str = ""  # why it waits or is rejected
    message: str = ""  # one sentence with the numbers
    nodes: dict[str, int] = {}  # where it would start, now or later, and on how many GPUs of each
    preempts: tuple[str, ...] = ()  # jobs that would be stopped, or moved
    gpu_type: str = ""  # that it would get, or wants first
    gpus: int = 0  # that it would get: fewer than it asks for where it is elastic
    entitled: int = 0  # GPUs of that type that its team may claim, with this job among its demand
    used: int = 0  # GPUs of that type that its team would have with it
    borrowed: int = 0  # of those, beyond what it is entitled to
    account: str = ""  # that would pay for it; empty: nobody charges it, or none may be charged
    reserves_micro: int | None = None  # micro-credits that would be reserved for its run before it may run
    short_micro: int = 0  # of these, what the account cannot pay now
    charge: str = ""  # how `reserves_micro` is worked out
    why: Why | None = None  # with all numbers, while it waits
