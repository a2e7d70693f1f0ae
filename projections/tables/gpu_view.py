"""`gpu_view`: every slot of every node, one row each: its GPU, whether that is in the pool, and whose it is."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from events.base import SLOTS_MAX, Event, GpuUuid, JobId, NodeEpoch, NodeId, Position, Recorded, RunId
from events.fleet import NodeLost
from events.gpu import GpuAction, GpuJudged, GpuReturned, GpuSignal
from events.job import (
    EarmarkDropped,
    GpusEarmarked,
    JobCancelled,
    JobFailed,
    JobPlaced,
    JobRejected,
    JobSucceeded,
    JobTimedOut,
)
from events.node import GpusFoundClean, GpusReleased, NodeJoined, ShareEnded
from projections.cluster.fitness import Ailment, ailment_of
from projections.tables.job_view import JobRow
from projections.tables.rows import Rows, as_json, slots_of
from runtime.postgres import Connection, Pool

LOAD: Final = """
SELECT node_id, slot, epoch, uuid, gpu_type, state, run_id, position, earmarked_for, cleaning, health, judged
FROM gpu_view WHERE node_id = ANY($1) ORDER BY node_id, slot
"""
WRITE: Final = """
INSERT INTO gpu_view SELECT * FROM json_populate_recordset(NULL::gpu_view, $1::json)
ON CONFLICT (node_id, slot) DO UPDATE SET
    epoch = excluded.epoch, uuid = excluded.uuid, gpu_type = excluded.gpu_type, state = excluded.state, run_id = excluded.run_id,
    position = excluded.position, earmarked_for = excluded.earmarked_for, cleaning = excluded.cleaning,
    health = excluded.health, judged = excluded.judged
