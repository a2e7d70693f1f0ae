"""What the API takes and gives, field by field: the models that its OpenAPI document is made from."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from services.gate.gate import MANY_MAX, REASON_MAX
from services.gate.names import KEY_MAX
from services.gate.node_asks import NODES_MAX

TEAM_DEFAULT: Final = "default"
PAGE: Final = 50  # jobs, where the client does not say
PAGE_MAX: Final = 500
PROMISES_MAX: Final = 500
TIMELINE_MAX: Final = 1_000  # events
LINES_MAX: Final = 20_000  # of output in one answer: the last ones

State = Literal[
    "queued", "admitted", "placed", "running", "stopping", "succeeded", "failed", "cancelled", "timed_out", "rejected"
]
POSITION: Final = "Place in the event log that this shows: nothing before it is missing."


class Taken(BaseModel):
    """What clients send: fields that nobody knows are refused."""

    model_config = ConfigDict(extra="forbid")


class SubmitBody(Taken):
    """A job to run."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"spec": {"command": ["python3", "train.py"], "gpus": 16}, "team": "vision", "key": "train-1"}]
        }
    )

    spec: dict[str, Any] = Field(description="The job: see /schemas/job_spec.json.")
    team: str = Field(
        "", description=f"Whose job it is; else the header Muster-Team, else the spec's, else {TEAM_DEFAULT}."
    )
    key: str = Field(
        "", max_length=KEY_MAX, description="Idempotency key; else the header Idempotency-Key, else a new one."
    )


class SubmitManyBody(Taken):
    """Many jobs to run, each for itself."""

    jobs: Annotated[list[SubmitBody], Field(min_length=1, max_length=MANY_MAX)]
    team: str = Field("", description="Of every job that names none.")


class CancelBody(Taken):
    """Why a job is no longer wanted."""

    reason: str = Field("", max_length=REASON_MAX)


class ResumeBody(Taken):
    """Why a job may try again."""

    reason: str = Field("", max_length=REASON_MAX)


class Listing(BaseModel):
    """Which jobs to list: those that fit all that is given."""

    team: str | None = None
    state: list[State] | None = Field(None, description="May be repeated.")
    name: str | None = None
    since: datetime | None = Field(None, description="Submitted at or after this time.")
    limit: int = Field(PAGE, ge=1, le=PAGE_MAX)
    cursor: str | None = Field(None, description="`next_cursor` of the page before.")


class Stretch(BaseModel):
    """Which of a job's events to show."""

    after: int = Field(0, ge=0, description="Only what came after this position.")
    limit: int = Field(TIMELINE_MAX, ge=1, le=TIMELINE_MAX)


class Following(BaseModel):
    """Which events to send."""

    after: int = Field(0, ge=0, alias="from", description="Only what came after this position.")
    job: str = Field("", description="Only of this job, with the reports of its nodes.")
    type: list[str] | None = Field(None, description="Only of this type; may be repeated.")
    follow: bool = Field(False, description="Go on as events come; else end at the end.")


class Printed(BaseModel):
    """Which output to show."""

    rank: int | None = Field(None, ge=0, description="Only of this rank.")
    tail: int | None = Field(None, ge=0, le=LINES_MAX, description="Only the last lines.")
    follow: bool = Field(False, description="Stream lines until the job has ended, then an event `end`.")
    after: int = Field(0, ge=0, description="Only what came after this id of the stream.")


class Submitted(BaseModel):
    """The job is in the log, for ever."""

    job_id: str
    team: str
    key: str = Field(description="The same key again gives the same job.")
    position: int = Field(description="Of the submission: pass it as min_position to read what you wrote.")
    repeated: bool = Field(description="Whether an earlier ask with this key was the one that counted.")


class Problem(BaseModel):
    """What went wrong, after RFC 9457."""

    type: str = "about:blank"
    title: str
    status: int
    code: str = Field(description="Stable: programs compare it.")
    detail: str = Field(description="A sentence that names the field and the value.")
    hint: str = Field("", description="What was probably meant, or what to do.")
    job_id: str = Field("", description="With `conflict`: the job that has the key.")
    position: int | None = Field(
        None, description="With `behind`: where the tables are. With `moved`: of the document that holds."
    )


