"""Routes of the standing documents, queues and policy: what holds, and setting another in its place (If-Match)."""

import re
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, Header, Query, Response

from events.ask import RefusalCode, SetDocument, SetPolicy, SetQueues
from events.base import START, Position
from events.log.port import Unknown
from projections.tables import node_view
from services.api.jobs import log_away
from services.api.parts import Here, InHere
from services.api.problems import Troubled, accepted, trouble
from services.api.schemas import DocumentSet, StandingDocument
from services.gate.documents import Held
from services.gate.names import shown
from services.gate.queue_tree import beyond
from services.gate.queues import checked_queues

router = APIRouter(prefix="/v1", tags=["operating"])

OPERATOR: Final = re.compile(r"[A-Za-z0-9@._-]{1,64}")
ETAG: Final = re.compile(r'"(\d{1,19})"')

WhoAsks = Annotated[str, Header(alias="Muster-Operator", description="Who asks: kept with what is written.")]
IfMatch = Annotated[str, Header(alias="If-Match", description='ETag of the document that this replaces; "*": any.')]
IfNoneMatch = Annotated[str, Header(alias="If-None-Match", description='"*": only where nobody has set one yet.')]
Trace = Annotated[str, Header(alias="traceparent", max_length=200)]
DryRun = Annotated[bool, Query(description="Write nothing; say what would change.")]
QueuesBody = Annotated[dict[str, Any], Body(description="The whole tree: see /schemas/queues.json.")]
PolicyBody = Annotated[dict[str, Any], Body(description="The whole policy: see /schemas/policy.json.")]


async def replaces(if_match: IfMatch = "", if_none_match: IfNoneMatch = "") -> Position | None:
    """The position that the headers name; None: whatever holds. Raises `Troubled`. Source: RFC 9110, section 13.1."""
    if if_none_match == "*" and not if_match:
        return START
    if if_none_match:
        told = "If-None-Match: can only be *, alone: nobody has set one yet"
        raise trouble(
            HTTPStatus.UNPROCESSABLE_ENTITY, RefusalCode.INVALID, told, "use If-Match for a document that is there"
        )
    if not if_match:
        told = "If-Match: is missing: which document does this one replace?"
        hint = "GET it, and send its ETag; If-Match: * replaces whatever is there"
        raise trouble(HTTPStatus.PRECONDITION_REQUIRED, "precondition_required", told, hint)
    if if_match == "*":
        return None
    found = ETAG.fullmatch(if_match.strip())
    if found is None:
        told = f"If-Match: must be one ETag as a GET gives it, a position in double quotes, or *, not {shown(if_match)}"
        raise trouble(HTTPStatus.UNPROCESSABLE_ENTITY, RefusalCode.INVALID, told)
    return Position(int(found[1]))


async def by(muster_operator: WhoAsks = "operator") -> str:
    """Who asked, as it is kept in the log. Raises `Troubled`."""
    if not OPERATOR.fullmatch(muster_operator):
        told = f"Muster-Operator: must be 1 to 64 letters, digits and @ . _ -, not {shown(muster_operator)}"
        raise trouble(HTTPStatus.UNPROCESSABLE_ENTITY, RefusalCode.INVALID, told)
    return f"api:{muster_operator}"


Over = Annotated[Position | None, Depends(replaces)]
Who = Annotated[str, Depends(by)]


@router.get("/queues/document")
async def get_queues(here: InHere, response: Response) -> StandingDocument:
    """The queues as one document, with its position as ETag: to be edited, and put back with If-Match."""
    try:
        return standing(await here.gate.documents.queues(), response)
    except Unknown as error:
        raise log_away() from error


@router.put("/queues/document")
async def put_queues(
    document: QueuesBody,
    here: InHere,
    response: Response,
    over: Over,
    who: Who,
    *,
    dry_run: DryRun = False,
    traceparent: Trace = "",
) -> DocumentSet:
    """Set the queues, whole, over the document that If-Match names. 412, with its ETag, when another holds by now."""
    ask = SetQueues(document=document, replaces=over, trace=traceparent)
    done = await set_standing(here, ask, who, dry_run=dry_run)
    done.warnings += await _beyond(here, document)
    return with_etag(done, response)


@router.get("/policy")
async def get_policy(here: InHere, response: Response) -> StandingDocument:
    """The policy with every field, and its position as ETag."""
    try:
        return standing(await here.gate.documents.policy(), response)
    except Unknown as error:
        raise log_away() from error


@router.put("/policy")
async def put_policy(
    document: PolicyBody,
    here: InHere,
    response: Response,
    over: Over,
    who: Who,
    *,
    dry_run: DryRun = False,
    traceparent: Trace = "",
) -> DocumentSet:
    """Set the policy, whole, over the document that If-Match names; what is left out has its default."""
    ask = SetPolicy(document=document, replaces=over, trace=traceparent)
    return with_etag(await set_standing(here, ask, who, dry_run=dry_run), response)


async def set_standing(here: Here, ask: SetDocument, who: str, *, dry_run: bool) -> DocumentSet:
    """What the document changes, once it is set, or would be. Raises `Troubled`."""
    answer = accepted(await here.gate.set_document(ask, who, dry_run=dry_run))
    return DocumentSet(
        position=answer.position,
        changed=not answer.repeated and not dry_run,
        would_change=not answer.repeated,
        changes=list(answer.changes),
        warnings=list(answer.warnings),
    )


async def _beyond(here: Here, document: dict[str, Any]) -> list[str]:
    """What the queues promise beyond what the cluster has; nothing while the tables cannot be read."""
    queues = checked_queues(document, here.clock.now())
    return beyond(getattr(queues, "queues", ()), await capacity_of(here))


async def capacity_of(here: Here) -> dict[str, int]:
    """GPUs of each type on the nodes that are not lost; nothing while the tables cannot be read."""
    capacity: dict[str, int] = {}
    try:
        async with here.tables() as tables:
            for node in await node_view.nodes(tables.db):
                if node.state != node_view.NodeState.LOST:
                    capacity[node.gpu_type] = capacity.get(node.gpu_type, 0) + node.gpus
    except Troubled:
        return {}
    return capacity


def standing(held: Held, response: Response) -> StandingDocument:
    """The document that holds; the response has its position as ETag."""
    response.headers["ETag"] = f'"{held.position}"'
    recorded = held.recorded
    return StandingDocument(
        document=held.document,
        position=held.position,
        by=recorded.event.by if recorded else "",
        at=recorded.at if recorded else None,
    )


def with_etag(done: DocumentSet, response: Response) -> DocumentSet:
    """The answer; the response has the position of what holds now as ETag."""
    response.headers["ETag"] = f'"{done.position}"'
    return done
