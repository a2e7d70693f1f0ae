"""`event_index`: where in the log each event is, and what it is about. The events themselves are read from the log."""

from datetime import datetime
from functools import cache
from typing import Final, NamedTuple

import msgspec

from events.base import START, Event, JobId, NodeId, Position, Recorded, RunId, Stretch, job_id_of
from events.codec import type_of
from events.fleet import NodeLost
from events.gpu import GpuJudged
from events.node import NodeJoined, RanksUnkillable, ShareEnded
from projections.tables.rows import text
from runtime.postgres import Connection, Pool

TABLE: Final = "event_index"
OF_JOB: Final = """
SELECT position, at, type, subject, event_id, job_id, run_id, node_id, by
FROM live.event_index WHERE job_id = $1 AND position > $2 ORDER BY position LIMIT $3
"""
OF_NODE: Final = """
SELECT position, at, type, subject, event_id, job_id, run_id, node_id, by
FROM live.event_index WHERE node_id = $1 AND position > $2 ORDER BY position LIMIT $3
"""
OF_ALL: Final = """
SELECT position, at, type, subject, event_id, job_id, run_id, node_id, by
FROM live.event_index WHERE position > $1 ORDER BY position LIMIT $2
"""
LATEST: Final = """
SELECT position, at, type, subject, event_id, job_id, run_id, node_id, by
FROM live.event_index WHERE position < $1 ORDER BY position DESC LIMIT $2
"""
EVIDENCE: Final = """
SELECT position, at, type, subject, event_id, job_id, run_id, node_id, by
FROM live.event_index
WHERE node_id = $1 AND position > $2 AND position <= $3 AND (run_id IS NULL OR run_id = $4) AND type = ANY($5)
ORDER BY position DESC LIMIT $6
"""
PAGE_MAX: Final = 10_000
EVIDENCE_MAX: Final = 8
ENDING: Final = [type_of(cls) for cls in (ShareEnded, NodeLost, NodeJoined, GpuJudged, RanksUnkillable)]


class IndexRow(msgspec.Struct, frozen=True):
    """Where an event is, and what it is about."""

    position: Position
    at: datetime
    type: str
    subject: str  # below `muster.<cell>.ev.`
    event_id: str
    job_id: JobId | None  # directly or through its run
    run_id: RunId | None
    node_id: NodeId | None
    by: str | None  # who asked


class _Shape(NamedTuple):
    type: str
    job: bool
    run: bool
    node: bool


Entry = tuple[Position, datetime, str, str, str, str | None, str | None, str | None, str | None]


@cache
def _shape(cls: type[Event]) -> _Shape:
    names = cls.__struct_fields__
    return _Shape(type_of(cls), "job_id" in names, "run_id" in names, "node_id" in names)


def entry(recorded: Recorded) -> Entry:
    """The row of an event."""
    event = recorded.event
    shape = _shape(type(event))
    run_id: RunId = event.run_id if shape.run else RunId("")  # type: ignore[attr-defined]  # as its shape says
    job_id: JobId = event.job_id if shape.job else job_id_of(run_id)  # type: ignore[attr-defined]  # likewise
    node_id: NodeId = event.node_id if shape.node else NodeId("")  # type: ignore[attr-defined]  # likewise
    return (
        recorded.position,
        recorded.at,
        shape.type,
        text(recorded.subject),
        recorded.id,
        job_id or None,
        run_id or None,
        node_id or None,
        event.by or None,
    )


async def write(conn: Connection, stretch: Stretch) -> None:
    """The table has a row for each event of the stretch, none of which it had before."""
    await conn.copy_records_to_table(TABLE, records=[entry(recorded) for recorded in stretch])


async def of_job(db: Pool | Connection, job_id: JobId, *, after: Position = START, limit: int = 1000) -> list[IndexRow]:
    """The timeline of a job from `after` on, with the reports of its runs' nodes, oldest first."""
    return [IndexRow(*record) for record in await db.fetch(OF_JOB, job_id, after, min(limit, PAGE_MAX))]


async def of_node(
    db: Pool | Connection, node_id: NodeId, *, after: Position = START, limit: int = 1000
) -> list[IndexRow]:
    """What a node reported and what was said of it, from `after` on, oldest first. Placements are in `share_view`."""
    return [IndexRow(*record) for record in await db.fetch(OF_NODE, node_id, after, min(limit, PAGE_MAX))]


async def evidence(
    db: Pool | Connection, run_id: RunId, node_id: NodeId, *, after: Position, until: Position
) -> list[IndexRow]:
    """What was said of a node that may end a run, from when the run was placed until it was over: the last few, in order."""
    found = await db.fetch(EVIDENCE, node_id, after, until, run_id, ENDING, EVIDENCE_MAX)
    return [IndexRow(*record) for record in reversed(found)]


async def of_all(db: Pool | Connection, *, after: Position = START, limit: int = 1000) -> list[IndexRow]:
    """Every event from `after` on, oldest first."""
    return [IndexRow(*record) for record in await db.fetch(OF_ALL, after, min(limit, PAGE_MAX))]


async def latest(db: Pool | Connection, *, before: Position, limit: int = 100) -> list[IndexRow]:
    """The last events before `before`, newest first."""
    return [IndexRow(*record) for record in await db.fetch(LATEST, before, min(limit, PAGE_MAX))]
