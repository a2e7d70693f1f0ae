"""`run_view`: every attempt of every job, one row each."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from events.base import Event, JobId, NodeId, Position, Recorded, RunId, TeamId
from events.job import (
    FailureCategory,
    GpusEarmarked,
    JobCancelled,
    JobEvent,
    JobFailed,
    JobPlaced,
    JobRequeued,
    JobSucceeded,
    JobTimedOut,
    RunStarted,
    RunStopping,
    StopCause,
)
from events.node import CheckpointSaved
from projections.tables.rows import Rows
from projections.tables.share_view import ShareKey, ShareRow, node_ranks
from runtime.postgres import Connection, Pool

LOAD: Final = """
SELECT run_id, job_id, team, attempt, state, cause, exit_code, failed_node, gpus, nodes,
       node_ids, placed_at, started_at, stopping_at, ended_at, position,
       saved_at, checkpoint, evicted_for, evicted_at, coalesce(moved, false), lost_gpu_s, category, placed,
       coalesce(held, false)
FROM run_view WHERE run_id = ANY($1)
"""
WRITE: Final = """
INSERT INTO run_view SELECT * FROM json_populate_recordset(NULL::run_view, $1::json)
ON CONFLICT (run_id) DO UPDATE SET
    state = excluded.state, cause = excluded.cause, exit_code = excluded.exit_code,
    failed_node = excluded.failed_node, started_at = excluded.started_at, stopping_at = excluded.stopping_at,
    ended_at = excluded.ended_at, position = excluded.position, saved_at = excluded.saved_at,
    checkpoint = excluded.checkpoint, evicted_for = excluded.evicted_for, evicted_at = excluded.evicted_at,
    moved = excluded.moved, lost_gpu_s = excluded.lost_gpu_s, category = excluded.category, held = excluded.held
"""
OF_JOB: Final = """
SELECT run.run_id, run.job_id, run.team, run.attempt, run.state, run.cause, run.exit_code, run.failed_node, run.gpus,
       run.nodes, run.node_ids, run.placed_at, run.started_at, run.stopping_at, run.ended_at, run.position,
       run.saved_at, run.checkpoint, run.evicted_for, run.evicted_at, coalesce(run.moved, false), run.lost_gpu_s,
       run.category, run.placed, coalesce(run.held, false), share.reason, coalesce(share.message, '')
