"""Routes that read nodes and queues."""

from fastapi import APIRouter, Response

from projections.tables import node_view, queue_view
from services.api.parts import AtLeast, InHere, say_position
from services.api.schemas import Node, Nodes, Queue, Queues

router = APIRouter(prefix="/v1", tags=["cluster"])

WAITING = ("queued", "admitted")
RUNNING = ("placed", "running", "stopping")
ENDED = ("succeeded", "failed", "cancelled", "timed_out", "rejected")


@router.get("/nodes")
async def list_nodes(here: InHere, response: Response, min_position: AtLeast) -> Nodes:
    """Every node that ever joined, with its GPUs by state."""
    async with here.tables(min_position) as tables:
        rows = await node_view.nodes(tables.db)
    say_position(response, tables.position)
    return Nodes(nodes=[_node(row) for row in rows], position=tables.position)


@router.get("/queues")
async def list_queues(here: InHere, response: Response, min_position: AtLeast) -> Queues:
    """Every team that ever submitted a job, with its jobs by state."""
    async with here.tables(min_position) as tables:
        rows = await queue_view.queues(tables.db)
    say_position(response, tables.position)
    return Queues(queues=[_queue(row) for row in rows], position=tables.position)


def _node(row: node_view.Node) -> Node:
    return Node(
        node_id=row.node_id,
        state=row.state,
        gpu_type=row.gpu_type,
        gpus_total=row.gpus,
        gpus_used=row.held,
        gpus_free=row.free,
        gpus_out=max(0, row.gpus - row.held - row.free),
        epoch=row.epoch,
        address=row.address,
        agent_version=row.agent_version,
        labels=row.labels,
        joined_at=row.joined_at,
        state_at=row.state_at,
        position=row.position,
    )


def _queue(row: queue_view.QueueRow) -> Queue:
    by_state = {state: int(getattr(row, state)) for state in (*WAITING, *RUNNING, *ENDED)}
    return Queue(
        team=row.team,
        jobs_waiting=sum(by_state[state] for state in WAITING),
        jobs_running=sum(by_state[state] for state in RUNNING),
        jobs_ended=sum(by_state[state] for state in ENDED),
        gpus_used=row.gpus_held,
        gpus_waiting=row.gpus_waiting,
        by_state=by_state,
    )
