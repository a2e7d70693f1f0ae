"""`job_view`: every job ever asked for, one row each, as users see it."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from events.base import Event, JobId, NodeId, Position, Recorded, RunId, TeamId, job_id_of
from events.job import (
    AdmissionWithdrawn,
    EarmarkDropped,
    FailureCategory,
    GpusEarmarked,
    HoldCode,
    IntakeEvent,
    JobAdmitted,
    JobCancelled,
    JobCancelRequested,
    JobEvent,
    JobFailed,
    JobHeld,
    JobPlaced,
    JobRejected,
    JobRequeued,
    JobResumeAsked,
    JobSubmitted,
    JobSucceeded,
    JobTimedOut,
    PromiseDropped,
    PromiseMoved,
    RunStarted,
    RunStopping,
    StartPromised,
    StopCause,
)
from projections.tables.rows import Rows, text
from runtime.postgres import Connection, Pool

LOAD: Final = """
SELECT job_id, team, name, key, submitted_by, priority, gpus, nodes_asked, gpus_per_node, gpu_types,
       state, hold_code, attempt, run_id, nodes, cause, exit_code, failed_node, message, cancel_reason,
       cancel_at, not_before, submitted_at, admitted_at, placed_at, started_at, ended_at, submitted, position,
       coalesce(min_gpus, 0), within, coalesce(within_required, false), coalesce(max_runtime_s, 0),
       coalesce(preemptible, true), coalesce(borrowing, false), gpus_placed, gpu_type, coalesce(evictions, 0),
       evicted_for, promise, promised_start, earmark, coalesce(account, ''), category
FROM job_view WHERE job_id = ANY($1)
"""
WRITE: Final = """
INSERT INTO job_view SELECT * FROM json_populate_recordset(NULL::job_view, $1::json)
ON CONFLICT (job_id) DO UPDATE SET
    state = excluded.state, hold_code = excluded.hold_code, attempt = excluded.attempt, run_id = excluded.run_id,
    nodes = excluded.nodes, cause = excluded.cause, exit_code = excluded.exit_code,
    failed_node = excluded.failed_node, message = excluded.message, cancel_reason = excluded.cancel_reason,
    cancel_at = excluded.cancel_at, not_before = excluded.not_before, admitted_at = excluded.admitted_at,
    placed_at = excluded.placed_at, started_at = excluded.started_at, ended_at = excluded.ended_at,
    position = excluded.position, borrowing = excluded.borrowing, gpus_placed = excluded.gpus_placed,
    gpu_type = excluded.gpu_type, evictions = excluded.evictions, evicted_for = excluded.evicted_for,
    promise = excluded.promise, promised_start = excluded.promised_start, earmark = excluded.earmark,
    category = excluded.category
"""
COLUMNS: Final = """
SELECT job.job_id, job.team, job.name, job.key, job.submitted_by, job.priority, job.gpus, job.nodes_asked,
       job.gpus_per_node, job.gpu_types, job.state, job.hold_code, job.attempt, job.run_id, job.nodes, job.cause,
       job.exit_code, job.failed_node, job.message, job.cancel_reason, job.cancel_at, job.not_before,
       job.submitted_at, job.admitted_at, job.placed_at, job.started_at, job.ended_at, job.submitted, job.position,
       coalesce(job.min_gpus, 0), job.within, coalesce(job.within_required, false), coalesce(job.max_runtime_s, 0),
       coalesce(job.preemptible, true), coalesce(job.borrowing, false), job.gpus_placed, job.gpu_type,
       coalesce(job.evictions, 0), job.evicted_for, job.promise, job.promised_start, job.earmark,
       coalesce(job.account, ''), job.category, coalesce(run.node_ids[1:$1], '{}')
FROM live.job_view AS job LEFT JOIN live.run_view AS run USING (run_id)
"""
LISTED: Final = f"""{COLUMNS}
WHERE job.submitted < $2 AND ($3::text IS NULL OR job.team = $3) AND ($4::text IS NULL OR job.name = $4)
  AND ($5::text[] IS NULL OR job.state = ANY($5))
