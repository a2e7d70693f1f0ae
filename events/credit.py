"""The credit family (`credit.<account>`): every movement of credits, and every use of GPUs that they pay for.

Double entry: each movement takes from one place and puts into another. Grants and adjustments move between the provider
and what is available; a reservation from available to reserved; a commit from reserved to spent; a refund from reserved
back to available. Balance = granted + adjusted - committed - reserved.
"""

from enum import StrEnum
from typing import ClassVar

import msgspec

from events.base import (
    CREDIT,
    START,
    AccountId,
    AskId,
    Count,
    Event,
    Family,
    JobId,
    Micro,
    MicroCount,
    Moment,
    Position,
    RunId,
    TeamId,
)
from events.policy import Bearer, ChargeFrom


class EndedAs(StrEnum):
    """Why a run, or the wait for one, was over, as far as charging goes."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # a rank of its own did
    CANCELLED = "cancelled"
    TIME_LIMIT = "time_limit"
    CREDITS = "credits"
    INTERRUPTED = "interrupted"  # by a node, a GPU, or us
    PREEMPTED = "preempted"  # for another job
    CONSOLIDATED = "consolidated"  # moved, so that a gang finds whole nodes
    QUEUE_HELD = "queue_held"
    NEVER_PLACED = "never_placed"  # cancelled or taken back before it had GPUs


class RefundCause(StrEnum):
    """Why reserved credits were given back."""

    UNUSED = "unused"  # it ended earlier than it might have
    TRIMMED = "trimmed"  # it was placed on fewer, or cheaper, GPUs than it might have been
    NEVER_PLACED = "never_placed"
    INTERRUPTED = "interrupted"  # what was lost, or all, when a node, a GPU or we ended it
    PREEMPTED = "preempted"  # likewise, when it had to make room


class AdjustCause(StrEnum):
    """Why a balance was corrected."""

    OPERATOR = "operator"
    REFUND = "refund"  # of what had been committed
    UNCOVERED = "uncovered"  # what was used beyond what was reserved, where the account bears it


class Rate(msgspec.Struct, frozen=True, gc=False):
    """What an hour of one GPU costs a run."""

    gpu_type: str
    nano_per_gpu_hour: MicroCount  # nano-credits: the price in micro-credits times the factor in thousandths, exactly


class CreditEvent(Event, kw_only=True, frozen=True):
    """A record about an account. Written by the control plane alone."""

    family: ClassVar[Family] = CREDIT

    account: AccountId
    entry: Count  # the account's own count of these records, from 1, without a gap


class CreditGranted(CreditEvent, kw_only=True, frozen=True, tag="musterbook.credit.granted.v1"):
    """The account has more credits."""

    ask_id: AskId
    amount_micro: MicroCount
    reason: str = ""


class CreditAdjusted(CreditEvent, kw_only=True, frozen=True, tag="musterbook.credit.adjusted.v1"):
    """The account's balance was corrected by a new entry, never by changing an old one."""

    amount_micro: Micro  # what the balance changed by
    cause: AdjustCause
    ask_id: AskId = AskId("")  # for those that an operator asked for
    of_entry: Count = 0  # the `CreditCommitted` that is given back, or the `UsageUncovered` that is charged
    reason: str = ""


class AskRefused(CreditEvent, kw_only=True, frozen=True, tag="musterbook.credit.ask_refused.v1"):
    """What an operator asked of the account was not done, and never will be under this key."""

    ask_id: AskId
    code: str  # "account_closed", "not_covered", "beyond_commit"
    message: str


class CreditReserved(CreditEvent, kw_only=True, frozen=True, tag="musterbook.credit.reserved.v1"):
    """Credits are set aside for a run that the job was admitted to in the same batch. Its prices are these, whatever comes.

    The reservation is known by this entry. It is resolved once: what was used is committed, the rest refunded.
    """

    run_id: RunId  # that the job will have
    job_id: JobId
    team: TeamId
    amount_micro: MicroCount
    gpus: Count  # the most that it may get
    covers_s: Count  # for so long, all of them at the dearest of the rates
    declared: bool  # that is its declared runtime; False: the first instalment
    rates: tuple[Rate, ...]  # of each GPU type that it may get
    step_s: Count
    charge_from: ChargeFrom
    prices: Position  # of the document that they are from
    effective_from: Moment | None = None  # of the list in it


class CreditRenewed(CreditEvent, kw_only=True, frozen=True, tag="musterbook.credit.renewed.v1"):
    """More is set aside for a run that goes on."""

    reservation: Count  # the entry of its `CreditReserved`
    run_id: RunId
    job_id: JobId
    amount_micro: MicroCount
    covers_s: Count  # for so much longer


class CreditsRunningOut(CreditEvent, kw_only=True, frozen=True, tag="musterbook.credit.running_out.v1"):
    """The account cannot pay for more of a run: unless it can before, the run is told to stop, early enough for its grace."""

    reservation: Count
    run_id: RunId
    job_id: JobId
    until: Moment  # what is reserved lasts


class CreditCommitted(CreditEvent, kw_only=True, frozen=True, tag="musterbook.credit.committed.v1"):
    """What a run used is paid for: the one time that its cost is rounded, half to even."""

    reservation: Count
    run_id: RunId
    job_id: JobId
    team: TeamId
    amount_micro: MicroCount  # never more than was reserved
    gpu_us: MicroCount  # GPU-microseconds charged
    gpu_type: str
    nano_per_gpu_hour: MicroCount
    began: Moment  # of what is counted, by the log's store times
    ended: Moment
    outcome: EndedAs


class CreditRefunded(CreditEvent, kw_only=True, frozen=True, tag="musterbook.credit.refunded.v1"):
    """Reserved credits are available again."""

    reservation: Count
    run_id: RunId
    job_id: JobId
    amount_micro: MicroCount
    cause: RefundCause
    gpu_us: MicroCount = 0  # GPU-microseconds that were used and are not charged
    evidence: tuple[str, ...] = ()  # CloudEvents ids of what proves the cause


class UsageUncovered(CreditEvent, kw_only=True, frozen=True, tag="musterbook.credit.usage_uncovered.v1"):
    """A run used more than was reserved for it. It was not committed."""

    reservation: Count
    run_id: RunId
    job_id: JobId
    amount_micro: MicroCount
    bearer: Bearer  # `account`: it is adjusted for it, as soon as it can pay


class UsageRecorded(CreditEvent, kw_only=True, frozen=True, tag="musterbook.credit.usage_recorded.v1"):
    """What a run used and costs in a part of its time: of each hour of the clock that is over, and of the rest at its end.

    `at`, the CloudEvents `time`, is when that part began, so that metering systems count it in its hour and month; in a
    correction it is when that was made. The records of a run add up to what it committed and, where the account bears
    it, what was uncovered.
    """

    usage_id: str  # "<run>-<number>"
    run_id: RunId
    job_id: JobId
    team: TeamId
    gpu_type: str
    gpu_us: Micro  # GPU-microseconds; less than 0 in a correction
    amount_micro: Micro
    nano_per_gpu_hour: MicroCount
    began: Moment
    ended: Moment  # exclusive
    corrects: bool = False  # it takes back a part of what earlier records of the run say
    cause: str = ""  # of a correction: a `RefundCause`
    prices: Position = START  # of the document that its price is from


class AccountClosed(CreditEvent, kw_only=True, frozen=True, tag="musterbook.credit.account_closed.v1"):
    """Nothing is reserved on the account, and nothing ever happens on it again."""
