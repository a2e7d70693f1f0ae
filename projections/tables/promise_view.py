"""`promise_view`: every promise of a start, one row each from when it was made: how it moved, and what became of it."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from events.base import JobId, Position, Recorded, TeamId
from events.job import (
    JobCancelled,
    JobEvent,
    JobFailed,
    JobPlaced,
    JobRejected,
    JobSucceeded,
    JobTimedOut,
    PromiseCause,
    PromiseDropped,
    PromiseMoved,
    StartPromised,
)
from projections.tables.job_view import OPEN, JobRow
from projections.tables.rows import Rows
from runtime.postgres import Connection, Pool

LOAD: Final = """
SELECT job_id, promised, team, gpus, outcome, promised_at, first_start, start, moves, causes, cause, ended_at, position
FROM promise_view JOIN unnest($1::text[], $2::bigint[]) AS key (job_id, promised) USING (job_id, promised)
"""
WRITE: Final = """
INSERT INTO promise_view SELECT * FROM json_populate_recordset(NULL::promise_view, $1::json)
ON CONFLICT (job_id, promised) DO UPDATE SET
    outcome = excluded.outcome, first_start = excluded.first_start, start = excluded.start, moves = excluded.moves,
    causes = excluded.causes, cause = excluded.cause, ended_at = excluded.ended_at, position = excluded.position
"""
SHOWN: Final = """
SELECT job_id, promised, team, gpus, outcome, promised_at, first_start, start, moves, causes, cause, ended_at, position
FROM live.promise_view WHERE promised < $1 AND ($2::text IS NULL OR job_id = $2) ORDER BY promised DESC LIMIT $3
"""
COUNTED: Final = "SELECT outcome, count(*) FROM live.promise_view GROUP BY outcome"
SLIPPED: Final = """
SELECT key, sum(value::bigint)::bigint FROM live.promise_view, jsonb_each_text(causes) WHERE moves > 0 GROUP BY key
"""
# That this table shows. The last five end a promise that is still there.
EVENTS: Final = (
    StartPromised, PromiseMoved, PromiseDropped, JobPlaced,
    JobRejected, JobSucceeded, JobFailed, JobCancelled, JobTimedOut,
)  # fmt: skip
KEPT_WITHIN: Final = timedelta(seconds=1)  # of the start that was promised first
PAGE_MAX: Final = 1_000
NEWEST: Final = Position((1 << 63) - 1)


class Outcome(StrEnum):
    """What became of a promise."""

    OPEN = "open"
    KEPT = "kept"  # the job was placed at the start that was promised first, or before
    LATE = "late"  # it was placed after it
    UNTIMED = "untimed"  # it was placed, and no time had ever been named
    DROPPED = "dropped"


class PromiseRow(msgspec.Struct, gc=False):
    """A promise, as the table has it."""

    job_id: JobId
    promised: Position  # of its `StartPromised`
    team: TeamId
    gpus: int  # that the job asks for
    outcome: str  # an `Outcome`
    promised_at: datetime
    first_start: datetime | None  # the first time that was named; None: none yet
    start: datetime | None  # as promised last
    moves: int
    causes: dict[str, int]  # of its moves; never changed in place
    cause: str | None  # a `PromiseCause`: of its last move, or why it was dropped
    ended_at: datetime | None  # when the job was placed, or the promise dropped
    position: Position  # of the last event that changed it


PromiseKey = tuple[JobId, Position]
_CAUSES: Final = PromiseRow.__struct_fields__.index("causes")


class Kept(NamedTuple):
    """How promises fared so far."""

    outcomes: dict[str, int]  # by `Outcome`, all of them
    slips: dict[str, int]  # moves, by cause

    @property
    def hit_rate(self) -> float | None:
        """The part of those that named a time and whose job was placed, in which it was by then. None: there were none."""
        kept, late = self.outcomes[Outcome.KEPT], self.outcomes[Outcome.LATE]
        return kept / (kept + late) if kept + late else None


def rows() -> Rows[PromiseKey, PromiseRow]:
    """The table, with nothing read yet."""
    return Rows(_read, lambda row: (row.job_id, row.promised), load=LOAD, write=WRITE)


def _read(*columns: Any) -> PromiseRow:
    """A row as it was selected, with its JSON decoded."""
    row = PromiseRow(*columns)
    row.causes = msgspec.json.decode(columns[_CAUSES])
    return row


def keys(records: Iterable[Recorded], jobs: Rows[JobId, JobRow]) -> Iterator[PromiseKey]:
    """The promises that these records may change, as far as they were there before."""
    for recorded in records:
        event = recorded.event
        if isinstance(event, JobEvent) and (job := jobs.get(event.job_id)) is not None and job.promise is not None:
            yield job.job_id, job.promise


def fold(promises: Rows[PromiseKey, PromiseRow], jobs: Rows[JobId, JobRow], recorded: Recorded) -> None:
    """The promise in force of a job has changed, or there is a new one.

    `jobs` says, as before the event, which promise of a job is in force: folded after this.
    """
    event = recorded.event
    if not isinstance(event, JobEvent) or (job := jobs.get(event.job_id)) is None:
        return
    if job.promise is None:
        if isinstance(event, StartPromised) and job.state in OPEN:
            promises.put(_promised(event, recorded, job))
    elif not isinstance(event, StartPromised) and (row := promises.get((job.job_id, job.promise))) is not None:
        if isinstance(event, JobPlaced) and event.attempt <= job.attempt:
            return  # of a run that it had before
        _change(row, event, recorded.at)
        row.position = recorded.position
        promises.put(row)


def _promised(event: StartPromised, recorded: Recorded, job: JobRow) -> PromiseRow:
    return PromiseRow(
        job_id=event.job_id,
        promised=recorded.position,
        team=job.team,
        gpus=job.gpus,
        outcome=Outcome.OPEN,
        promised_at=recorded.at,
        first_start=event.start,
        start=event.start,
        moves=0,
        causes={},
        cause=None,
        ended_at=None,
        position=recorded.position,
    )


def _change(row: PromiseRow, event: JobEvent, at: datetime) -> None:
    match event:
        case PromiseMoved():
            row.start, row.first_start = event.start, row.first_start or event.start
            row.moves, row.cause = row.moves + 1, event.cause
            row.causes = {**row.causes, event.cause: row.causes.get(event.cause, 0) + 1}
        case JobPlaced():
            row.outcome, row.ended_at = _met(row.first_start, at), at
        case PromiseDropped():
            row.outcome, row.cause, row.ended_at = Outcome.DROPPED, event.cause, at
        case _:  # the job has ended
            row.outcome, row.cause, row.ended_at = Outcome.DROPPED, PromiseCause.CHANGED, at


def _met(first: datetime | None, placed: datetime) -> Outcome:
    if first is None:
        return Outcome.UNTIMED
    return Outcome.KEPT if placed <= first + KEPT_WITHIN else Outcome.LATE


async def promises(
    db: Pool | Connection, *, job_id: JobId | None = None, before: Position = NEWEST, limit: int = 100
) -> list[PromiseRow]:
    """Up to `limit` promises, of one job or of all, the newest first; `before` is the `promised` of the last one before."""
    return [_read(*record) for record in await db.fetch(SHOWN, before, job_id, min(limit, PAGE_MAX))]


async def kept(db: Pool | Connection) -> Kept:
    """How all promises fared so far."""
    counted = {record["outcome"]: record["count"] for record in await db.fetch(COUNTED)}
    slips = {record["key"]: record["sum"] for record in await db.fetch(SLIPPED)}
    return Kept({outcome.value: counted.get(outcome.value, 0) for outcome in Outcome}, slips)
