"""What the API takes about drains, and what it gives of them, field by field."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from services.api.schemas import Taken
from services.gate.gate import REASON_MAX
from services.gate.node_asks import NODES_MAX

MOMENT = "A time with its zone, `2026-12-01T14:00:00Z`, or how long from now, `30m`."
Standing = Literal["open", "cordoned", "draining", "drained", "maintenance", "retired"]


class Which(Taken):
    """Which nodes, and why. Where the address names the node, neither of the first two."""

    nodes: Annotated[list[str], Field(max_length=NODES_MAX)] = Field([], description="Their names.")
    labels: Annotated[dict[str, str], Field(max_length=32)] = Field({}, description="All nodes with all of these.")
    reason: str = Field("", max_length=REASON_MAX)


class DrainBody(Which):
    """Nothing new, and until when what runs may finish."""

    reason: str = Field(max_length=REASON_MAX, description="Others will ask why.")
    deadline: str | None = Field(None, max_length=64, description=f"{MOMENT} null: what runs may take its time.")
    cause: Literal["operator", "upgrade"] = "operator"


class UndrainBody(Which):
    """Why they are used again."""


class RetireBody(Which):
    """For good."""

    reason: str = Field(max_length=REASON_MAX, description="Others will ask why.")
    deadline: str | None = Field(None, max_length=64, description=f"{MOMENT} null: what runs may take its time.")


class MaintainBody(Which):
    """A window of maintenance. The same name again replaces it."""

    window: str = Field(max_length=64, description="Its name.")
    starts: str | None = Field(None, max_length=64, description=MOMENT)
    ends: str | None = Field(None, max_length=64, description=MOMENT)
    cancel: bool = Field(False, description="It is not needed, or over already.")


class DrainShown(BaseModel):
    """What drains a node."""

    cause: str
    since: datetime
    by: str = Field(description="Who asked for it; empty: the control plane itself.")
    reason: str
    deadline: datetime | None = Field(description="When what still runs is stopped and moved; null: never.")
    window: str = Field(description="Of the maintenance that has begun; empty: of none.")
    drained_at: datetime | None = Field(description="When the node was empty; null: it is not yet.")


class WindowShown(BaseModel):
    """Maintenance that is planned, or on."""

    window: str
    starts: datetime
    ends: datetime
    reason: str
    by: str


class Held(BaseModel):
    """A run that holds GPUs of the node."""

    job_id: str
    run_id: str
    team: str
    name: str
    state: str
    gpus: int = Field(description="On this node.")
    since: datetime
    ends_by: datetime | None = Field(description="By its declared runtime; null: nobody said.")
