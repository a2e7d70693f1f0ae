"""`node_view`: every node that ever joined, one row each, in its present life."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, get_args

import msgspec

from events.base import Event, JobId, NodeEpoch, NodeId, Position, Recorded, RunId, TeamId
from events.fleet import FleetEvent, NodeClockJudged, NodeLost, NodeRecovered, NodeSuspected
from events.gpu import GpuJudged
from events.node import NodeDescribed, NodeJoined
from events.operator import NodeCordoned, NodeUncordoned, OperatorEvent
from projections.cluster.drain_rules import Drains, DrainWord, after
from projections.cluster.fitness import Drain, Window
from projections.tables.rows import Rows
from runtime.postgres import Connection, Pool

LOAD: Final = """
SELECT node_id, epoch, state, boot_id, instance, gpu_type, gpus, address, port_base, agent_version, labels,
       silent_s, joined_at, state_at, position, taints, cordoned_at, cordoned_by, cordon_reason,
       drain, windows, retired_at, patience_s, ahead_s, score
FROM node_view WHERE node_id = ANY($1)
"""
WRITE: Final = """
INSERT INTO node_view SELECT * FROM json_populate_recordset(NULL::node_view, $1::json)
ON CONFLICT (node_id) DO UPDATE SET
    epoch = excluded.epoch, state = excluded.state, boot_id = excluded.boot_id, instance = excluded.instance,
    gpu_type = excluded.gpu_type, gpus = excluded.gpus, address = excluded.address, port_base = excluded.port_base,
    agent_version = excluded.agent_version, labels = excluded.labels, silent_s = excluded.silent_s,
    joined_at = excluded.joined_at, state_at = excluded.state_at, position = excluded.position,
    taints = excluded.taints, cordoned_at = excluded.cordoned_at, cordoned_by = excluded.cordoned_by,
    cordon_reason = excluded.cordon_reason, drain = excluded.drain, windows = excluded.windows,
    retired_at = excluded.retired_at, patience_s = excluded.patience_s, ahead_s = excluded.ahead_s,
    score = excluded.score
"""
SHOWN: Final = """
SELECT node.node_id, node.epoch, node.state, boot_id, instance, node.gpu_type, gpus, address, port_base,
       agent_version, labels, silent_s, joined_at, state_at, node.position, taints, cordoned_at, cordoned_by,
       cordon_reason, drain, windows, retired_at, patience_s, ahead_s, score, coalesce(gpu.free, 0),
       coalesce(gpu.held, 0), coalesce(gpu.unclean, 0), coalesce(gpu.run_ids, '{}'), coalesce(gpu.earmarked, 0),
       coalesce(gpu.earmarked_for, '{}'), coalesce(gpu.sick, 0), coalesce(gpu.cleaning, 0)
FROM live.node_view AS node LEFT JOIN (
    SELECT node_id, count(*) FILTER (WHERE state = 'free' AND health IS NULL) AS free, count(*) FILTER (WHERE state = 'held') AS held,
           count(*) FILTER (WHERE state = 'unclean') AS unclean,
           array_agg(DISTINCT run_id) FILTER (WHERE run_id IS NOT NULL) AS run_ids, count(earmarked_for) AS earmarked,
           array_agg(DISTINCT earmarked_for) FILTER (WHERE earmarked_for IS NOT NULL) AS earmarked_for,
           count(*) FILTER (WHERE health IS NOT NULL AND state <> 'absent') AS sick,
           count(*) FILTER (WHERE cleaning AND state = 'held') AS cleaning
    FROM live.gpu_view WHERE $1::text IS NULL OR node_id = $1 GROUP BY node_id
) AS gpu USING (node_id)
WHERE ($1::text IS NULL OR node.node_id = $1) AND node.node_id > $2 AND ($3::text[] IS NULL OR node.state = ANY($3))
ORDER BY node.node_id LIMIT $4
"""
HELD_ON: Final = """
SELECT run.run_id, run.job_id, run.team, job.name, run.state, held.gpus, run.placed_at, run.started_at, job.max_runtime_s
FROM (
    SELECT run_id, count(*) AS gpus FROM live.gpu_view WHERE node_id = $1 AND state = 'held' GROUP BY run_id
) AS held JOIN live.run_view AS run USING (run_id) JOIN live.job_view AS job USING (job_id)
ORDER BY coalesce(run.started_at, run.placed_at) + make_interval(secs => job.max_runtime_s) NULLS LAST, run.run_id
"""
CLOCKS: Final = """
SELECT coalesce(min(ahead_s), 0), coalesce(max(ahead_s), 0) FROM live.node_view WHERE state <> 'lost'
"""
STANDINGS: Final = """
SELECT state, CASE WHEN retired_at IS NOT NULL THEN 'retired' WHEN drain->>'done_at' IS NOT NULL THEN 'drained'
                   WHEN drain IS NOT NULL THEN 'draining' WHEN cordoned_at IS NOT NULL THEN 'cordoned' ELSE 'open' END,
       count(*)
