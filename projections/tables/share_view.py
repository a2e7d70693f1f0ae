"""`share_view`: the part of every run that one node carries, one row each, as its agent reported it."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from events.base import NodeEpoch, NodeId, Position, Recorded, RunId
from events.job import JobPlaced
from events.node import CheckpointSaved, EndReason, GpusReleased, ShareEnded, ShareStarted
from projections.tables.rows import Rows, slots_of
from runtime.postgres import Connection, Pool

LOAD: Final = """
SELECT run_id, node_id, node_epoch, place, slots, released, state,
       reason, exit_code, rank, message, started_at, ended_at, released_at, position
FROM share_view JOIN unnest($1::text[], $2::text[]) AS key (run_id, node_id) USING (run_id, node_id)
"""
WRITE: Final = """
INSERT INTO share_view SELECT * FROM json_populate_recordset(NULL::share_view, $1::json)
ON CONFLICT (run_id, node_id) DO UPDATE SET
    released = excluded.released, state = excluded.state, reason = excluded.reason, exit_code = excluded.exit_code,
    rank = excluded.rank, message = excluded.message, started_at = excluded.started_at, ended_at = excluded.ended_at,
    released_at = excluded.released_at, position = excluded.position
"""
OF_RUN: Final = """
SELECT run_id, node_id, node_epoch, place, slots, released,
       CASE WHEN share.state <> 'released' AND (node.epoch <> share.node_epoch OR node.state = 'lost')
            THEN 'lost' ELSE share.state END,
       reason, exit_code, rank, message, started_at, ended_at, released_at, share.position
FROM live.share_view AS share LEFT JOIN live.node_view AS node USING (node_id)
WHERE run_id = $1 ORDER BY place LIMIT $2
"""
# That this table shows; of a checkpoint it says only to which life of the node it belongs.
EVENTS: Final = (JobPlaced, ShareStarted, ShareEnded, GpusReleased, CheckpointSaved)
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
    slots: list[int]
    released: list[int]  # of those
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
    return Rows(ShareRow, lambda row: (row.run_id, row.node_id), load=LOAD, write=WRITE)


def keys(records: Iterable[Recorded]) -> Iterator[ShareKey]:
    """The shares that these records may change."""
    for recorded in records:
        match recorded.event:
            case JobPlaced() as e:
                for share in e.shares:
                    yield e.run_id, share.node_id
            case ShareStarted() | ShareEnded() | GpusReleased() | CheckpointSaved() as e:
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
            shares.put(row)


def node_ranks(event: JobPlaced) -> Sequence[int]:
    """The places of its shares in order of node rank. As it says, where that names each share once."""
    places = range(len(event.shares))
    return event.ranks if event.ranks and sorted(event.ranks) == list(places) else places


def _placed(shares: Rows[ShareKey, ShareRow], event: JobPlaced, recorded: Recorded) -> None:
    for place, index in enumerate(node_ranks(event)):
        share = event.shares[index]
        if shares.get((event.run_id, share.node_id)) is None:
            shares.put(
                ShareRow(
                    run_id=event.run_id,
                    node_id=share.node_id,
                    node_epoch=share.node_epoch,
                    place=place,
                    slots=slots_of(share.slots),
                    released=[],
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
    row.ended_at, row.reason, row.message = at, event.reason, event.message
    if event.reason is EndReason.EXITED or event.exit_code:
        row.exit_code = event.exit_code
    row.rank = event.rank if event.rank >= 0 else None


def _released(row: ShareRow, event: GpusReleased, at: datetime) -> bool:
    named = {*row.released, *slots_of(event.slots)}
    released = [slot for slot in row.slots if slot in named]
    if len(released) == len(row.released):
        return False
    row.released = released
    if len(released) == len(row.slots):
        row.state, row.released_at = ShareState.RELEASED, at
    return True


async def shares_of(db: Pool | Connection, run_id: RunId, *, limit: int = SHARES_MAX) -> list[ShareRow]:
    """The shares of a run, in order of node rank."""
    return [ShareRow(*record) for record in await db.fetch(OF_RUN, run_id, limit)]
