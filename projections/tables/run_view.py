"""`run_view`: every attempt of every job, one row each."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from events.base import Event, JobId, NodeId, Position, Recorded, RunId, TeamId
from events.job import (
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
from projections.tables.rows import Rows
from runtime.postgres import Connection, Pool

LOAD: Final = """
SELECT run_id, job_id, team, attempt, state, cause, exit_code, failed_node, gpus, nodes,
       node_ids, placed_at, started_at, stopping_at, ended_at, position
FROM run_view WHERE run_id = ANY($1)
"""
WRITE: Final = """
INSERT INTO run_view SELECT * FROM json_populate_recordset(NULL::run_view, $1::json)
ON CONFLICT (run_id) DO UPDATE SET
    state = excluded.state, cause = excluded.cause, exit_code = excluded.exit_code,
    failed_node = excluded.failed_node, started_at = excluded.started_at, stopping_at = excluded.stopping_at,
    ended_at = excluded.ended_at, position = excluded.position
"""
OF_JOB: Final = """
SELECT run_id, job_id, team, attempt, state, cause, exit_code, failed_node, gpus, nodes,
       node_ids, placed_at, started_at, stopping_at, ended_at, position
FROM live.run_view WHERE job_id = $1 ORDER BY attempt
"""

EVENTS: Final = (JobEvent,)  # that this table shows


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


class RunRow(msgspec.Struct, gc=False):
    """A run, as the table has it."""

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


def rows() -> Rows[RunId, RunRow]:
    """The table, with nothing read yet."""
    return Rows(RunRow, lambda row: row.run_id, load=LOAD, write=WRITE)


def keys(records: Iterable[Recorded]) -> Iterator[RunId]:
    """The runs that these records may change."""
    for recorded in records:
        if isinstance(recorded.event, JobEvent) and (run_id := getattr(recorded.event, "run_id", "")):
            yield RunId(run_id)


def fold(runs: Rows[RunId, RunRow], recorded: Recorded) -> None:
    """The run that an event is about has changed, if it is known and has not ended."""
    event = recorded.event
    if isinstance(event, JobPlaced):
        if runs.get(event.run_id) is None:
            runs.put(_placed(event, recorded))
    elif isinstance(event, JobEvent) and (run_id := RunId(getattr(event, "run_id", ""))):
        row = runs.get(run_id)
        if row is not None and row.ended_at is None and _change(row, event, recorded.at):
            row.position = recorded.position
            runs.put(row)


def _placed(event: JobPlaced, recorded: Recorded) -> RunRow:
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
        node_ids=[share.node_id for share in event.shares],
        placed_at=recorded.at,
        started_at=None,
        stopping_at=None,
        ended_at=None,
        position=recorded.position,
    )


def _change(row: RunRow, event: Event, at: datetime) -> bool:
    """Whether an event says something new of a run that has not ended: then its row says so too."""
    match event:
        case RunStarted() if row.state == RunState.PLACED:
            row.state, row.started_at = RunState.RUNNING, at
        case RunStopping():
            row.state, row.stopping_at = RunState.STOPPING, at
            _failed(row, event)
        case JobRequeued():
            row.state, row.ended_at, row.cause = RunState.REQUEUED, at, event.cause
        case JobSucceeded():
            row.state, row.ended_at, row.exit_code = RunState.SUCCEEDED, at, 0
        case JobFailed():
            row.state, row.ended_at = RunState.FAILED, at
            _failed(row, event)
        case JobCancelled():
            row.state, row.ended_at = RunState.CANCELLED, at
        case JobTimedOut():
            row.state, row.ended_at, row.cause = RunState.TIMED_OUT, at, StopCause.TIME_LIMIT
        case _:
            return False  # said before, or not shown in this view
    return True


def _failed(row: RunRow, event: RunStopping | JobFailed) -> None:
    row.cause, row.exit_code = event.cause, event.exit_code or None
    row.failed_node = event.node_id or None


async def runs_of(db: Pool | Connection, job_id: JobId) -> list[RunRow]:
    """The attempts of a job, the first one first."""
    return [RunRow(*record) for record in await db.fetch(OF_JOB, job_id)]
