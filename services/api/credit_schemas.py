"""What the API takes and gives of credits, field by field. Every amount twice: a decimal of credits, and whole micro-credits."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from events.amounts import MICRO, spelled_credits
from projections.cluster.credit.price import HOUR_US, half_even
from services.api.problems import MONTH
from services.api.schemas import POSITION, Attempt, Job, Taken
from services.gate.gate import REASON_MAX
from services.gate.names import KEY_MAX

PAGE: Final = 1_000  # entries, where the client does not say
PAGE_MAX: Final = 2_000  # some 20 ms, in which others wait
LAST_MAX: Final = 1_000_000
WAIT_MAX_S: Final = 20.0

EntryKind = Literal[
    "granted", "adjusted", "refused", "reserved", "renewed", "running_out", "committed", "refunded", "uncovered",
    "usage", "closed",
]  # fmt: skip
Month = Annotated[str, StringConstraints(pattern=MONTH)]


def money(**micro: int | None) -> dict[str, Any]:
    """Fields of each amount: `balance="12.5", balance_micro=12500000`. What has no amount has none in either."""
    decimals = {name: None if amount is None else spelled_credits(amount) for name, amount in micro.items()}
    return decimals | {f"{name}_micro": amount for name, amount in micro.items()}


def gpu_hours(gpu_us: int) -> str:
    """GPU-microseconds as a decimal of GPU-hours, to the nearest millionth."""
    return spelled_credits(half_even(gpu_us * MICRO, HOUR_US))


class Forecast(BaseModel):
    """How long the balance lasts at the pace of the last seven days."""

    since: datetime | None = Field(description="From when on use is counted; null: nothing was ever used.")
    used: str = Field(description="Credits since then: recorded, and by runs that go on.")
    used_micro: int
    per_day: str | None = Field(description="Credits a day; null: not enough is known.")
    per_day_micro: int | None
    days_left: float | None = Field(description="Balance / credits a day; null: not known, or nothing is used.")
    basis: str = Field(description="What this rests on, as a sentence.")


class Account(BaseModel):
    """An account, as of `position`."""

    account: str
    queues: list[str] = Field(description="Whose jobs it pays for, and those of queues below them.")
    granted: str
    granted_micro: int
    adjusted: str = Field(description="The sum of all corrections.")
    adjusted_micro: int
    committed: str = Field(description="What ended runs were charged.")
    committed_micro: int
    reserved: str = Field(description="Set aside for runs that are not settled.")
    reserved_micro: int
    balance: str = Field(description="Granted + adjusted - committed - reserved.")
    balance_micro: int
    overdraft: str | None = Field(description="How far below 0 the balance may go; null: no bound.")
    overdraft_micro: int | None
    headroom: str | None = Field(description="What may still be reserved: balance + overdraft; null: no bound.")
    headroom_micro: int | None
    owed: str = Field(description="Used beyond what was reserved, borne by the account, and not taken from it yet.")
    owed_micro: int
    reservations: int = Field(description="Runs that credits are set aside for.")
    entry: int = Field(description="Of its last record.")
    listed: bool = Field(description="Whether the accounts' document names it.")
    closing: bool = Field(description="Nothing more is reserved; it is closed once all is settled.")
    closed: bool = Field(description="For ever.")
    forecast: Forecast
    position: int


class Accounts(BaseModel):
    """All accounts, by name."""

    accounts: list[Account]
    position: int = Field(description=POSITION)


class StatementOf(BaseModel):
    """Which entries of an account: those that fit all that is given, the oldest first."""

    month: Month | None = Field(None, description="Only of this month, of UTC: 2026-11.", examples=["2026-11"])
    kind: list[EntryKind] | None = Field(None, description="Only of these kinds; may be repeated.")
    last: int | None = Field(None, ge=1, le=LAST_MAX, description="Only the last so many of them.")
    cursor: int = Field(0, ge=0, description="`next_cursor` of the page before.")
    limit: int = Field(PAGE, ge=1, le=PAGE_MAX)


class Entry(BaseModel):
    """One record of an account. Which fields say something depends on its kind."""

    account: str
    entry: int = Field(description="The account's own count of its records, from 1, without a gap.")
    at: datetime = Field(description="When the log stored it.")
    kind: EntryKind
    change: str = Field(description="What the balance changed by.")
    change_micro: int
    balance: str = Field(description="After it.")
    balance_micro: int
    amount: str = Field(
        description="Of what it is about, also where that changes no balance: a commit moves reserved credits to spent."
    )
    amount_micro: int
    run_id: str
    job_id: str
    team: str
    reservation: int = Field(description="The entry that reserved for the run; 0: none.")
    cause: str
    reason: str
    by: str = Field(description="Who asked; empty for the control plane.")
    ask_id: str
    gpu_us: int = Field(description="GPU-microseconds.")
    gpu_hours: str = Field(description="The same as a decimal of hours, to the nearest millionth.")
    of_entry: int = Field(description="The entry that is given back or charged; 0: none.")
    evidence: list[str] = Field(description="CloudEvents ids of what proves the cause.")
    position: int
    event_id: str
    gpus: int = Field(description="The most that it reserves for; 0: it says nothing of that.")
    covers_s: int = Field(description="It reserves for so long, or so much longer; 0: it says nothing of that.")
    until: datetime | None = Field(description="Of running_out: what is reserved lasts until then.")


class Total(BaseModel):
    """All entries of a kind among those that fit."""

    kind: EntryKind
    entries: int
    change: str
    change_micro: int
    amount: str
    amount_micro: int


class Statement(BaseModel):
    """A page of an account's records, the oldest first."""

    account: str
    entries: list[Entry]
    totals: list[Total] | None = Field(description="Of all entries that fit, on the first page; null on others.")
    next_cursor: int | None = Field(description="Of the next page; null on the last.")
    position: int = Field(description=POSITION)