FROM live.run_view AS run
LEFT JOIN live.share_view AS share ON share.run_id = run.run_id AND share.node_id = run.failed_node
WHERE run.job_id = $1 ORDER BY run.attempt DESC LIMIT $2
"""

EVICTED: Final = """
SELECT count(*), coalesce(sum(lost_gpu_s) FILTER (WHERE cause IN ('preempted', 'consolidated')), 0) FROM live.run_view
WHERE evicted_for IS NOT NULL AND coalesce(moved, false) = $1
"""
FAILED: Final = """
SELECT category, count(*) FROM live.run_view WHERE category IS NOT NULL GROUP BY category ORDER BY category
"""
EVENTS: Final = (JobEvent, CheckpointSaved)  # that this table shows
ATTEMPTS_MAX: Final = 1_000  # of one job; the last ones


class RunState(StrEnum):
    """Where a run stands; the last five are how it ended."""

    PLACED = "placed"
    RUNNING = "running"
    STOPPING = "stopping"
    REQUEUED = "requeued"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


class RunRow(msgspec.Struct, gc=False, omit_defaults=True):
    """A run, as the table has it. What has a default here is NULL there while it is that."""

    run_id: RunId
    job_id: JobId
    team: TeamId
    attempt: int
    state: str  # a `RunState`
    cause: str | None  # a `StopCause`
    exit_code: int | None
    failed_node: NodeId | None
    gpus: int
    nodes: int
    node_ids: list[NodeId]  # in order of node rank
    placed_at: datetime
    started_at: datetime | None
    stopping_at: datetime | None
    ended_at: datetime | None
    position: Position  # of the last event that changed it
    saved_at: datetime | None = None  # its last checkpoint
    checkpoint: int | None = None  # the number of that
    evicted_for: JobId | None = None  # the job that it was to end for
    evicted_at: datetime | None = None  # when that was decided
    moved: bool = False  # it had a new place set aside: consolidation, not preemption
    lost_gpu_s: float | None = None  # GPU-seconds since its last checkpoint, or its start, when it was told to end
    category: str | None = None  # a `FailureCategory`, of one that ended by a failure or for others
    placed: Position | None = None  # of its `JobPlaced`
    held: bool = False  # its job was held when it ended


class Attempt(RunRow):
    """A run, with what the share says that failed."""

    reason: str | None = None  # an `EndReason`
    message: str = ""  # what could not be done


class Evicted(NamedTuple):
    """What ending runs for other jobs has cost."""

    runs: int
    lost_gpu_s: float


def rows() -> Rows[RunId, RunRow]:
    """The table, with nothing read yet."""
    return Rows(RunRow, lambda row: row.run_id, load=LOAD, write=WRITE)


def keys(records: Iterable[Recorded]) -> Iterator[RunId]:
    """The runs that these records may change."""
    for recorded in records:
        match recorded.event:
            case GpusEarmarked() as e:
                yield from e.victims
            case JobEvent() | CheckpointSaved() as e if run_id := getattr(e, "run_id", ""):
                yield RunId(run_id)
            case _:
                pass


def fold(runs: Rows[RunId, RunRow], shares: Rows[ShareKey, ShareRow], recorded: Recorded) -> None:
    """The run that an event is about has changed, if it is known and has not ended.

    A checkpoint counts if it comes from the life of the node that the share was placed in.
    """
    event = recorded.event
    match event:
        case JobPlaced():
            if runs.get(event.run_id) is None:
                runs.put(_placed(event, recorded))
        case GpusEarmarked():
            for run_id in event.victims:
                _put(runs, run_id, recorded)
        case CheckpointSaved():
            share = shares.get((event.run_id, event.node_id))
            if share is not None and share.node_epoch == event.node_epoch:
                _put(runs, event.run_id, recorded)
        case JobEvent() if run_id := RunId(getattr(event, "run_id", "")):
            _put(runs, run_id, recorded)
        case _:
            pass


def _put(runs: Rows[RunId, RunRow], run_id: RunId, recorded: Recorded) -> None:
    row = runs.get(run_id)
    if row is not None and row.ended_at is None and _change(row, recorded.event, recorded.at):
        row.position = recorded.position
        runs.put(row)


def _placed(event: JobPlaced, recorded: Recorded) -> RunRow:
    order = node_ranks(event)
    return RunRow(
        run_id=event.run_id,
        job_id=event.job_id,
        team=event.team,
        attempt=event.attempt,
        state=RunState.PLACED,
        cause=None,
        exit_code=None,
        failed_node=None,
        gpus=sum(share.slots.bit_count() for share in event.shares),
        nodes=len(event.shares),
        node_ids=[event.shares[index].node_id for index in order],
        placed_at=recorded.at,
        started_at=None,
        stopping_at=None,
        ended_at=None,
        position=recorded.position,
        placed=recorded.position,
    )


def _change(row: RunRow, event: Event, at: datetime) -> bool:
    """Whether an event says something new of a run that has not ended: then its row says so too."""
    match event:
        case RunStarted() if row.state == RunState.PLACED:
            row.state, row.started_at = RunState.RUNNING, at
        case RunStopping():
            row.state, row.stopping_at = RunState.STOPPING, at
            _failed(row, event)
            if event.cause is not StopCause.CANCEL:
                _lose(row, at)
        case GpusEarmarked() if row.evicted_for is None:
            row.evicted_for, row.evicted_at, row.moved = event.job_id, at, event.moved
        case CheckpointSaved() if row.checkpoint is None or event.number > row.checkpoint:  # a repeat is no later save
            row.saved_at, row.checkpoint = at, event.number
            if row.lost_gpu_s is not None:
                row.lost_gpu_s = 0.0  # it was told to end, and has saved all until then
        case JobRequeued():
            row.state, row.ended_at, row.held = RunState.REQUEUED, at, event.held
            _judged(row, event, at)
        case JobSucceeded():
            row.state, row.ended_at, row.exit_code, row.lost_gpu_s = RunState.SUCCEEDED, at, 0, None
        case JobFailed():
            row.state, row.ended_at = RunState.FAILED, at
            _judged(row, event, at)
        case JobCancelled():
            row.state, row.ended_at = RunState.CANCELLED, at
        case JobTimedOut():
            row.state, row.ended_at, row.cause = RunState.TIMED_OUT, at, StopCause.TIME_LIMIT
            row.category = FailureCategory.TIME_LIMIT
            _lose(row, at)
        case _:
            return False  # said before, or not shown in this view
    return True


def _failed(row: RunRow, event: RunStopping | JobRequeued | JobFailed) -> None:
    row.cause, row.exit_code = event.cause, event.exit_code or None
    row.failed_node = event.node_id or None


def _judged(row: RunRow, event: JobRequeued | JobFailed, at: datetime) -> None:
    """What all evidence says in the end. Control planes of old said nothing of it when they requeued."""
    if isinstance(event, JobFailed) or event.category or event.node_id:
        _failed(row, event)
    row.cause, row.category = event.cause, event.category or None
    _lose(row, at)


def _lose(row: RunRow, at: datetime) -> None:
    """What it has done since its last checkpoint is lost, unless that was counted when it was told to stop."""
    if row.lost_gpu_s is None:
        since = row.saved_at or row.started_at or row.placed_at
        row.lost_gpu_s = row.gpus * (at - since).total_seconds()


async def runs_of(db: Pool | Connection, job_id: JobId) -> list[Attempt]:
    """The attempts of a job, the first one first; of very many the last ones."""
    return [Attempt(*record) for record in reversed(await db.fetch(OF_JOB, job_id, ATTEMPTS_MAX))]


async def failed(db: Pool | Connection) -> dict[str, int]:
    """How many runs ended in each category so far."""
    return {record["category"]: record["count"] for record in await db.fetch(FAILED)}


async def evicted(db: Pool | Connection, *, moved: bool) -> Evicted:
    """How many runs were to end for other jobs, preempted or moved, and what that cost so far."""
    record = await db.fetchrow(EVICTED, moved)
    assert record is not None
    return Evicted(*record)