class SubmittedOne(BaseModel):
    """What became of one of many: `job_id`, `position` and `repeated`, or a `problem`."""

    job_id: str = ""
    team: str
    key: str
    position: int = 0
    repeated: bool = False
    problem: Problem | None = None


class SubmittedMany(BaseModel):
    """What became of each, in the order of the asks."""

    jobs: list[SubmittedOne]
    accepted: int
    refused: int


class Cancelled(BaseModel):
    """That the job is no longer wanted is in the log."""

    job_id: str
    team: str
    position: int
    repeated: bool = Field(description="Whether it had been cancelled before.")


class Resumed(BaseModel):
    """That the job may try again is in the log."""

    job_id: str
    team: str
    position: int
    repeated: bool = Field(description="Whether it had been resumed already.")


class Job(BaseModel):
    """A job, as of `position`."""

    job_id: str
    name: str
    team: str
    state: State
    reason: str = Field(description="Why it waits, or what ended it: `hold_code` or `cause`; empty for neither.")
    message: str = Field(description="A sentence about that, where there is one.")
    hold_code: str = Field(description="Why it waits; empty when it does not.")
    cause: str = Field(description="Why it was stopped, last; empty when it was not.")
    category: str = Field(description="Whose failure the end of its last run was, from evidence; empty: nobody's.")
    gpus: int = Field(description="Of the whole gang.")
    nodes: int = Field(description="Nodes of its last run; 0 before the first.")
    node_ids: list[str] = Field(description="Nodes of its last run, in the order of ranks.")
    priority: str
    gpu_types: list[str]
    attempt: int = Field(description="Number of its last run, from 1; 0 before it.")
    run_id: str = Field(description="Of its last run; empty before it.")
    key: str
    submitted_by: str
    submitted_at: datetime
    admitted_at: datetime | None
    placed_at: datetime | None
    started_at: datetime | None = Field(description="When every rank of its last run had started.")
    ended_at: datetime | None
    not_before: datetime | None = Field(description="Until when a requeued job backs off.")
    exit_code: int | None = Field(description="Of the first rank that failed; 128 + n after signal n.")
    failed_node: str
    cancel_requested_at: datetime | None
    cancel_reason: str
    submitted_position: int
    position: int = Field(description="Of the last event that changed it.")
    min_gpus: int = Field(description="An elastic gang starts with so many at the least; 0: with all.")
    gpus_placed: int | None = Field(description="That its last run got; null before it.")
    gpu_type: str = Field(description="Of these; empty before.")
    within: str = Field(description="`rack` or `spine`: how close together its nodes stand; empty: anywhere.")
    within_required: bool = Field(description="Whether they must, or only should.")
    max_runtime_s: int = Field(description="Declared; 0: not.")
    preemptible: bool
    borrowing: bool = Field(description="Admitted beyond what its team was entitled to then.")
    evictions: int = Field(description="How often a run of it was stopped for another job, or moved.")
    evicted_for: str = Field(description="The job for which that was decided last; empty: never.")
    promised: bool = Field(description="Whether nodes drain towards it.")
    promised_start: datetime | None = Field(description="As promised now; null where no time can be said.")
    earmarked: bool = Field(description="Whether GPUs are set aside for it, which others give up or have given up.")
    account: str = Field(description="That pays for it, or would; empty: it is not charged.")
    reserves: str | None = Field(
        description="Credits set aside for its run; of a job that waits, those it needs. Null: none, or not known."
    )
    reserves_micro: int | None
    cost: str = Field(description="Credits that its runs were charged so far, without what was given back of that.")
    cost_micro: int
    given_back: str = Field(description="Credits that operators gave back of what its runs were charged.")
    given_back_micro: int


class Evidence(BaseModel):
    """A record in the log that says what ended a run."""

    event_id: str
    type: str
    position: int
    at: datetime