"""
MARKED: Final = "SELECT DISTINCT node_id FROM gpu_view WHERE earmarked_for = ANY($1)"
OF_NODE: Final = """
SELECT node_id, slot, epoch, uuid, gpu_type, state, run_id, position, earmarked_for, cleaning, health, judged
FROM live.gpu_view WHERE node_id = $1 ORDER BY slot
"""
COUNTED: Final = """
SELECT gpu_type, state, count(*) FROM live.gpu_view WHERE state <> 'absent' GROUP BY gpu_type, state ORDER BY 1, 2
"""

SICK: Final = """
SELECT gpu_type, health->>'action', count(*) FROM live.gpu_view
WHERE health IS NOT NULL AND state <> 'absent' GROUP BY 1, 2 ORDER BY 1, 2
"""
EARMARKED: Final = "SELECT count(*) FROM live.gpu_view WHERE earmarked_for IS NOT NULL"
# Of a job: what ends its earmark, if it has one.
UNMARKING: Final = (JobPlaced, EarmarkDropped, JobRejected, JobSucceeded, JobFailed, JobCancelled, JobTimedOut)
EVENTS: Final = (  # that this table shows
    GpusReleased, GpusFoundClean, NodeLost, NodeJoined, ShareEnded, GpusEarmarked, GpuJudged, GpuReturned, *UNMARKING
)  # fmt: skip


class GpuState(StrEnum):
    """What is known of the GPU in a slot."""

    UNCLEAN = "unclean"  # in a node that has begun a new life, and not yet found clean in it
    FREE = "free"
    HELD = "held"  # by a run, until its agent releases it
    LOST = "lost"  # with its node
    ABSENT = "absent"  # no longer in its node; the slot stays its own


PRESENT: Final = (GpuState.UNCLEAN, GpuState.FREE, GpuState.HELD)


class Judged(msgspec.Struct, frozen=True, gc=False):
    """The last verdict on a GPU."""

    action: GpuAction
    signal: GpuSignal
    code: int
    rule: str
    at: datetime
    held_back: bool = False  # by the breaker


class GpuRow(msgspec.Struct, gc=False, omit_defaults=True):
    """A slot, as the table has it."""

    node_id: NodeId
    slot: int
    epoch: NodeEpoch  # the node's life that this is about
    uuid: GpuUuid
    gpu_type: str
    state: str  # a `GpuState`
    run_id: RunId | None  # that holds it
    position: Position  # of the last event that changed it
    earmarked_for: JobId | None = None  # set aside for this job, free or not yet
    cleaning: bool | None = None  # the ranks of the run that holds it have ended, and it is not released yet
    health: Ailment | None = None  # why it is given to nobody
    judged: Judged | None = None


AILMENT: Final = msgspec.json.Decoder(Ailment)
JUDGED: Final = msgspec.json.Decoder(Judged)


def _read(record: Iterable[Any]) -> GpuRow:
    """A row as it was selected, with its JSON decoded."""
    *columns, health, judged = record
    row = GpuRow(*columns)
    row.health = AILMENT.decode(health) if health is not None else None
    row.judged = JUDGED.decode(judged) if judged is not None else None
    return row


class Gpus:
    """The table, by node: a slot is a place in a list, and slots are never taken away."""

    def __init__(self) -> None:
        self._kept: dict[NodeId, list[GpuRow]] = {}
        self._changed: dict[tuple[NodeId, int], GpuRow] = {}
        self._marked: dict[JobId, dict[tuple[NodeId, int], GpuRow]] = {}

    def of(self, node_id: NodeId) -> list[GpuRow]:
        """The slots of a node that was loaded; to be added to, in order."""
        return self._kept[node_id]

    @property
    def marked(self) -> bool:
        """Whether any of the slots that are kept is set aside."""
        return bool(self._marked)

    def put(self, row: GpuRow) -> None:
        """The row is new, or has changed: it will be written."""
        self._changed[row.node_id, row.slot] = row

    def mark(self, row: GpuRow, job_id: JobId | None, position: Position) -> None:
        """The slot is set aside for a job; None: for nobody any more."""
        key = row.node_id, row.slot
        if row.earmarked_for is not None:
            del self._marked[row.earmarked_for][key]
        row.earmarked_for, row.position = job_id, position
        if job_id is not None:
            self._marked.setdefault(job_id, {})[key] = row
        self.put(row)

    def unmark(self, job_id: JobId, position: Position) -> None:
        """Nothing is set aside for a job any more."""
        for row in list(self._marked.get(job_id, {}).values()):
            self.mark(row, None, position)
        self._marked.pop(job_id, None)

    def forget(self) -> None:
        """Nothing is kept: the table may have changed."""
        self._kept.clear()
        self._changed.clear()
        self._marked.clear()

    async def load(self, conn: Connection, node_ids: Iterable[NodeId]) -> None:
        """All slots of these nodes are kept."""
        missing = [node_id for node_id in dict.fromkeys(node_ids) if node_id not in self._kept]
        if missing:
            self._kept.update({node_id: [] for node_id in missing})
            for record in await conn.fetch(LOAD, missing):
                row = _read(record)
                self._kept[row.node_id].append(row)
                if row.earmarked_for is not None:
                    self._marked.setdefault(row.earmarked_for, {})[row.node_id, row.slot] = row

    async def load_marked(self, conn: Connection, job_ids: Iterable[JobId]) -> None:
        """All slots of the nodes on which something is set aside for these jobs are kept."""
        if job_ids := list(dict.fromkeys(job_ids)):
            await self.load(conn, [record["node_id"] for record in await conn.fetch(MARKED, job_ids)])

    async def write(self, conn: Connection) -> None:
        """The table has every row that changed."""
        if self._changed:
            await conn.execute(WRITE, as_json(self._changed.values()))
            self._changed.clear()


def keys(records: Iterable[Recorded]) -> Iterator[NodeId]:
    """The nodes whose slots these records may change."""
    for recorded in records:
        match recorded.event:
            case JobPlaced() | GpusEarmarked() as e:
                for share in e.shares:
                    yield share.node_id
            case NodeJoined() | NodeLost() | GpusFoundClean() | GpusReleased() | ShareEnded() as e:
                yield e.node_id
            case GpuJudged() | GpuReturned() as e:
                yield e.node_id
            case _:
                pass


def unmarked(records: Iterable[Recorded], jobs: Rows[JobId, JobRow]) -> Iterator[JobId]:
    """The jobs whose earmark, of before these records, one of them may end."""
    for recorded in records:
        event = recorded.event
        if isinstance(event, UNMARKING) and (row := jobs.get(event.job_id)) is not None and row.earmark is not None:
            yield event.job_id


def fold(gpus: Gpus, jobs: Rows[JobId, JobRow], recorded: Recorded) -> None:
    """The slots that an event is about have changed, those of the epoch that it names and no others.

    `jobs` says, as of the event, which earmark of a job is the one in force.
    """
    event = recorded.event
    if isinstance(event, UNMARKING):
        if gpus.marked:
            gpus.unmark(event.job_id, recorded.position)
        if isinstance(event, JobPlaced):
            _hold(gpus, event, recorded.position)
        return
    match event:
        case GpuJudged() | GpuReturned():
            _judge(gpus, event, recorded)
        case GpusEarmarked() as e if (job := jobs.get(e.job_id)) is not None and job.earmark == recorded.position:
            _mark(gpus, e, recorded.position)
        case _:
            _report(gpus, event, recorded.position)


def _report(gpus: Gpus, event: Event, position: Position) -> None:
    """What is said of a node, or by it, moves its slots."""
    match event:
        case GpusReleased() as e:
            for row in _named(gpus, e.node_id, e.node_epoch, slots_of(e.slots)):
                if row.run_id == e.run_id:
                    _become(gpus, row, GpuState.FREE, position)
        case NodeLost() as e:
            for row in _in_state(gpus, e.node_id, e.node_epoch, PRESENT):
                _become(gpus, row, GpuState.LOST, position)
        case ShareEnded() as e:
            for row in _in_state(gpus, e.node_id, e.node_epoch, (GpuState.HELD,)):
                if row.run_id == e.run_id and not row.cleaning:
                    row.cleaning, row.position = True, position
                    gpus.put(row)
        case GpusFoundClean() as e:
            _find_clean(gpus, e, position)
        case NodeJoined() as e:
            _join(gpus, e, position)
        case _:
            pass  # not shown in this view


def _find_clean(gpus: Gpus, event: GpusFoundClean, position: Position) -> None:
    clean = set(event.gpu_uuids)
    for row in _in_state(gpus, event.node_id, event.node_epoch, (GpuState.UNCLEAN,)):
        if row.uuid in clean:
            _become(gpus, row, GpuState.FREE, position)


def _mark(gpus: Gpus, event: GpusEarmarked, position: Position) -> None:
    for share in event.shares:
        for row in _named(gpus, share.node_id, share.node_epoch, slots_of(share.slots)):
            gpus.mark(row, event.job_id, position)


def _hold(gpus: Gpus, event: JobPlaced, position: Position) -> None:
    """The free ones of its slots are the run's. A placement that lost a race to the end of an epoch finds none."""
    for share in event.shares:
        for row in _named(gpus, share.node_id, share.node_epoch, slots_of(share.slots)):
            if row.state == GpuState.FREE:
                _become(gpus, row, GpuState.HELD, position)
                row.run_id = event.run_id


