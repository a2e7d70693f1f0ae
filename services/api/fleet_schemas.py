"""What the API gives of nodes, queues and promises, field by field."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from services.api.drain_schemas import DrainShown, Held, Standing, WindowShown
from services.api.gpu_schemas import Gpu
from services.api.schemas import POSITION, PROMISES_MAX


class Node(BaseModel):
    """A node and its GPUs."""

    node_id: str
    state: Literal["up", "suspect", "lost"]
    gpu_type: str
    gpus_total: int
    gpus_used: int
    gpus_free: int
    gpus_out: int = Field(description="Neither: not found clean yet, sick, or of a lost node.")
    gpus_sick: int = Field(description="That are given to nobody, by what they showed.")
    gpus_cleaning: int = Field(description="Of those used, by runs that have ended, and that are not given back yet.")
    gpus_earmarked: int = Field(description="Set aside for a job, used by others still or free already.")
    earmarked_for: list[str] = Field(description="These jobs.")
    epoch: int
    address: str
    agent_version: str
    instance: str = Field(description="Of its agent: another one each time that it starts.")
    rack: str = Field(description="Its label `rack`; empty: nobody said.")
    spine: str = Field(description="Its label `spine`; empty: nobody said.")
    labels: dict[str, str]
    taints: list[str] = Field(description="Only jobs that tolerate all of them come here.")
    cordoned: bool = Field(description="Nothing new is placed here.")
    cordoned_at: datetime | None
    cordoned_by: str
    cordon_reason: str
    standing: Standing = Field(description="Whether it takes new work, and if not, why: the gravest reason.")
    drain: DrainShown | None = Field(description="What drains it; null: nothing.")
    windows: list[WindowShown] = Field(description="Maintenance, by its start.")
    retired_at: datetime | None
    runs: int = Field(description="That hold GPUs here.")
    silent_s: float | None = Field(description="When it was last judged; null: it was heard.")
    patience_s: float | None = Field(description="How long its silence was borne, where it was lost.")
    clock_ahead_s: float | None = Field(description="How far its clock was ahead of the control plane's, as last said.")
    lemon_score: int | None = Field(description="Its faults, weighted, when one was last judged; null: none was.")
    joined_at: datetime
    state_at: datetime
    position: int


class NodeDetail(Node):
    """A node, its GPUs, and what runs there."""

    gpus: list[Gpu] = Field(description="By their slots, those too that it has no more.")
    held: list[Held] = Field(description="By its runs, the first to end first.")


class Nodes(BaseModel):
    """All nodes."""

    nodes: list[Node]
    position: int = Field(description=POSITION)


class QueueUse(BaseModel):
    """Jobs and GPUs of a queue and all below it."""

    jobs_waiting: int
    jobs_running: int = Field(description="That hold GPUs.")
    gpus_used: int
    gpus_borrowed: int = Field(
        description="Of these, by jobs that were admitted beyond what their team was entitled to."
    )
    gpus_waiting: int


class Queue(BaseModel):
    """A queue: what the document says of it, and the jobs and GPUs of its own team."""

    team: str
    listed: bool = Field(description="Whether the document names it; else it stands at the root, with weight 1.")
    parent: str = Field(description="Empty: at the root.")
    depth: int = Field(description="Queues above it.")
    weight: int
    bounds: list[dict[str, Any]] = Field(description="As in the document: floor, limit, … by `gpu_type`, or over all.")
    order: str
    stop: str = Field(description="Its own: `none`, `pause` or `hold`.")
    stopped: str = Field(description="The same, with what is above it: the gravest.")
    pending_max: int | None
    running_max: int | None
    jobs_waiting: int
    jobs_running: int = Field(description="That hold GPUs.")
    jobs_ended: int
    gpus_used: int
    gpus_used_by_type: dict[str, int]
    gpus_borrowed: int = Field(
        description="Of these, by jobs that were admitted beyond what their team was entitled to."
    )
    gpus_waiting: int
    by_state: dict[str, int]
    entitled: dict[str, int] | None = Field(
        description="GPUs by type that it may claim now with all below it, never more than are used and wanted there; "
        "a type that is not named: none. null: no control plane answered."
    )
    whole: QueueUse = Field(description="With all that is below it.")


class Queues(BaseModel):
    """The queues of the document and all teams that ever asked, each before those below it."""

    queues: list[Queue]
    position: int = Field(description=POSITION)


class PromiseListing(BaseModel):
    """Which promises to list."""

    job: str | None = Field(None, description="Only of this job.")
    limit: int = Field(50, ge=1, le=PROMISES_MAX)
    cursor: int | None = Field(None, ge=0, description="`next_cursor` of the page before.")


class Promise(BaseModel):
    """A promise of a start, from when it was made."""

    job_id: str
    team: str
    gpus: int
    outcome: Literal["open", "kept", "late", "untimed", "dropped"] = Field(
        description="`kept`: placed by the start that was promised first; `untimed`: placed, and no time was ever named."
    )
    promised_at: datetime
    first_start: datetime | None = Field(description="The time that was named first.")
    start: datetime | None = Field(description="As promised last.")
    slip_s: float | None = Field(description="From the first to the last, or to when it was placed, in seconds.")
    moves: int
    causes: dict[str, int] = Field(description="Of its moves.")
    cause: str = Field(description="Of its last move, or why it was dropped; empty for neither.")
    ended_at: datetime | None = Field(description="When the job was placed, or the promise dropped.")
    position: int = Field(description="Of its `StartPromised`.")


class Promises(BaseModel):
    """Promises, newest first, and how all of them fared."""

    promises: list[Promise]
    next_cursor: int | None
    outcomes: dict[str, int] = Field(description="Of all promises ever made.")
    slips: dict[str, int] = Field(description="Moves of all promises ever made, by cause.")
    hit_rate: float | None = Field(description="kept / (kept + late); null while there is neither.")
    position: int = Field(description=POSITION)
