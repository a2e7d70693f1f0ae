"""`queue_view`: how many jobs each team has in which state, and how many GPUs they wait for or hold."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from events.base import Position, Recorded, TeamId
from events.job import JobEvent, JobSubmitted
from projections.tables.job_view import HOLDING, OPEN, Moved
from projections.tables.rows import Rows
from runtime.postgres import Connection, Pool

LOAD: Final = """
SELECT team, queued, admitted, placed, running, stopping, succeeded, failed, cancelled, timed_out, rejected,
       gpus_waiting, gpus_held, position
FROM queue_view WHERE team = ANY($1)
"""
WRITE: Final = """
INSERT INTO queue_view SELECT * FROM json_populate_recordset(NULL::queue_view, $1::json)
ON CONFLICT (team) DO UPDATE SET
    queued = excluded.queued, admitted = excluded.admitted, placed = excluded.placed, running = excluded.running,
    stopping = excluded.stopping, succeeded = excluded.succeeded, failed = excluded.failed,
    cancelled = excluded.cancelled, timed_out = excluded.timed_out, rejected = excluded.rejected,
    gpus_waiting = excluded.gpus_waiting, gpus_held = excluded.gpus_held, position = excluded.position
"""
SHOWN: Final = """
SELECT team, queued, admitted, placed, running, stopping, succeeded, failed, cancelled, timed_out, rejected,
       gpus_waiting, gpus_held, position
FROM live.queue_view ORDER BY team
"""


class QueueRow(msgspec.Struct, gc=False):
    """A team's jobs by state, ever since its first."""

    team: TeamId
    queued: int = 0
    admitted: int = 0
    placed: int = 0
    running: int = 0
    stopping: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    timed_out: int = 0
    rejected: int = 0
    gpus_waiting: int = 0  # that queued and admitted jobs ask for
    gpus_held: int = 0  # by placed, running and stopping jobs
    position: Position = Position(0)  # of the last event that changed it


def rows() -> Rows[TeamId, QueueRow]:
    """The table, with nothing read yet."""
    return Rows(QueueRow, lambda row: row.team, load=LOAD, write=WRITE)


def keys(records: Iterable[Recorded]) -> Iterator[TeamId]:
    """The teams whose numbers these records may change."""
    for recorded in records:
        if isinstance(recorded.event, JobEvent | JobSubmitted):
            yield recorded.event.team


def fold(queues: Rows[TeamId, QueueRow], moved: Moved, position: Position) -> None:
    """The job is counted where it is now, and no longer where it was."""
    row = queues.get(moved.team) or QueueRow(moved.team)
    if moved.before is not None:
        _count(row, moved.before, -1, moved.gpus)
    _count(row, moved.after, 1, moved.gpus)
    row.position = position
    queues.put(row)


def _count(row: QueueRow, state: str, by: int, gpus: int) -> None:
    setattr(row, state, getattr(row, state) + by)
    if state in HOLDING:
        row.gpus_held += by * gpus
    elif state in OPEN:
        row.gpus_waiting += by * gpus


async def queues(db: Pool | Connection) -> list[QueueRow]:
    """Every team that ever submitted a job, by name."""
    return [QueueRow(*record) for record in await db.fetch(SHOWN)]