class Attempt(BaseModel):
    """One run of a job."""

    attempt: int
    run_id: str
    state: str = Field(description="`placed`, `running`, `stopping`, or how it ended.")
    category: str = Field(description="Whose failure its end was, from evidence; empty: nobody's, or not known.")
    cause: str
    node_id: str = Field(description="Whose failure it was, for causes that have one.")
    exit_code: int | None = Field(description="Of the first rank that failed; 128 + n after signal n.")
    reason: str = Field(description="How the share on that node ended, as its agent reported it.")
    message: str = Field(description="What could not be done there.")
    ended_by: str = Field(description="What ended it, as a sentence; empty while it goes on, and where it ended well.")
    held: bool = Field(description="Whether its job was held then: it waits until somebody resumes it.")
    gpus: int
    nodes: int
    node_ids: list[str] = Field(description="In order of node rank.")
    placed_at: datetime
    started_at: datetime | None
    stopping_at: datetime | None
    ended_at: datetime | None
    checkpoint: int | None = Field(description="The number of the last one that it said is safe.")
    saved_at: datetime | None
    lost_gpu_s: float | None = Field(
        description="GPU-seconds since then, or since its start, when it was told to stop."
    )
    evidence: list[Evidence] = Field(description="What was said of that node during the run, the last few records.")


class Jobs(BaseModel):
    """A page of jobs, newest first."""

    jobs: list[Job]
    next_cursor: str | None = Field(description="Of the next page; null on the last.")
    position: int = Field(description=POSITION)


class EventDocument(BaseModel):
    """An event: its CloudEvents document, its place in the log, and when that stored it."""

    model_config = ConfigDict(extra="allow")

    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: datetime
    datacontenttype: str
    data: dict[str, Any]
    position: int
    at: datetime = Field(description="When the log stored it: what is measured and charged by.")
    by: str = Field(description="Who asked; empty for the control plane.")


class Timeline(BaseModel):
    """What happened to a job, in order."""

    job_id: str
    events: list[EventDocument]
    truncated: bool = Field(description="Whether there are more: ask with `after` = the last position.")
    position: int = Field(description=POSITION)


class LogLine(BaseModel):
    """A line that a rank printed."""

    rank: int
    stream: str
    text: str
    at: datetime
    run_id: str
    node_id: str


class LogLines(BaseModel):
    """What the ranks of a job printed."""

    job_id: str
    lines: list[LogLine]
    truncated: bool = Field(description="Whether older lines were left out.")


class StandingDocument(BaseModel):
    """A document that holds until another one is set in its place."""

    document: dict[str, Any] = Field(description="As it is typed: what a PUT takes.")
    position: int = Field(description="Of the document in the event log, and its ETag; 0: nobody has set one.")
    by: str = Field(description="Who set it.")
    at: datetime | None = Field(description="When it was set; null: nobody did.")


class DocumentSet(BaseModel):
    """The document holds, or would."""

    position: int = Field(description="Of the document that holds now, and its ETag.")
    changed: bool = Field(description="Whether it was written: false for the one that held already, and for a dry run.")
    would_change: bool = Field(
        description="Whether it differs from the one that held before: of a dry run, what it found."
    )
    changes: list[str] = Field(description="Against the one that held before: a line each.")
    warnings: list[str] = Field(description="What is legal and probably not meant.")


class NodesBody(Taken):
    """Some nodes, and why."""

    nodes: Annotated[list[str], Field(min_length=1, max_length=NODES_MAX)]
    reason: str = Field("", max_length=REASON_MAX)


class NodeBody(Taken):
    """Why."""

    reason: str = Field("", max_length=REASON_MAX)


class NodesSaid(BaseModel):
    """What was said of the nodes is in the log."""

    nodes: list[str]
    position: int
    repeated: bool = Field(description="Whether it had been said of all of them before.")


class Check(BaseModel):
    """One thing that must be well for the API to be of use."""

    ok: bool
    detail: str


class Ready(BaseModel):
    """Whether the API is of use, and what is not well."""

    ready: bool
    checks: dict[str, Check]
    position: int
    lag: int = Field(description="Events that the tables do not show yet; -1 while that is not known.")
