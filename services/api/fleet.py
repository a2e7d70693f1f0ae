"""Routes that read nodes, queues and promises."""

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Query

from events.ask import Entitled, EntitledAsk
from events.base import JobId, NodeId, Position
from events.queues import QueueStop
from projections.tables import gpu_view, node_view, promise_view, queue_view
from projections.tables.queue_view import QueueRow
from runtime.serve_requests import ask
from services.api.cordon import near
from services.api.fleet_schemas import (
    Node,
    NodeDetail,
    Nodes,
    Promise,
    PromiseListing,
    Promises,
    Queue,
    Queues,
    QueueUse,
)
from services.api.gpus import gpu
from services.api.node_documents import holding, node
from services.api.parts import AtLeast, Here, InHere
from services.api.problems import trouble
from services.gate.names import shown

router = APIRouter(prefix="/v1", tags=["cluster"])

WAITING = ("queued", "admitted")
RUNNING = ("placed", "running", "stopping")
ENDED = ("succeeded", "failed", "cancelled", "timed_out", "rejected")
ENTITLED_S: Final = 2.0
ENTITLED_DECODER: Final = msgspec.json.Decoder(Entitled)
GRAVITY: Final = tuple(QueueStop)  # the gravest last


@router.get("/nodes")
async def list_nodes(here: InHere, min_position: AtLeast) -> Nodes:
    """Every node that ever joined, with its GPUs by state."""
    async with here.tables(min_position) as tables:
        rows = await node_view.nodes(tables.db)
    return Nodes(nodes=[Node(**node(row)) for row in rows], position=tables.position)


@router.get("/nodes/{node_id}")
async def get_node(node_id: str, here: InHere, min_position: AtLeast) -> NodeDetail:
    """One node, what drains it, and what runs there."""
    async with here.tables(min_position) as tables:
        row = await node_view.node(tables.db, node_id)
        held = await node_view.held_on(tables.db, node_id) if row is not None else []
        gpus = await gpu_view.gpus_of(tables.db, NodeId(node_id)) if row is not None else []
    if row is None:
        raise trouble(
            HTTPStatus.NOT_FOUND,
            "node_not_found",
            f"no node {shown(node_id)} has ever joined",
            await near(here, [node_id]),
        )
    return NodeDetail(**node(row), held=[holding(one) for one in held], gpus=[gpu(one) for one in gpus])


@router.get("/queues")
async def list_queues(here: InHere, min_position: AtLeast) -> Queues:
    """The queues of the document and every team that ever submitted a job, each before those below it.

    What they are entitled to is the control plane's answer, as of the moment; all else is as the tables show it.
    """
    async with here.tables(min_position) as tables:
        rows = await queue_view.queues(tables.db)
    return Queues(queues=tree(rows, await _entitled(here)), position=tables.position)


@router.get("/promises")
async def list_promises(here: InHere, min_position: AtLeast, listing: Annotated[PromiseListing, Query()]) -> Promises:
    """What gangs were promised, newest first, and how often that was kept."""
    before = promise_view.NEWEST if listing.cursor is None else Position(listing.cursor)
    job_id = JobId(listing.job.replace("\0", "\ufffd")) if listing.job is not None else None
    async with here.tables(min_position) as tables:
        rows = await promise_view.promises(tables.db, job_id=job_id, before=before, limit=listing.limit + 1)
        kept = await promise_view.kept(tables.db)
    page = rows[: listing.limit]
    return Promises(
        promises=[_promise(row) for row in page],
        next_cursor=page[-1].promised if len(rows) > len(page) else None,
        outcomes=kept.outcomes,
        slips=kept.slips,
        hit_rate=kept.hit_rate,
        position=tables.position,
    )


async def _entitled(here: Here) -> Mapping[str, dict[str, int]] | None:
    """What queues may claim, as a control plane says; None when none does."""
    reply = await ask(here.connection, here.subjects.entitled, msgspec.json.encode(EntitledAsk()), within_s=ENTITLED_S)
    return ENTITLED_DECODER.decode(reply).queues if reply else None


def tree(rows: Sequence[QueueRow], entitled: Mapping[str, dict[str, int]] | None) -> list[Queue]:
    """The queues, each before those below it, siblings by name; one whose parent is not there stands at the root.

    `entitled`: GPUs by queue and type, without those that may claim none; None where that is not known.
    """
    known = {row.team: row for row in rows}
    below: dict[str, list[QueueRow]] = {}
    for row in sorted(rows, key=lambda row: row.team):
        below.setdefault(row.parent if row.parent in known else "", []).append(row)
    found = [queue for row in below.get("", ()) for queue in _branch(row, below, depth=0, stopped=QueueStop.NONE)]
    if entitled is not None:
        for queue in found:
            queue.entitled = entitled.get(queue.team, {})
    return found


def _branch(row: QueueRow, below: Mapping[str, list[QueueRow]], *, depth: int, stopped: QueueStop) -> Iterator[Queue]:
    """A queue and all below it. Queues that are above themselves are at no root, and never come here."""
    stopped = max(stopped, QueueStop(row.stop), key=GRAVITY.index)
    branches = [list(_branch(under, below, depth=depth + 1, stopped=stopped)) for under in below.get(row.team, ())]
    yield _queue(row, depth, stopped, [branch[0].whole for branch in branches])
    for branch in branches:
        yield from branch


def _queue(row: QueueRow, depth: int, stopped: QueueStop, below: Sequence[QueueUse]) -> Queue:
    by_state = {state: int(getattr(row, state)) for state in (*WAITING, *RUNNING, *ENDED)}
    own = QueueUse(
        jobs_waiting=sum(by_state[state] for state in WAITING),
        jobs_running=sum(by_state[state] for state in RUNNING),
        gpus_used=row.gpus_held,
        gpus_borrowed=row.borrowed,
        gpus_waiting=row.gpus_waiting,
    )
    whole = {name: sum(getattr(use, name) for use in (own, *below)) for name in QueueUse.model_fields}
    return Queue(
        team=row.team,
        listed=row.listed,
        parent=row.parent,
        depth=depth,
        weight=row.weight,
        bounds=msgspec.to_builtins(row.bounds),
        order=row.discipline,
        stop=row.stop,
        stopped=stopped,
        pending_max=row.pending_max,
        running_max=row.running_max,
        jobs_ended=sum(by_state[state] for state in ENDED),
        gpus_used_by_type=row.used,
        by_state=by_state,
        entitled=None,
        whole=QueueUse(**whole),
        **own.model_dump(),
    )


def _promise(row: promise_view.PromiseRow) -> Promise:
    placed = row.outcome in {promise_view.Outcome.KEPT, promise_view.Outcome.LATE}
    now = row.ended_at if placed else row.start
    return Promise(
        job_id=row.job_id,
        team=row.team,
        gpus=row.gpus,
        outcome=row.outcome,
        promised_at=row.promised_at,
        first_start=row.first_start,
        start=row.start,
        slip_s=(now - row.first_start).total_seconds() if now is not None and row.first_start is not None else None,
        moves=row.moves,
        causes=row.causes,
        cause=row.cause or "",
        ended_at=row.ended_at,
        position=row.promised,
    )
