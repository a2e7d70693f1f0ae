"""Routes by which operators drain nodes, plan maintenance and retire nodes: one, some, or all with a label."""

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Path
from pydantic_core import PydanticCustomError

from events.ask import CancelMaintenance, Drain, Maintain, RefusalCode, Undrain
from events.base import NodeId
from events.fleet import DrainCause
from projections.tables import node_view
from services.api.cordon import said
from services.api.drain_schemas import DrainBody, MaintainBody, RetireBody, UndrainBody, Which
from services.api.parts import Here, InHere
from services.api.problems import Troubled, trouble
from services.api.schemas import NodesSaid
from services.api.standing import Trace, Who
from services.gate.moments import moment
from services.gate.node_asks import NODES_MAX

router = APIRouter(prefix="/v1", tags=["operating"])

NodeNamed = Annotated[str, Path(description="Its name.")]
SHOWN_MAX: Final = 10  # labels that a hint names


@router.post("/nodes/drain")
async def drain_many(body: DrainBody, here: InHere, who: Who, traceparent: Trace = "") -> NodesSaid:
    """Place nothing new on these nodes; what runs there may finish until the deadline. All of them, or nothing is written."""
    return await said(here, _drain(await _meant(here, body), body, here, traceparent), who)


@router.post("/nodes/undrain")
async def undrain_many(body: UndrainBody, here: InHere, who: Who, traceparent: Trace = "") -> NodesSaid:
    """Use these nodes again, whoever drained them. All of them, or nothing is written."""
    node_ids = await _meant(here, body)
    return await said(here, Undrain(node_ids=node_ids, reason=body.reason, trace=traceparent), who)


@router.post("/nodes/maintain")
async def maintain_many(body: MaintainBody, here: InHere, who: Who, traceparent: Trace = "") -> NodesSaid:
    """Have these nodes empty from `starts` to `ends`; or, with `cancel`, no longer. All of them, or nothing is written."""
    return await said(here, _maintain(await _meant(here, body), body, here, traceparent), who)


@router.post("/nodes/retire")
async def retire_many(body: RetireBody, here: InHere, who: Who, traceparent: Trace = "") -> NodesSaid:
    """Drain these nodes for good: once they are empty they count no more, and never join again under their names."""
    return await said(here, _drain(await _meant(here, body), body, here, traceparent), who)


@router.post("/nodes/{node_id}/drain")
async def drain(node_id: NodeNamed, body: DrainBody, here: InHere, who: Who, traceparent: Trace = "") -> NodesSaid:
    """Place nothing new on the node; what runs there may finish until the deadline."""
    return await said(here, _drain(_one(node_id, body), body, here, traceparent), who)


@router.post("/nodes/{node_id}/undrain")
async def undrain(node_id: NodeNamed, body: UndrainBody, here: InHere, who: Who, traceparent: Trace = "") -> NodesSaid:
    """Use the node again, whoever drained it."""
    return await said(here, Undrain(node_ids=_one(node_id, body), reason=body.reason, trace=traceparent), who)


@router.post("/nodes/{node_id}/maintain")
async def maintain(
    node_id: NodeNamed, body: MaintainBody, here: InHere, who: Who, traceparent: Trace = ""
) -> NodesSaid:
    """Have the node empty from `starts` to `ends`; or, with `cancel`, no longer."""
    return await said(here, _maintain(_one(node_id, body), body, here, traceparent), who)


@router.post("/nodes/{node_id}/retire")
async def retire(node_id: NodeNamed, body: RetireBody, here: InHere, who: Who, traceparent: Trace = "") -> NodesSaid:
    """Drain the node for good."""
    return await said(here, _drain(_one(node_id, body), body, here, traceparent), who)


def _drain(node_ids: tuple[NodeId, ...], body: DrainBody | RetireBody, here: Here, trace: str) -> Drain:
    deadline = _moment("deadline", body.deadline, here) if body.deadline is not None else None
    cause = DrainCause.RETIRE if isinstance(body, RetireBody) else DrainCause(body.cause)
    return Drain(node_ids=node_ids, reason=body.reason, deadline=deadline, cause=cause, trace=trace)


def _maintain(node_ids: tuple[NodeId, ...], body: MaintainBody, here: Here, trace: str) -> Maintain | CancelMaintenance:
    if body.cancel:
        if body.starts is not None or body.ends is not None:
            raise _invalid(
                "cancel: of a window that has a start or an end; say one of both", "a window is planned, or cancelled"
            )
        return CancelMaintenance(node_ids=node_ids, window=body.window, reason=body.reason, trace=trace)
    if body.starts is None or body.ends is None:
        raise _invalid(f"{'ends' if body.starts else 'starts'}: is missing: a window is from one moment to another")
    starts = _moment("starts", body.starts, here)
    ends = _moment("ends", body.ends, here)
    return Maintain(node_ids=node_ids, window=body.window, starts=starts, ends=ends, reason=body.reason, trace=trace)


def _moment(field: str, typed: str, here: Here) -> datetime:
    try:
        return moment(typed, here.clock.now())
    except PydanticCustomError as error:
        context = error.context or {}
        raise _invalid(f"{field}: {context.get('problem', error)}", str(context.get("hint", ""))) from error


def _invalid(message: str, hint: str = "") -> Troubled:
    return trouble(HTTPStatus.UNPROCESSABLE_ENTITY, RefusalCode.INVALID, message, hint)


def _one(node_id: str, body: Which) -> tuple[NodeId, ...]:
    """The node of the address; the body may name no other. Raises `Troubled`."""
    if body.nodes or body.labels:
        raise _invalid("nodes: the address names the node already", "POST /v1/nodes/… takes several, or labels")
    return (NodeId(node_id),)


async def _meant(here: Here, which: Which) -> tuple[NodeId, ...]:
    """The nodes that the body names, or that have its labels. Raises `Troubled`."""
    if bool(which.nodes) == bool(which.labels):
        raise _invalid("nodes: name nodes or give labels, one of both")
    if which.nodes:
        return tuple(map(NodeId, which.nodes))
    async with here.tables() as tables:
        known = [node for node in await node_view.nodes(tables.db) if node.retired_at is None]
    found = tuple(node.node_id for node in known if which.labels.items() <= node.labels.items())
    told = ", ".join(f"{key}={value}" for key, value in sorted(which.labels.items()))
    if not found:
        labels = sorted({f"{key}={value}" for node in known for key, value in node.labels.items()})
        hint = f"there are {', '.join(labels[:SHOWN_MAX])}" if labels else "no node has any label"
        raise trouble(HTTPStatus.NOT_FOUND, "node_not_found", f"labels: no node has {told}; nothing was written", hint)
    if len(found) > NODES_MAX:
        raise _invalid(f"labels: {len(found)} nodes have {told}, {NODES_MAX} is the most", "name them in parts")
    return found
