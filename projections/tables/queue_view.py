"""`queue_view`: every queue of the document and every team that asked: its bounds, its jobs by state, its GPUs."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from events.base import Position, Recorded, TeamId
from events.job import JobEvent, JobSubmitted
from events.queues import Bounds, Queue, QueueOrder, QueuesSet, QueueStop
from projections.tables.job_view import HOLDING, OPEN, Moved, Standing
from projections.tables.rows import Rows
from runtime.postgres import Connection, Pool

LOAD: Final = """
SELECT team, queued, admitted, placed, running, stopping, succeeded, failed, cancelled, timed_out, rejected,
       gpus_waiting, gpus_held, position, listed, parent, weight, bounds, discipline, stop, pending_max, running_max,
       used, borrowed
FROM queue_view WHERE team = ANY($1)
"""
WRITE: Final = """
INSERT INTO queue_view SELECT * FROM json_populate_recordset(NULL::queue_view, $1::json)
ON CONFLICT (team) DO UPDATE SET
    queued = excluded.queued, admitted = excluded.admitted, placed = excluded.placed, running = excluded.running,
    stopping = excluded.stopping, succeeded = excluded.succeeded, failed = excluded.failed,
    cancelled = excluded.cancelled, timed_out = excluded.timed_out, rejected = excluded.rejected,
    gpus_waiting = excluded.gpus_waiting, gpus_held = excluded.gpus_held, position = excluded.position,
    listed = excluded.listed, parent = excluded.parent, weight = excluded.weight, bounds = excluded.bounds,
    discipline = excluded.discipline, stop = excluded.stop, pending_max = excluded.pending_max,
    running_max = excluded.running_max, used = excluded.used, borrowed = excluded.borrowed
"""
LISTED: Final = "SELECT team FROM queue_view WHERE listed"
SHOWN: Final = """
SELECT team, queued, admitted, placed, running, stopping, succeeded, failed, cancelled, timed_out, rejected,
       gpus_waiting, gpus_held, position, listed, parent, weight, bounds, discipline, stop, pending_max, running_max,
       used, borrowed
FROM live.queue_view
WHERE listed
   OR queued + admitted + placed + running + stopping + succeeded + failed + cancelled + timed_out + rejected > 0
ORDER BY team
"""
EVENTS: Final = (QueuesSet,)  # that this table shows itself; the rest is what moved among the jobs


class QueueRow(msgspec.Struct, gc=False):
    """A queue: what the document says of it, and its own jobs by state, ever since the first."""

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
    listed: bool = False  # it is in the document; else at the root, with weight 1 and no bounds
    parent: str = ""
    weight: int = 1
    bounds: tuple[Bounds, ...] = ()
    discipline: str = QueueOrder.BEST_EFFORT
    stop: str = QueueStop.NONE  # its own; those above it count too
    pending_max: int | None = None
    running_max: int | None = None
    used: dict[str, int] = {}  # of `gpus_held`, by GPU type
    borrowed: int = 0  # of `gpus_held`, by jobs that were admitted beyond what their team was entitled to


_BOUNDS: Final = QueueRow.__struct_fields__.index("bounds")
_USED: Final = QueueRow.__struct_fields__.index("used")
_decoder: Final = msgspec.json.Decoder(tuple[Bounds, ...])


def rows() -> Rows[TeamId, QueueRow]:
    """The table, with nothing read yet."""
    return Rows(_read, lambda row: row.team, load=LOAD, write=WRITE)


def _read(*columns: Any) -> QueueRow:
    """A row as it was selected, with its JSON decoded."""
    row = QueueRow(*columns)
    row.bounds, row.used = _decoder.decode(columns[_BOUNDS]), msgspec.json.decode(columns[_USED])
    return row


def keys(records: Iterable[Recorded]) -> Iterator[TeamId]:
    """The teams whose numbers these records may change."""
    for recorded in records:
        match recorded.event:
            case JobEvent() | JobSubmitted() as e:
                yield e.team
            case QueuesSet() as e:
                yield from (queue.name for queue in e.queues)
            case _:
                pass


async def listed(conn: Connection) -> list[TeamId]:
    """The queues of the document in force: a new one takes from them what it does not name."""
    return [record["team"] for record in await conn.fetch(LISTED)]


def fold(queues: Rows[TeamId, QueueRow], moved: Moved, position: Position) -> None:
    """The job is counted where it is now, and no longer where it was."""
    row = queues.get(moved.team) or QueueRow(moved.team)
    if moved.before is not None:
        _count(row, moved.before, -1)
    _count(row, moved.after, 1)
    row.position = position
    queues.put(row)


def _count(row: QueueRow, standing: Standing, by: int) -> None:
    state, gpus, gpu_type, borrowing = standing
    setattr(row, state, getattr(row, state) + by)
    if state in HOLDING:
        row.gpus_held += by * gpus
        row.borrowed += by * gpus * borrowing
        used = row.used
        if number := used.get(gpu_type, 0) + by * gpus:
            used[gpu_type] = number
        else:
            used.pop(gpu_type, None)
    elif state in OPEN:
        row.gpus_waiting += by * gpus


def fold_document(queues: Rows[TeamId, QueueRow], recorded: Recorded) -> None:
    """The document is the one in force: whole, so that a queue which it does not name is as if it never was in one."""
    event = recorded.event
    if not isinstance(event, QueuesSet):
        return
    said = {queue.name: queue for queue in event.queues}
    named = {row.team: row for row in queues.kept() if row.listed} | {name: queues.get(name) for name in said}
    for name, before in named.items():
        row = before or QueueRow(name)
        _say(row, said.get(name))
        row.position = recorded.position
        queues.put(row)


def _say(row: QueueRow, queue: Queue | None) -> None:
    row.listed = queue is not None
    said = queue or Queue(name=row.team)
    row.parent, row.weight, row.bounds = said.parent, said.weight, said.bounds
    row.discipline, row.stop = said.order, said.stop
    row.pending_max, row.running_max = said.pending_max, said.running_max


async def queues(db: Pool | Connection) -> list[QueueRow]:
    """Every queue of the document and every team that ever submitted a job, by name."""
    return [_read(*record) for record in await db.fetch(SHOWN)]
