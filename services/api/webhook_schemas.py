"""What the routes of webhooks take and give, field by field."""

from datetime import datetime
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from services.api.schemas import Taken
from services.gate.names import KEY_MAX
from services.webhooks.address import URL_MAX
from services.webhooks.schedule import State
from services.webhooks.wanted import PATTERNS_MAX

GRACE_S: Final = 24 * 3_600
GRACE_MAX_S: Final = 30 * 24 * 3_600
DESCRIPTION_MAX: Final = 200
PAGE: Final = 50
PAGE_MAX: Final = 500
TYPES: Final = "Types, as musterbook.job.placed.v1 or musterbook.job.*; job.* for short."

Names = Annotated[list[str], Field(max_length=PATTERNS_MAX)]
Secret = Annotated[str, Field(max_length=100, description="whsec_ and base64 of 24 to 64 bytes; empty: one is made.")]


class WebhookBody(Taken):
    """An endpoint to send events to, from now on."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"url": "https://hooks.example/muster", "types": ["job.*"], "teams": ["vision"], "key": "hooks-1"},
                {"url": "https://hooks.example/bills", "types": ["credit.committed"], "accounts": ["vision-2026"]},
            ]
        }
    )

    url: str = Field(max_length=URL_MAX, description="https://…; http:// only into networks that an operator allows.")
    types: Annotated[list[str], Field(min_length=1, max_length=PATTERNS_MAX, description=TYPES)]
    teams: Names = Field([], description="Only jobs of these teams.")
    accounts: Names = Field([], description="Only credits of these accounts.")
    description: str = Field("", max_length=DESCRIPTION_MAX)
    key: str = Field("", max_length=KEY_MAX, description="Idempotency key: the same key again is the same endpoint.")
    secret: Secret = ""


class WebhookChange(Taken):
    """What is to be otherwise from now on; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"types": ["job.*", "credit.*"]}, {"enabled": False}]})

    url: str | None = Field(None, max_length=URL_MAX)
    types: Annotated[list[str], Field(min_length=1, max_length=PATTERNS_MAX)] | None = None
    teams: Names | None = None
    accounts: Names | None = None
    description: str | None = Field(None, max_length=DESCRIPTION_MAX)
    enabled: bool | None = Field(None, description="True again: it gets what happens from then on.")


class RotateBody(Taken):
    """Another secret."""

    secret: Secret = ""
    grace_s: int = Field(GRACE_S, ge=0, le=GRACE_MAX_S, description="Seconds for which the secrets before it sign too.")


class ReplayBody(Taken):
    """What to send again: events behind `after` and before `before`."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"after": "2h ago"}, {"after": "1:27", "before": "1:90"}]}
    )

    after: str = Field(max_length=60, description="A time, as 2026-01-31T14:30:00Z or 2h ago, or a position, as 1:27.")
    before: str = Field("", max_length=60, description="Likewise; empty: all until now.")


class Replay(BaseModel):
    """A range that is sent again."""

    replay_id: int
    after: int
    until: int = Field(description="With the event at this position.")
    reached: int = Field(description="Up to which events wait to be sent again.")
    matched: int = Field(description="How many of them so far.")
    made_at: datetime
    made_by: str
    ended_at: datetime | None


class Webhook(BaseModel):
    """An endpoint. Its secrets are never shown."""

    endpoint_id: str
    url: str
    types: list[str]
    teams: list[str]
    accounts: list[str]
    description: str
    enabled: bool
    stopped: str = Field(description="Why it is not: gone (it answered 410), backlog, operator; empty where it is.")
    after: int = Field(description="It gets events behind this position.")
    quiet_until: datetime | None = Field(description="It asked for less: nothing is sent to it before.")
    created_at: datetime
    created_by: str


class WebhookMade(Webhook):
    """An endpoint that is there now."""

    secret: str = Field(description="Shown here and never again; empty where the endpoint was there before.")
    repeated: bool = Field(description="Whether an earlier request with this key made it.")


class WebhookDetail(Webhook):
    """An endpoint, with what became of deliveries."""

    deliveries: dict[State, int] = Field(description="How many are in each state.")
    replays: list[Replay] = Field(description="The last ones, newest first.")
    secrets: int = Field(description="How many sign now: more than one while a secret is replaced.")


class Webhooks(BaseModel):
    """All endpoints, oldest first."""

    webhooks: list[Webhook]
    position: int = Field(description="Up to which every event that an endpoint wants is sent, or waits to be.")


class WebhookRemoved(BaseModel):
    """The endpoint is gone, with its secrets and deliveries."""

    endpoint_id: str


class Rotated(BaseModel):
    """The endpoint has another secret."""

    endpoint_id: str
    secret: str = Field(description="Shown here and never again.")
    until: datetime = Field(description="Until when the secrets before it sign too.")
    repeated: bool = Field(description="Whether it had this secret before.")


class Tested(BaseModel):
    """A test event is on its way."""

    endpoint_id: str
    webhook_id: str


class Replayed(Replay):
    """The replay that was asked for."""

    repeated: bool = Field(description="Whether it had been asked for before, and is not done.")


class Delivery(BaseModel):
    """What became of sending one event to the endpoint."""

    webhook_id: str = Field(description="The id of the event, as the receiver has it.")
    position: int = Field(description="Of the event; 0 for a test.")
    event_type: str
    state: State
    attempts: int
    next_try: datetime | None = Field(description="Of one that waits.")
    last_status: int | None = Field(description="HTTP status of the last attempt; 0: no answer.")
    last_problem: str = Field(description="Why there was none.")
    last_at: datetime | None
    made_at: datetime


class Deliveries(BaseModel):
    """Deliveries to the endpoint, newest events first."""

    deliveries: list[Delivery]


class Deliver(BaseModel):
    """Which deliveries to list."""

    state: State | None = None
    until: int | None = Field(None, ge=0, description="Only of events up to this position.")
    limit: int = Field(PAGE, ge=1, le=PAGE_MAX)