class GrantBody(Taken):
    """More credits for an account."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"credits": "1000", "reason": "order 4711", "key": "order-4711"}]}
    )

    credits: str = Field(description="A decimal, more than 0, with up to six places.")
    reason: str = Field("", max_length=REASON_MAX, description="Kept in the log, and shown in the statement.")
    key: str = Field("", max_length=KEY_MAX, description="Idempotency key; else the header Idempotency-Key.")


class AdjustBody(Taken):
    """A correction of an account's balance, or of what a run was charged."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"credits": "-5", "reason": "granted twice", "key": "ticket-12"},
                {"credits": "12", "reason": "disk was slow", "key": "ticket-13", "refunds": "j7q2mc4kx3tfa9-1"},
            ]
        }
    )

    credits: str = Field(description="A decimal: what the balance changes by, never 0.")
    reason: str = Field("", max_length=REASON_MAX, description="Kept in the log, and shown in the statement.")
    key: str = Field("", max_length=KEY_MAX, description="Idempotency key; else the header Idempotency-Key.")
    refunds: str = Field(
        "",
        max_length=64,
        description="The run whose charge is given back, in whole or in part. Its id may be shortened: `j7q2-1`.",
    )


class Asked(BaseModel):
    """The wish is in the log, for ever; what becomes of it is at /v1/credits/asks/{ask_id}."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "ask_id": "azyvctz4s6h33p",
                    "account": "vision-2026",
                    "key": "order-4711",
                    "position": 1099511627787,
                    "repeated": False,
                }
            ]
        }
    )

    ask_id: str
    account: str
    key: str = Field(description="The same key again is the same wish.")
    position: int = Field(description="Of the wish: pass it as min_position to read what you wrote.")
    repeated: bool = Field(description="Whether an earlier ask with this key was the one that counted.")


class Ask(BaseModel):
    """What an operator asked of an account, and what became of it."""

    ask_id: str
    account: str
    kind: Literal["grant", "adjustment"]
    amount: str
    amount_micro: int
    state: Literal["asked", "done", "refused"]
    code: str = Field(description="Why it was refused: account_closed, not_covered, beyond_commit.")
    message: str = Field(description="A sentence about that.")
    entry: int = Field(description="That answered it; 0: none did yet.")
    reason: str
    by: str
    asked_at: datetime
    position: int = Field(description="Of the last record about it.")


class ClosedMonth(BaseModel):
    """A month whose usage is complete: exports of it never change."""

    month: str
    closed_at: datetime


class Months(BaseModel):
    """Which months are closed, and what the next one waits for."""

    closed_through: str = Field(description="As the accounts' document says; empty: no month is to be closed.")
    closed: list[ClosedMonth] = Field(description="In order.")
    next: str = Field(description="The month that is closed next; empty: none is to be.")
    waits_for: str = Field(description="What it waits for, as a sentence; empty where `next` is.")
    position: int = Field(description=POSITION)


class Bill(BaseModel):
    """What a run of a job costs: what was reserved for it and, once it is settled, what became of that."""

    run_id: str
    job_id: str
    account: str
    reservation: int = Field(description="The account's entry that reserved it.")
    state: Literal["reserved", "settled"]
    declared: bool = Field(description="Reserved for its declared runtime; false: for one instalment at a time.")
    covers_s: int = Field(description="For so long.")
    reserved: str = Field(description="In all, with what was added while it ran.")
    reserved_micro: int
    charged: str = Field(description="Committed, and uncovered use that the account bears.")
    charged_micro: int
    refunded: str = Field(description="Of what was reserved.")
    refunded_micro: int
    given_back: str = Field(description="By operators, later, of what was charged.")
    given_back_micro: int
    uncovered: str = Field(description="Used beyond what was reserved.")
    uncovered_micro: int
    bearer: str = Field(description="Who bears that: `account` or `provider`; empty: there is none.")
    gpu_type: str
    per_gpu_hour: str = Field(
        description="Its price, in credits, with its class's factor in it; to the nearest millionth."
    )
    nano_per_gpu_hour: int
    gpu_hours: str = Field(description="That are charged.")
    gpu_us: int
    waived_gpu_hours: str = Field(description="That were used and are not charged.")
    waived_us: int
    outcome: str
    running_out: datetime | None = Field(description="Its account cannot pay for it beyond this.")
    evidence: list[str] = Field(description="CloudEvents ids of what proves that it is not charged, or not whole.")
    prices: int = Field(description="Position of the document that its price is from.")
    reserved_at: datetime
    settled_at: datetime | None


class JobDetail(Job):
    """A job with what its user asked for, and what its runs cost."""

    attempts: list[Attempt] = Field(description="Its runs, the first one first; of very many the last ones.")
    bills: list[Bill] = Field(description="What each of its runs costs, the first one first; empty: nobody pays.")
    spec: dict[str, Any] | None = Field(description="As checked; null while the event log does not answer.")
