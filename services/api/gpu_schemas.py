"""What the API takes and gives of GPUs and alarms, field by field."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StrictInt

from services.api.schemas import POSITION, Taken
from services.gate.gate import REASON_MAX
from services.gate.node_asks import GPUS_MAX

ALARMS_MAX = 500


class Health(BaseModel):
    """Why a GPU is given to nobody."""

    action: Literal["reset", "drain", "evict"]
    signal: str
    code: int
    rule: str = Field(description="The line of the table: `xid 79`; or the escalation: `5 faults in 24 h, …`.")
    table: str = Field(description="Version of the table that decided.")
    since: datetime
    returns_by: list[str] = Field(description="What takes it back into use: `reset`, `reboot`, `driver`, `operator`.")


class Verdict(BaseModel):
    """The last verdict on a GPU."""

    action: Literal["log", "restart", "reset", "drain", "evict"]
    signal: str
    code: int
    rule: str
    at: datetime
    held_back: bool = Field(description="By the breaker: the GPU stayed in use.")


class Gpu(BaseModel):
    """A GPU of a node."""

    slot: int = Field(description="Its number on the node, for ever.")
    uuid: str
    state: Literal["unclean", "free", "held", "cleaning", "lost", "absent"] = Field(
        description="`cleaning`: what ran there has ended, and nobody has seen yet that nothing holds it any more."
    )
    run_id: str = Field(description="That holds it; empty: none.")
    earmarked_for: str = Field(description="The job that it is set aside for; empty: none.")
    health: Health | None = Field(description="null: it may be given away.")
    judged: Verdict | None = Field(description="null: it was never judged.")


class ReturnBody(Taken):
    """Which GPUs of a node are sound."""

    gpus: Annotated[list[StrictInt | str], Field(max_length=GPUS_MAX)] = Field(
        [], description="Slots or UUIDs; none: all that are out."
    )
    reason: str = Field("", max_length=REASON_MAX)


class GpusSaid(BaseModel):
    """What was said of the GPUs is in the log. A round, within the second, returns them."""

    node_id: str
    gpus: list[str] = Field(description="Their UUIDs.")
    position: int


class AlarmListing(BaseModel):
    """Which alarms to list."""

    raised: bool = Field(False, description="Only those that are raised.")
    limit: int = Field(50, ge=1, le=ALARMS_MAX)
    cursor: int | None = Field(None, ge=0, description="`next_cursor` of the page before.")


class Alarm(BaseModel):
    """Something that needs a person, or did."""

    code: str
    message: str
    hint: str
    nodes: list[str] = Field(description="That it is about; the first few.")
    nodes_total: int
    raised_at: datetime
    cleared_at: datetime | None = Field(description="null: it is raised.")
    position: int = Field(description="Of its `AlarmRaised`.")


class Alarms(BaseModel):
    """Alarms, newest first."""

    alarms: list[Alarm]
    next_cursor: int | None
    position: int = Field(description=POSITION)
