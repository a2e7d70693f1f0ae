"""Routes for machines: whether the process lives, whether it is of use, its metrics, and the schemas of all it sends."""

from functools import cache
from http import HTTPStatus
from typing import Any, Final

import msgspec
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from events.ask import Why, WhyAsk
from events.base import JobId, Position, spelled
from events.codec import TYPES
from events.docs.schemas import schemas
from events.log.between import distance
from events.log.port import LogFault, Unknown
from projections.tables import unreadable
from runtime.nats import alive
from runtime.serve_requests import ask
from services.api.credit_metrics import purses_of
from services.api.metrics import fleet_of
from services.api.parts import Here, InHere
from services.api.problems import Troubled, trouble
from services.api.schemas import Check, Ready
from services.gate.accounts import accounts_schema
from services.gate.names import shown
from services.gate.policy import policy_schema
from services.gate.prices import prices_schema
from services.gate.queues import queues_schema
from services.gate.spec import schema

router = APIRouter(tags=["operations"])

LAG_MAX: Final = 20_000  # events that the tables may be behind in an API that is of use
CONTROL_S: Final = 1.0

WHY_DECODER: Final = msgspec.json.Decoder(Why)


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process lives and its loop turns."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"model": Ready}})
async def readyz(here: InHere, response: Response) -> Ready:
    """Whether the API is of use now. Records that cannot be read are told, but do not make it useless."""
    end = await _end(here)
    position, tables, unread = await _tables(here)
    lag = await _lag(here, position, end) if tables.ok else None
    checks = {
        "nats": Check(ok=await alive(here.connection), detail="connection"),
        "log": Check(ok=end is not None, detail=f"ends at {spelled(end)}" if end is not None else "does not answer"),
        "postgres": tables,
        "projector": _projector(position, end, lag),
        "control": await _control(here),
        "unreadable": Check(ok=not unread, detail=f"{unread} records of the log cannot be read"),
    }
    ready = all(check.ok for name, check in checks.items() if name != "unreadable")
    if not ready:
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    return Ready(ready=ready, checks=checks, position=position, lag=-1 if lag is None else lag)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(here: InHere) -> Response:
    """Counters and gauges for Prometheus."""
    end = await _end(here)
    position, tables, unread = await _tables(here)
    lag = await _lag(here, position, end) if tables.ok else None
    here.gauges.lag.set(float("nan") if lag is None else lag)
    here.gauges.position.set(position)
    here.gauges.unreadable.set(unread)
    here.gauges.streams.set(here.streams.open)
    try:
        async with here.tables() as shown:
            here.fleet_metrics.shown = await fleet_of(shown.db)
            here.credit_metrics.shown = await purses_of(shown.db)
    except Troubled:
        here.fleet_metrics.shown = None
        here.credit_metrics.shown = None
    return Response(generate_latest(here.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/schemas/{name}.json")
async def get_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of an event by its type, of other messages by name; and of what people type.

    That is job_spec, queues, policy, accounts and prices.
    """
    found = _schemas().get(name)
    if found is None:
        names = ", ".join(sorted(_schemas()))
        raise trouble(
            HTTPStatus.NOT_FOUND, "not_found", f"schemas: there is none of {shown(name)}", f"there are {names}"
        )
    return found


@cache
def _schemas() -> dict[str, dict[str, Any]]:
    typed = {"job_spec": schema(), "queues": queues_schema(), "policy": policy_schema()}
    return schemas(TYPES) | typed | {"accounts": accounts_schema(), "prices": prices_schema()}


async def _end(here: Here) -> Position | None:
    try:
        return await here.log.end()
    except Unknown:
        return None


async def _tables(here: Here) -> tuple[Position, Check, int]:
    """What position the tables show, whether they can be read, and how many records they say are unreadable."""
    try:
        async with here.tables() as tables:
            unread = await unreadable.count(tables.db)
    except Troubled as troubled:
        return Position(0), Check(ok=False, detail=troubled.problem.detail), 0
    return tables.position, Check(ok=True, detail=f"tables at {spelled(tables.position)}"), unread


async def _lag(here: Here, position: Position, end: Position | None) -> int | None:
    """How many records the tables do not show; None where that is not known."""
    try:
        return None if end is None else await distance(here.log, position, end)
    except LogFault:
        return None


def _projector(position: Position, end: Position | None, lag: int | None) -> Check:
    if end is None or not position or lag is None:
        return Check(ok=False, detail="not known")
    if position > end:
        return Check(ok=False, detail="the tables are of another log, or of one that was longer: muster rebuild")
    return Check(ok=lag <= LAG_MAX, detail=f"{lag} events behind")


async def _control(here: Here) -> Check:
    """Whether a control plane answers, and which."""
    asked = msgspec.json.encode(WhyAsk(job_id=JobId("")))
    reply = await ask(here.connection, here.subjects.why, asked, within_s=CONTROL_S)
    if reply is None:
        return Check(ok=False, detail="no control plane answers")
    said = WHY_DECODER.decode(reply)
    if said.halted:
        return Check(
            ok=False, detail=f"nothing is decided since record {spelled(said.halted)}: muster verify says more"
        )
    return Check(ok=True, detail=f"a {'leader' if said.leader else 'standby'} answers, at {spelled(said.position)}")