FROM live.node_view GROUP BY 1, 2 ORDER BY 1, 2
"""
EVENTS: Final = (NodeJoined, NodeDescribed, FleetEvent, OperatorEvent)  # that this table shows
DRAINING: Final = get_args(DrainWord)
PAGE_MAX: Final = 20_000
OUTLIVES: Final = (  # a life of the node: what is said of the machine
    "cordoned_at",
    "cordoned_by",
    "cordon_reason",
    "drain",
    "windows",
    "retired_at",
    "ahead_s",
    "score",
)


class NodeState(StrEnum):
    """Whether a node's agent is heard."""

    UP = "up"
    SUSPECT = "suspect"
    LOST = "lost"


class NodeRow(msgspec.Struct, gc=False):
    """A node, as the table has it."""

    node_id: NodeId
    epoch: NodeEpoch
    state: str  # a `NodeState`
    boot_id: str
    instance: str
    gpu_type: str
    gpus: int  # of the present life
    address: str
    port_base: int
    agent_version: str
    labels: dict[str, str]
    silent_s: float | None  # when it was last judged
    joined_at: datetime
    state_at: datetime  # when its state last changed
    position: Position  # of the last event that changed it
    taints: list[str]
    cordoned_at: datetime | None = None  # in whatever life; None: it takes new work
    cordoned_by: str | None = None
    cordon_reason: str | None = None
    drain: Drain | None = None  # what drains it
    windows: tuple[Window, ...] | None = None  # maintenance that is planned, or on
    retired_at: datetime | None = None
    patience_s: float | None = None  # how long its silence was borne, when it was lost
    ahead_s: float | None = None  # how far its clock was ahead, when that was last judged
    score: int | None = None  # as a lemon, when a GPU of it was last judged


class Node(NodeRow):
    """A node, as it is shown."""

    free: int = 0  # GPUs in the pool that no run holds
    held: int = 0  # by runs
    unclean: int = 0  # out of the pool until they are found clean
    run_ids: list[str] = []  # that hold GPUs here
    earmarked: int = 0  # GPUs set aside for a job, free or not yet
    earmarked_for: list[str] = []  # these jobs
    sick: int = 0  # GPUs that are given to nobody, by what they showed
    cleaning: int = 0  # of those held, by runs that have ended: whether nothing holds them any more is not seen yet


class Held(NamedTuple):
    """A run that holds GPUs of a node."""

    run_id: RunId
    job_id: JobId
    team: TeamId
    name: str
    state: str  # a `RunState`
    gpus: int  # on the node
    placed_at: datetime
    started_at: datetime | None
    max_runtime_s: int | None  # as declared


Kind = TypeVar("Kind", bound=NodeRow)
DOCUMENTS: Final = {"labels": dict[str, str], "drain": Drain, "windows": tuple[Window, ...]}  # columns of JSON
DECODERS: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    name: msgspec.json.Decoder(kind) for name, kind in DOCUMENTS.items()
}


def rows() -> Rows[NodeId, NodeRow]:
    """The table, with nothing read yet."""
    return Rows(partial(_read, NodeRow), lambda row: row.node_id, load=LOAD, write=WRITE)


def _read(kind: type[Kind], *columns: Any) -> Kind:
    """A row as it was selected, with its JSON decoded."""
    row = kind(*columns)
    for name, decoder in DECODERS.items():
        if (document := getattr(row, name)) is not None:
            setattr(row, name, decoder.decode(document))
    return row


def keys(records: Iterable[Recorded]) -> Iterator[NodeId]:
    """The nodes that these records may change."""
    for recorded in records:
        if isinstance(recorded.event, EVENTS):
            yield recorded.event.node_id


def fold(nodes: Rows[NodeId, NodeRow], recorded: Recorded) -> None:
    """The node that an event is about has changed: begun a life, been judged or described in the one it is in, or cordoned."""
    event = recorded.event
    match event:
        case NodeJoined():
            nodes.put(_joined(event, recorded, nodes.get(event.node_id)))
        case FleetEvent() | NodeDescribed():
            row = nodes.get(event.node_id)
            if row is not None and row.epoch == event.node_epoch:
                _tell(nodes, row, event, recorded)
        case OperatorEvent():
            row = nodes.get(event.node_id)
            if row is not None:
                _tell(nodes, row, event, recorded)
        case _:
            pass


