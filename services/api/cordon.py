"""Routes by which operators take nodes out of use and put them back: one, or many at once."""

import difflib
from collections.abc import Iterable
from http import HTTPStatus

from fastapi import APIRouter

from events.ask import CancelMaintenance, Cordon, Drain, Maintain, RefusalCode, Refused, Uncordon, Undrain
from events.base import NodeId
from projections.tables import node_view
from services.api.parts import Here, InHere
from services.api.problems import Troubled, accepted, trouble
from services.api.schemas import NodeBody, NodesBody, NodesSaid
from services.api.standing import Trace, Who

router = APIRouter(prefix="/v1", tags=["operating"])

OfNodes = Cordon | Uncordon | Drain | Undrain | Maintain | CancelMaintenance


@router.post("/nodes:cordon")
async def cordon_many(body: NodesBody, here: InHere, who: Who, traceparent: Trace = "") -> NodesSaid:
    """Place nothing new on these nodes; what runs there goes on. All of them, or nothing is written."""
    ask = Cordon(node_ids=tuple(map(NodeId, body.nodes)), reason=body.reason, trace=traceparent)
    return await said(here, ask, who)


@router.post("/nodes:uncordon")
async def uncordon_many(body: NodesBody, here: InHere, who: Who, traceparent: Trace = "") -> NodesSaid:
    """Place on these nodes again. All of them, or nothing is written."""
    ask = Uncordon(node_ids=tuple(map(NodeId, body.nodes)), reason=body.reason, trace=traceparent)
    return await said(here, ask, who)


@router.post("/nodes/{node_id}/cordon")
async def cordon(
    node_id: str,
    here: InHere,
    who: Who,
    body: NodeBody | None = None,
    traceparent: Trace = "",
) -> NodesSaid:
    """Place nothing new on the node; what runs there goes on."""
    ask = Cordon(node_ids=(NodeId(node_id),), reason=body.reason if body else "", trace=traceparent)
    return await said(here, ask, who)


@router.post("/nodes/{node_id}/uncordon")
async def uncordon(
    node_id: str,
    here: InHere,
    who: Who,
    body: NodeBody | None = None,
    traceparent: Trace = "",
) -> NodesSaid:
    """Place on the node again."""
    ask = Uncordon(node_ids=(NodeId(node_id),), reason=body.reason if body else "", trace=traceparent)
    return await said(here, ask, who)


async def said(here: Here, ask: OfNodes, who: str) -> NodesSaid:
    """The word is in the log, of all nodes. Raises `Troubled`; where a name is unknown, with those that are near."""
    answer = await here.gate.ask_nodes(ask, who)
    if isinstance(answer, Refused) and answer.code is RefusalCode.NOT_FOUND:
        hint = await near(here, ask.node_ids) or answer.hint
        raise trouble(HTTPStatus.NOT_FOUND, "node_not_found", answer.message, hint)
    taken = accepted(answer)
    return NodesSaid(nodes=sorted(set(ask.node_ids)), position=taken.position, repeated=taken.repeated)


async def near(here: Here, asked: Iterable[str]) -> str:
    """Which node was probably meant by the first that there is none of; empty where the tables do not say."""
    try:
        async with here.tables() as tables:
            known = [node.node_id for node in await node_view.nodes(tables.db)]
    except Troubled:
        return ""
    unknown = next((one for one in sorted(asked) if one not in known), "")
    near = difflib.get_close_matches(unknown, known, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else ""
