"""`share_view`: the part of every run that one node carries, one row each, as its agent reported it."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from events.base import NodeEpoch, NodeId, Position, Recorded, RunId
from events.job import JobPlaced
from events.node import EndReason, GpusReleased, ShareEnded, ShareStarted
from projections.tables.rows import Rows, Statements, joined, slots_of, text
from runtime.postgres import Connection, Pool

LOAD: Final = """
SELECT run_id, node_id, node_epoch, place, array_to_string(slots, ','), array_to_string(released, ','), state,
       reason, exit_code, rank, message, started_at, ended_at, released_at, position
FROM share_view JOIN unnest($1::text[], $2::text[]) AS key (run_id, node_id) USING (run_id, node_id)
"""
INSERT: Final = """
INSERT INTO share_view (
    run_id, node_id, node_epoch, place, slots, released, state,
    reason, exit_code, rank, message, started_at, ended_at, released_at, position
)
SELECT run_id, node_id, node_epoch, place, string_to_array(slots, ',')::int[], string_to_array(released, ',')::int[],
       state, reason, exit_code, rank, message, started_at, ended_at, released_at, position
FROM unnest(
    $1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[],
    $10::bigint[], $11::text[], $12::timestamptz[], $13::timestamptz[], $14::timestamptz[], $15::bigint[]
) AS share (
    run_id, node_id, node_epoch, place, slots, released, state,
    reason, exit_code, rank, message, started_at, ended_at, released_at, position
)
"""
CHANGING: Final = (
    "run_id", "node_id", "released", "state", "reason", "exit_code", "rank", "message", "started_at", "ended_at",
    "released_at", "position",
)  # fmt: skip
UPDATE: Final = """
UPDATE share_view AS share SET
    released = string_to_array(new.released, ',')::int[], state = new.state, reason = new.reason,
    exit_code = new.exit_code, rank = new.rank, message = new.message, started_at = new.started_at,
    ended_at = new.ended_at, released_at = new.released_at, position = new.position
FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[],
    $9::timestamptz[], $10::timestamptz[], $11::timestamptz[], $12::bigint[]
) AS new (
    run_id, node_id, released, state, reason, exit_code, rank, message, started_at, ended_at, released_at, position
)
WHERE share.run_id = new.run_id AND share.node_id = new.node_id
"""
OF_RUN: Final = """
SELECT run_id, node_id, node_epoch, place, array_to_string(slots, ','), array_to_string(released, ','),
       CASE WHEN share.state <> 'released' AND (node.epoch <> share.node_epoch OR node.state = 'lost')
            THEN 'lost' ELSE share.state END,
       reason, exit_code, rank, message, started_at, ended_at, released_at, share.position
FROM live.share_view AS share LEFT JOIN live.node_view AS node USING (node_id)
WHERE run_id = $1 ORDER BY place LIMIT $2
"""
EVENTS: Final = (JobPlaced, ShareStarted, ShareEnded, GpusReleased)  # that this table shows
SHARES_MAX: Final = 100_000


class ShareState(StrEnum):
    """Where a share stands."""

    PLACED = "placed"
    STARTED = "started"
    ENDED = "ended"
    RELEASED = "released"  # every slot of it
    LOST = "lost"  # shown, never stored: its node was lost, or has begun another life


class ShareRow(msgspec.Struct, gc=False):
    """A share, as the table has it."""

    run_id: RunId
    node_id: NodeId
    node_epoch: NodeEpoch
    place: int  # node rank in the gang, from 0
    slots: str  # numbers, with commas between
    released: str  # of those, likewise
    state: str  # a `ShareState`
    reason: str | None  # an `EndReason`
    exit_code: int | None
    rank: int | None  # that failed first
    message: str
    started_at: datetime | None
    ended_at: datetime | None
    released_at: datetime | None  # the last slot
    position: Position  # of the last event that changed it


ShareKey = tuple[RunId, NodeId]


def rows() -> Rows[ShareKey, ShareRow]:
    """The table, with nothing read yet."""
    return Rows(ShareRow, lambda row: (row.run_id, row.node_id), Statements(LOAD, INSERT, UPDATE, CHANGING))


def keys(records: Iterable[Recorded]) -> Iterator[ShareKey]:
    """The shares that these records may change."""
    for recorded in records:
        match recorded.event:
            case JobPlaced() as e:
                for share in e.shares:
                    yield e.run_id, share.node_id
            case ShareStarted() | ShareEnded() | GpusReleased() as e:
                yield e.run_id, e.node_id
            case _:
                pass


def fold(shares: Rows[ShareKey, ShareRow], recorded: Recorded) -> None:
    """The shares that an event is about have changed: made by a placement, moved on by reports of their own epoch."""
    event = recorded.event
    if isinstance(event, JobPlaced):
        _placed(shares, event, recorded)
    elif isinstance(event, ShareStarted | ShareEnded | GpusReleased):
        row = shares.get((event.run_id, event.node_id))
        if row is not None and row.node_epoch == event.node_epoch and _change(row, event, recorded.at):
            row.position = recorded.position
            shares.changed(row)


def _placed(shares: Rows[ShareKey, ShareRow], event: JobPlaced, recorded: Recorded) -> None:
    for place, share in enumerate(event.shares):
        if shares.get((event.run_id, share.node_id)) is None:
            shares.add(
                ShareRow(
                    run_id=event.run_id,
                    node_id=share.node_id,
                    node_epoch=share.node_epoch,
                    place=place,
                    slots=joined(slots_of(share.slots)),
                    released="",
                    state=ShareState.PLACED,
                    reason=None,
                    exit_code=None,
                    rank=None,
                    message="",
                    started_at=None,
                    ended_at=None,
                    released_at=None,
                    position=recorded.position,
                )
            )


def _change(row: ShareRow, event: ShareStarted | ShareEnded | GpusReleased, at: datetime) -> bool:
    """Whether a report says something new of its share: then its row says so too."""
    match event:
        case ShareStarted():
            if row.started_at is not None or row.state != ShareState.PLACED:
                return False
            row.state, row.started_at = ShareState.STARTED, at
        case ShareEnded():
            if row.ended_at is not None:
                return False
            _ended(row, event, at)
        case GpusReleased():
            return _released(row, event, at)
    return True


def _ended(row: ShareRow, event: ShareEnded, at: datetime) -> None:
    if row.state != ShareState.RELEASED:
        row.state = ShareState.ENDED
    row.ended_at, row.reason, row.message = at, event.reason, text(event.message)
    if event.reason is EndReason.EXITED or event.exit_code:
        row.exit_code = event.exit_code
    row.rank = event.rank if event.rank >= 0 else None


def _released(row: ShareRow, event: GpusReleased, at: datetime) -> bool:
    held = {int(slot) for slot in row.slots.split(",") if slot}
    before = {int(slot) for slot in row.released.split(",") if slot}
    after = before | (held & set(slots_of(event.slots)))
    if after == before:
        return False
    row.released = joined(sorted(after))
    if after == held:
        row.state, row.released_at = ShareState.RELEASED, at
    return True


async def shares_of(db: Pool | Connection, run_id: RunId, *, limit: int = SHARES_MAX) -> list[ShareRow]:
    """The shares of a run, in order of node rank."""
    return [ShareRow(*record) for record in await db.fetch(OF_RUN, run_id, limit)]