def _tell(nodes: Rows[NodeId, NodeRow], row: NodeRow, event: Event, recorded: Recorded) -> None:
    """The row says what the event says, if that is new."""
    if (_drain if isinstance(event, DRAINING) else _change)(row, event, recorded.at):
        row.position = recorded.position
        nodes.put(row)


def _joined(event: NodeJoined, recorded: Recorded, before: NodeRow | None) -> NodeRow:
    """A new life; cordons, drains and what is known of the machine outlive the one before."""
    row = NodeRow(
        node_id=event.node_id,
        epoch=NodeEpoch(recorded.position),
        state=NodeState.UP,
        boot_id=event.boot_id,
        instance=event.instance,
        gpu_type=event.gpu_type,
        gpus=len(set(event.gpu_uuids)),
        address=event.address,
        port_base=event.port_base,
        agent_version=event.agent_version,
        labels=event.labels,
        silent_s=None,
        joined_at=recorded.at,
        state_at=recorded.at,
        position=recorded.position,
        taints=list(event.taints),
    )
    if before is not None:
        for name in OUTLIVES:
            setattr(row, name, getattr(before, name))
        _drain(row, event, recorded.at)
    return row


def _change(row: NodeRow, event: Event, at: datetime) -> bool:
    """Whether an event says something new of the life that a node is in: then its row says so too."""
    match event:
        case NodeSuspected() if row.state == NodeState.UP:
            row.state, row.silent_s, row.state_at = NodeState.SUSPECT, event.silent_s, at
        case NodeRecovered() if row.state == NodeState.SUSPECT:
            row.state, row.silent_s, row.state_at = NodeState.UP, None, at
        case NodeLost() if row.state != NodeState.LOST:
            row.state, row.silent_s, row.state_at, row.patience_s = NodeState.LOST, event.silent_s, at, event.patience_s
        case NodeDescribed():
            row.labels, row.taints = event.labels, list(event.taints)
            row.agent_version = event.agent_version or row.agent_version
        case NodeClockJudged():
            row.ahead_s = event.ahead_s
        case GpuJudged():
            row.score = event.score
        case NodeCordoned():
            row.cordoned_at, row.cordoned_by, row.cordon_reason = at, event.by, event.reason
        case NodeUncordoned() if row.cordoned_at is not None:
            row.cordoned_at = row.cordoned_by = row.cordon_reason = None
        case _:
            return False
    return True


def _drain(row: NodeRow, event: Event, at: datetime) -> bool:
    """Whether a word on drains changes any of the node: then its row says so too."""
    before = Drains(row.drain, row.windows or (), row.retired_at is not None)
    now = after(before, event, at)  # type: ignore[arg-type]  # one of `DRAINING`
    row.drain, row.windows = now.drain, now.windows or None
    if now.retired and row.retired_at is None:
        row.retired_at = at
    return now != before


async def nodes(
    db: Pool | Connection, *, states: frozenset[NodeState] | None = None, after: str = "", limit: int = PAGE_MAX
) -> list[Node]:
    """Up to `limit` nodes by id, with their GPUs by state; `after` is the id of the last one of the page before."""
    wanted = sorted(states) if states is not None else None
    return [_read(Node, *record) for record in await db.fetch(SHOWN, None, after, wanted, min(limit, PAGE_MAX))]


async def node(db: Pool | Connection, node_id: str) -> Node | None:
    """The node, with its GPUs by state; None where none of that id ever joined."""
    if not node_id.isascii() or "\0" in node_id:
        return None
    record = await db.fetchrow(SHOWN, node_id, "", None, 1)
    return _read(Node, *record) if record is not None else None


async def held_on(db: Pool | Connection, node_id: str) -> list[Held]:
    """The runs that hold GPUs of a node, those first that end first by what they declared."""
    return [Held(*record) for record in await db.fetch(HELD_ON, node_id)]


async def standings(db: Connection) -> dict[tuple[str, str], int]:
    """Nodes by their state and by what keeps new work from them: open, cordoned, draining, drained or retired."""
    return {(state, standing): nodes for state, standing, nodes in await db.fetch(STANDINGS)}


async def clocks(db: Connection) -> tuple[float, float]:
    """How far ahead the clocks of nodes are, as last said: the one furthest behind, and the one furthest ahead."""
    least_s, most_s = await db.fetchrow(CLOCKS) or (0.0, 0.0)
    return float(least_s), float(most_s)