def _judge(gpus: Gpus, event: GpuJudged | GpuReturned, recorded: Recorded) -> None:
    """A GPU was judged, or returned, in the life that its node is in."""
    rows = (row for row in gpus.of(event.node_id) if row.uuid == event.gpu_uuid and row.epoch == event.node_epoch)
    for row in rows:
        if isinstance(event, GpuReturned):
            row.health = None
        else:
            row.judged = Judged(event.action, event.signal, event.code, event.rule, recorded.at, event.held_back)
            if (found := ailment_of(event, recorded.at)) is not None:
                row.health = found if row.health is None else row.health.with_(found)
        row.position = recorded.position
        gpus.put(row)


def _named(gpus: Gpus, node_id: NodeId, epoch: NodeEpoch, slots: list[int]) -> Iterator[GpuRow]:
    rows = gpus.of(node_id)
    for slot in slots:
        if slot < len(rows) and rows[slot].epoch == epoch:
            yield rows[slot]


def _in_state(gpus: Gpus, node_id: NodeId, epoch: NodeEpoch, states: tuple[GpuState, ...]) -> list[GpuRow]:
    return [row for row in gpus.of(node_id) if row.epoch == epoch and row.state in states]


def _become(gpus: Gpus, row: GpuRow, state: GpuState, position: Position) -> None:
    row.state, row.run_id, row.cleaning, row.position = state, None, None, position
    gpus.put(row)


def _join(gpus: Gpus, event: NodeJoined, position: Position) -> None:
    """A known GPU keeps its slot, a new one gets the next number never used; all are out of the pool.

    When all numbers are used up, a new one gets that of one that is gone.
    """
    rows = gpus.of(event.node_id)
    uuids = list(dict.fromkeys(event.gpu_uuids))
    known = {row.uuid for row in rows}
    kind = event.gpu_type
    present = set(uuids)
    gone = (row for row in list(rows) if row.uuid not in present)
    for uuid in uuids:
        if uuid in known:
            continue
        if len(rows) < SLOTS_MAX:
            rows.append(GpuRow(event.node_id, len(rows), NodeEpoch(0), uuid, kind, GpuState.UNCLEAN, None, position))
        elif (row := next(gone, None)) is not None:
            row.uuid, row.health, row.judged = uuid, None, None
    for row in rows:
        row.epoch = NodeEpoch(position)
        if row.earmarked_for is not None:
            gpus.mark(row, None, position)
        if row.uuid in present:
            row.gpu_type = kind
        _become(gpus, row, GpuState.UNCLEAN if row.uuid in present else GpuState.ABSENT, position)


async def gpus_of(db: Pool | Connection, node_id: NodeId) -> list[GpuRow]:
    """The slots of a node, in order."""
    return [_read(record) for record in await db.fetch(OF_NODE, node_id)]


async def counts(db: Pool | Connection) -> dict[str, dict[str, int]]:
    """How many GPUs there are, by type and state."""
    counted: dict[str, dict[str, int]] = {}
    for kind, state, number in await db.fetch(COUNTED):
        counted.setdefault(kind, {})[state] = number
    return counted


async def sick(db: Pool | Connection) -> dict[tuple[str, str], int]:
    """How many GPUs are out by verdicts, by type and action."""
    return {(kind, action): number for kind, action, number in await db.fetch(SICK)}


async def earmarked(db: Pool | Connection) -> int:
    """How many GPUs are set aside for jobs, free or not yet."""
    return int(await db.fetchval(EARMARKED) or 0)