ORDER BY job.submitted DESC LIMIT $6
"""  # of the constant above
LISTED_OPEN: Final = LISTED.replace("ORDER BY", "  AND job.ended_at IS NULL\nORDER BY")  # has an index of its own
NAMED: Final = f"""{COLUMNS}
WHERE job.job_id >= $2 AND job.job_id < $2 || '~' ORDER BY job.job_id LIMIT $3
"""  # of the constant above

EVENTS: Final = (JobEvent, IntakeEvent)  # that this table shows

NODES_LISTED_MAX: Final = 8  # node ids of a job in a list; all of them when it is asked for by id
NODES_MAX: Final = 1_000_000
MATCHES_MAX: Final = 10
PAGE_MAX: Final = 1_000
NEWEST: Final = Position((1 << 63) - 1)  # the cursor of the first page


class JobState(StrEnum):
    """Where a job stands, from when it was submitted."""

    QUEUED = "queued"
    ADMITTED = "admitted"
    PLACED = "placed"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    REJECTED = "rejected"


HOLDING: Final = frozenset({JobState.PLACED, JobState.RUNNING, JobState.STOPPING})  # GPUs
OPEN: Final = HOLDING | {JobState.QUEUED, JobState.ADMITTED}


class JobRow(msgspec.Struct, gc=False, omit_defaults=True):
    """A job, as the table has it. What has a default here is NULL there while it is that."""

    job_id: JobId
    team: TeamId
    name: str
    key: str
    submitted_by: str
    priority: str
    gpus: int
    nodes_asked: int  # with gpus_per_node: the shape asked for; 0: derived
    gpus_per_node: int
    gpu_types: str  # accepted, with commas between; empty: any
    state: str  # a `JobState`
    hold_code: str | None  # a `HoldCode`, while it is queued or admitted
    attempt: int  # runs so far
    run_id: RunId | None  # of the last run
    nodes: int  # of the last run
    cause: str | None  # a `StopCause`: why its last run was stopped
    exit_code: int | None
    failed_node: NodeId | None  # whose failure it was
    message: str  # of a rejection
    cancel_reason: str | None
    cancel_at: datetime | None
    not_before: datetime | None  # back-off, while it is queued again
    submitted_at: datetime
    admitted_at: datetime | None
    placed_at: datetime | None  # the last run
    started_at: datetime | None  # the last run, whole
    ended_at: datetime | None
    submitted: Position  # of its `JobSubmitted`, where its spec can be read; later ones are newer
    position: Position  # of the last event that changed it
    min_gpus: int = 0  # an elastic gang starts with so many at the least; 0: with all
    within: str | None = None  # a `Domain` that it must stay within, or should
    within_required: bool = False
    max_runtime_s: int = 0  # declared; 0: not
    preemptible: bool = True
    borrowing: bool = False  # admitted beyond what its team was entitled to
    gpus_placed: int | None = None  # that its last run got
    gpu_type: str | None = None  # of these
    evictions: int = 0  # runs of it that were stopped for another job, or moved
    evicted_for: JobId | None = None  # the job for which that was decided last
    promise: Position | None = None  # of the `StartPromised` in force: its row in `promise_view`
    promised_start: datetime | None = None  # as promised now; None also where that cannot be said
    earmark: Position | None = None  # of the `GpusEarmarked` in force
    account: str = ""  # that it names to pay for it; empty: the first of its team's, if any
    category: str | None = None  # a `FailureCategory`: whose failure the end of its last run was


class Job(JobRow):
    """A job, as it is shown."""

    node_ids: list[NodeId] = []  # of the last run; in lists the first few


class Standing(NamedTuple):
    """What a job counts as with its team."""

    state: str
    gpus: int  # asked for while it waits; held once it is placed
    gpu_type: str = ""  # held
    borrowing: bool = False


class Moved(NamedTuple):
    """A job counts as something else."""

    team: TeamId
    before: Standing | None  # None: it is new
    after: Standing


class Filter(NamedTuple):
    """Which jobs to list. None: all."""

    team: str | None = None
    name: str | None = None
    states: frozenset[JobState] | None = None


ALL: Final = Filter()


def rows() -> Rows[JobId, JobRow]:
    """The table, with nothing read yet."""
    return Rows(JobRow, lambda row: row.job_id, load=LOAD, write=WRITE)


def keys(records: Iterable[Recorded]) -> Iterator[JobId]:
    """The jobs that these records may change."""
    for recorded in records:
        event = recorded.event
        if isinstance(event, JobEvent | IntakeEvent):
            yield event.job_id
        if isinstance(event, GpusEarmarked):
            yield from map(job_id_of, event.victims)


def fold(jobs: Rows[JobId, JobRow], recorded: Recorded, gpu_type: str = "") -> Moved | None:
    """The job that an event is about has changed, if it is known and has not ended. What it counts as, if that did.

    `gpu_type` is what a placement gives.
    """
    event = recorded.event
    if not isinstance(event, JobEvent | IntakeEvent):
        return None
    row = jobs.get(event.job_id)
    if row is None:
        if not isinstance(event, JobSubmitted):
            return None
        row = _submitted(event, recorded)
        jobs.put(row)
        return Moved(row.team, None, Standing(row.state, row.gpus))
    if row.state not in OPEN:
        return None
    before = row.state, row.gpus_placed, row.gpu_type, row.borrowing
    if not (_move(row, event, recorded.at, gpu_type) or _set_aside(row, event, recorded)):
        return None
    row.position = recorded.position
    jobs.put(row)
    if isinstance(event, GpusEarmarked):
        _evict(jobs, event, recorded.position)
    after = row.state, row.gpus_placed, row.gpu_type, row.borrowing
    return Moved(row.team, _standing(row.gpus, before), _standing(row.gpus, after)) if after != before else None


def _standing(asked: int, counted: tuple[str, int | None, str | None, bool]) -> Standing:
    state, placed, gpu_type, borrowing = counted
    if state in HOLDING:
        return Standing(state, placed or 0, gpu_type or "", borrowing)
    return Standing(state, asked)


def _submitted(event: JobSubmitted, recorded: Recorded) -> JobRow:
    spec = event.spec
    return JobRow(
        job_id=event.job_id,
        team=event.team,
        name=spec.name,
        key=event.key,
        submitted_by=event.by,
        priority=spec.priority,
        gpus=spec.gpus,
        nodes_asked=spec.nodes,
        gpus_per_node=spec.gpus_per_node,
        gpu_types=",".join(spec.gpu_types),
        state=JobState.QUEUED,
        hold_code=HoldCode.NOT_EVALUATED,
        attempt=0,
        run_id=None,
        nodes=0,
        cause=None,
        exit_code=None,
        failed_node=None,
        message="",
        cancel_reason=None,
        cancel_at=None,
        not_before=None,
        submitted_at=recorded.at,
        admitted_at=None,
        placed_at=None,
        started_at=None,
        ended_at=None,
        submitted=recorded.position,
        position=recorded.position,
        min_gpus=spec.min_gpus,
        within=spec.topology.within if spec.topology is not None else None,
        within_required=spec.topology is not None and spec.topology.required,
        max_runtime_s=spec.max_runtime_s,
        preemptible=spec.preemptible,
        account=text(spec.account),
    )


def _move(row: JobRow, event: Event, at: datetime, gpu_type: str) -> bool:
    """Whether an event says something new of where a job stands that has not ended: then its row says so too."""
    match event:
        case JobHeld():
            row.hold_code = event.code
        case JobAdmitted():
            row.state, row.admitted_at, row.borrowing = JobState.ADMITTED, at, event.borrowing
            row.hold_code = HoldCode.NOT_EVALUATED  # what admission had against it holds no more
        case AdmissionWithdrawn() if row.state == JobState.ADMITTED:
            row.state, row.borrowing = JobState.QUEUED, False
        case JobPlaced() if event.attempt > row.attempt:
            _placed(row, event, at)
            row.gpu_type = gpu_type
        case RunStarted() if event.run_id == row.run_id and row.state == JobState.PLACED:
            row.state, row.started_at = JobState.RUNNING, at
        case RunStopping() | JobRequeued() if event.run_id == row.run_id and row.state in HOLDING:
            _stopped(row, event)
        case JobCancelRequested() if row.cancel_at is None:
            row.cancel_at, row.cancel_reason = at, event.reason
        case JobResumeAsked() if row.hold_code == HoldCode.FAILED_TOO_OFTEN:
            row.hold_code = HoldCode.NOT_EVALUATED
        case JobRejected() | JobSucceeded() | JobFailed() | JobCancelled() | JobTimedOut():
            _ended(row, event, at)
        case _:
            return False  # of another run, said before, or not shown in this view
    return True


def _set_aside(row: JobRow, event: Event, recorded: Recorded) -> bool:
    """The same for what is set aside or promised for it."""
    match event:
        case GpusEarmarked() if row.earmark is None:
            row.earmark = recorded.position
        case EarmarkDropped() if row.earmark is not None:
            row.earmark = None
        case StartPromised() if row.promise is None:
            row.promise, row.promised_start = recorded.position, event.start
        case PromiseMoved() if row.promise is not None:
            row.promised_start = event.start
        case PromiseDropped() if row.promise is not None:
            row.promise = row.promised_start = None
        case _:
            return False
    return True


def _evict(jobs: Rows[JobId, JobRow], event: GpusEarmarked, position: Position) -> None:
    """The jobs whose runs are to end for another one say so."""
    for run_id in event.victims:
        row = jobs.get(job_id_of(run_id))
        if row is not None and row.run_id == run_id and row.state in HOLDING:
            row.evictions, row.evicted_for, row.position = row.evictions + 1, event.job_id, position
            jobs.put(row)


def _placed(row: JobRow, event: JobPlaced, at: datetime) -> None:
    """The job has its GPUs, and nothing is left of what was said about its run before, or set aside."""
    row.state, row.hold_code, row.not_before = JobState.PLACED, None, None
    row.attempt, row.run_id, row.nodes = event.attempt, event.run_id, len(event.shares)
    row.cause = row.exit_code = row.failed_node = row.category = None
    row.placed_at, row.started_at = at, None
    row.gpus_placed = sum(share.slots.bit_count() for share in event.shares)
    row.promise = row.promised_start = row.earmark = None


def _stopped(row: JobRow, event: RunStopping | JobRequeued) -> None:
    if isinstance(event, RunStopping):
        row.state = JobState.STOPPING
        _failed(row, event)
        return
    row.state, row.not_before, row.borrowing = JobState.QUEUED, None if event.held else event.not_before, False
    row.hold_code = HoldCode.FAILED_TOO_OFTEN if event.held else HoldCode.NOT_EVALUATED
    if event.category or event.node_id:  # control planes of old said nothing of it here
        _failed(row, event)
    row.cause, row.category = event.cause, event.category or None


def _failed(row: JobRow, event: RunStopping | JobRequeued | JobFailed) -> None:
    row.cause, row.exit_code, row.failed_node = event.cause, event.exit_code or None, event.node_id or None


def _ended(
    row: JobRow, event: JobRejected | JobSucceeded | JobFailed | JobCancelled | JobTimedOut, at: datetime
) -> None:
    row.ended_at, row.hold_code, row.not_before = at, None, None
    row.promise = row.promised_start = row.earmark = None
    match event:
        case JobRejected():
            row.state, row.message = JobState.REJECTED, event.message
        case JobSucceeded():
            row.state, row.exit_code = JobState.SUCCEEDED, 0
        case JobFailed():
            row.state, row.category = JobState.FAILED, event.category or None
            _failed(row, event)
        case JobCancelled():
            row.state = JobState.CANCELLED
        case JobTimedOut():
            row.state, row.cause, row.category = JobState.TIMED_OUT, StopCause.TIME_LIMIT, FailureCategory.TIME_LIMIT


async def jobs(db: Pool | Connection, which: Filter = ALL, *, before: Position = NEWEST, limit: int = 100) -> list[Job]:
    """Up to `limit` jobs, the newest first; `before` is the `submitted` of the last one of the page before."""
    states = sorted(which.states) if which.states is not None else None
    only_open = which.states is not None and which.states <= OPEN
    query = LISTED_OPEN if only_open else LISTED
    found = await db.fetch(query, NODES_LISTED_MAX, before, which.team, which.name, states, min(limit, PAGE_MAX))
    return [Job(*record) for record in found]


async def named(db: Pool | Connection, name: str) -> list[Job]:
    """The jobs whose id is or begins with `name`, at most `MATCHES_MAX`: none, the one meant, or those it could be."""
    if not name or not name.isascii() or "\0" in name:
        return []
    found = [Job(*record) for record in await db.fetch(NAMED, NODES_MAX, name, MATCHES_MAX)]
    return [job for job in found if job.job_id == name] or found
