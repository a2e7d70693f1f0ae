"""Routes of webhooks: endpoints, their secrets, what was sent to them, and sending it again."""

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from http import HTTPStatus
from ipaddress import ip_address
from typing import Annotated, Any, Final
from uuid import uuid4

import msgspec
from fastapi import APIRouter, Query, Response
from msgspec.structs import replace

from events.ask import RefusalCode
from events.base import START, Position, chapter_of, position_of, sequence_of, spelled
from events.log.between import before, chapter_ends
from events.log.port import Reader, Unknown
from runtime.fault import Fault
from runtime.postgres import ABSENT, PASSING, Connection
from services.api import webhook_schemas as schemas
from services.api.jobs import log_away
from services.api.moment import Moment, moment_of
from services.api.parts import Here, InHere
from services.api.problems import Troubled, trouble
from services.api.standing import Who
from services.gate.names import name_problem, shown
from services.webhooks import deliveries, endpoints, reached, replays
from services.webhooks.address import parse_url, refusal
from services.webhooks.endpoints import ENDPOINTS_MAX, Endpoint, endpoint_id_for
from services.webhooks.replays import Replay
from services.webhooks.schedule import State
from services.webhooks.signature import SECRET_BYTES, parse_secret, spell_secret
from services.webhooks.testing import document_of_test
from services.webhooks.wanted import Wanted, spelled_out

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])

NEWEST: Final = Position((1 << 63) - 1)


@asynccontextmanager
async def kept(here: Here) -> AsyncIterator[Connection]:
    """What is kept of webhooks, in one transaction. Raises `Troubled`."""
    try:
        async with here.pool.acquire() as conn, conn.transaction():
            yield conn
    except ABSENT as error:
        told = "nothing is kept of webhooks yet: the part that sends them has never run"
        raise trouble(
            HTTPStatus.SERVICE_UNAVAILABLE, "webhooks_absent", told, "start it: muster serve webhooks"
        ) from error
    except PASSING as error:
        told = f"what is kept of webhooks cannot be reached now: {type(error).__name__}"
        raise trouble(HTTPStatus.SERVICE_UNAVAILABLE, "webhooks_away", told, "try again in a moment") from error
    except Unknown as error:
        raise log_away() from error
    except Fault as fault:
        raise trouble(HTTPStatus.CONFLICT, fault.code, fault.sentence, fault.hint) from fault


@router.post("", status_code=HTTPStatus.CREATED, summary="Add Webhook")
async def add(body: schemas.WebhookBody, here: InHere, who: Who, response: Response) -> schemas.WebhookMade:
    """Send events to a URL from now on. The answer shows the secret that signs them, once."""
    secret = _secret(body.secret)
    endpoint_id = endpoint_id_for(body.key or uuid4().hex)
    wanted = _wanted(body.types, body.teams, body.accounts)
    _check_url(here, body.url)
    async with kept(here) as conn:
        if await endpoints.count(conn) >= ENDPOINTS_MAX:
            raise _refused("conflict", f"there are {ENDPOINTS_MAX} endpoints, and may be no more", HTTPStatus.CONFLICT)
        new = Endpoint(
            endpoint_id=endpoint_id,
            url=body.url,
            wanted=wanted,
            description=body.description,
            after=await reached.from_now(conn, here.log),
            created_at=here.clock.now(),
            created_by=who,
        )
        if await endpoints.add(conn, new, secret):
            return schemas.WebhookMade(**_fields(new), secret=spell_secret(secret), repeated=False)
        before = await _found(conn, endpoint_id)
    if not before.asks_the_same_as(new):
        raise _refused("conflict", f"key: {shown(body.key)} was another endpoint's", HTTPStatus.CONFLICT)
    response.status_code = HTTPStatus.OK
    return schemas.WebhookMade(**_fields(before), secret="", repeated=True)


@router.get("", summary="List Webhooks")
async def listed(here: InHere) -> schemas.Webhooks:
    """All endpoints, oldest first."""
    async with kept(here) as conn:
        found = await endpoints.endpoints(conn)
        position = (await reached.reached(conn)).position
    return schemas.Webhooks(webhooks=[schemas.Webhook(**_fields(one)) for one in found], position=position)


@router.get("/{endpoint_id}", summary="Get Webhook")
async def one(endpoint_id: str, here: InHere) -> schemas.WebhookDetail:
    """One endpoint, with how many deliveries are in each state and its last replays."""
    async with kept(here) as conn:
        found = await _found(conn, endpoint_id)
        return schemas.WebhookDetail(
            **_fields(found),
            deliveries=await deliveries.counts(conn, endpoint_id),
            replays=[_replay(replay) for replay in await replays.replays(conn, endpoint_id)],
            secrets=len((await endpoints.secrets(conn, {endpoint_id}, here.clock.now()))[endpoint_id]),
        )


@router.patch("/{endpoint_id}", summary="Change Webhook")
async def change(endpoint_id: str, body: schemas.WebhookChange, here: InHere) -> schemas.Webhook:
    """Change what an endpoint gets, or stop it and let it go on. What happens while it is stopped, it does not get."""
    if body.url is not None:
        _check_url(here, body.url)
    async with kept(here) as conn:
        now = await _found(conn, endpoint_id, lock=True)
        wanted = _wanted(
            now.wanted.types if body.types is None else body.types,
            now.wanted.teams if body.teams is None else body.teams,
            now.wanted.accounts if body.accounts is None else body.accounts,
        )
        to = replace(
            now,
            url=now.url if body.url is None else body.url,
            wanted=wanted,
            description=now.description if body.description is None else body.description,
        )
        if body.enabled is False and now.enabled:
            to = replace(to, enabled=False, stopped="operator")
        elif body.enabled and not now.enabled:
            to = replace(to, enabled=True, stopped="", quiet_until=None, after=await reached.from_now(conn, here.log))
        await endpoints.change(conn, to)
    return schemas.Webhook(**_fields(to))


@router.delete("/{endpoint_id}", summary="Remove Webhook")
async def remove(endpoint_id: str, here: InHere) -> schemas.WebhookRemoved:
    """Send no more to an endpoint, and forget it, with its secrets and deliveries."""
    async with kept(here) as conn:
        if not await endpoints.remove(conn, endpoint_id):
            raise _unknown(endpoint_id)
    return schemas.WebhookRemoved(endpoint_id=endpoint_id)


@router.post("/{endpoint_id}:rotate", summary="Rotate Secret")
async def rotate(endpoint_id: str, here: InHere, body: schemas.RotateBody | None = None) -> schemas.Rotated:
    """Sign with another secret from now on, and for a while with those before it too, in the same header."""
    asked = body or schemas.RotateBody()
    secret, now = _secret(asked.secret), here.clock.now()
    until = now + timedelta(seconds=asked.grace_s)
    async with kept(here) as conn:
        await _found(conn, endpoint_id, lock=True)
        made = await endpoints.rotate(conn, endpoint_id, secret, now=now, until=until)
    return schemas.Rotated(endpoint_id=endpoint_id, secret=spell_secret(secret), until=until, repeated=not made)


@router.post("/{endpoint_id}:test", status_code=HTTPStatus.ACCEPTED, summary="Send Test")
async def test(endpoint_id: str, here: InHere, who: Who) -> schemas.Tested:
    """Send an event of type musterbook.webhook.test.v1, whatever the endpoint wants, signed as any other; once."""
    webhook_id, now = f"test-{uuid4().hex}", here.clock.now()
    async with kept(here) as conn:
        found = await _enabled(conn, endpoint_id)
        document = document_of_test(webhook_id, found.endpoint_id, at=now, by=who)
        await deliveries.add_test(conn, endpoint_id, webhook_id, document=document, now=now)
    return schemas.Tested(endpoint_id=endpoint_id, webhook_id=webhook_id)


@router.get("/{endpoint_id}/deliveries", summary="List Deliveries")
async def sent(endpoint_id: str, here: InHere, which: Annotated[schemas.Deliver, Query()]) -> schemas.Deliveries:
    """What became of the events to an endpoint, newest first."""
    until = NEWEST if which.until is None else Position(which.until)
    async with kept(here) as conn:
        await _found(conn, endpoint_id)
        found = await deliveries.deliveries(conn, endpoint_id, which.state, until=until, limit=which.limit)
    return schemas.Deliveries(
        deliveries=[
            schemas.Delivery(
                **msgspec.structs.asdict(row) | {"next_try": row.next_try if row.state is State.WAITING else None}
            )
            for row in found
        ]
    )


@router.post("/{endpoint_id}:replay", status_code=HTTPStatus.ACCEPTED, summary="Replay Events")
async def replay(endpoint_id: str, body: schemas.ReplayBody, here: InHere, who: Who) -> schemas.Replayed:
    """Send a range of the log to an endpoint again: what it wants of that, under the ids that it may have seen before."""
    try:
        end = await here.log.end()
        after = await _position(here, "after", body.after, end=end)
        until = await _position(here, "before", body.before, end=end, without=True) if body.before else end
    except Unknown as error:
        raise log_away() from error
    if after >= until:
        raise _refused("invalid", f"nothing lies behind {spelled(after)} and up to {spelled(until)}")
    asked = Replay(endpoint_id=endpoint_id, after=after, until=until, made_at=here.clock.now(), made_by=who)
    async with kept(here) as conn:
        await _enabled(conn, endpoint_id)
        await reached.check(here.log, await reached.reached(conn))
        made = await replays.ask(conn, asked)
        running = await replays.replays(conn, endpoint_id) if made is None else []
    if made is not None:
        return schemas.Replayed(**msgspec.structs.asdict(made), repeated=False)
    same = next((one for one in running if one.ended_at is None and (one.after, one.until) == (after, until)), None)
    if same is None:
        told = f"another replay to {endpoint_id} is not done"
        raise _refused("conflict", told, HTTPStatus.CONFLICT, "try again when it is")
    return schemas.Replayed(**msgspec.structs.asdict(same), repeated=True)


def _fields(found: Endpoint) -> dict[str, Any]:
    fields = msgspec.structs.asdict(found)
    return fields | msgspec.structs.asdict(fields.pop("wanted"))


def _replay(found: Replay) -> schemas.Replay:
    return schemas.Replay(**msgspec.structs.asdict(found))


async def _found(conn: Connection, endpoint_id: str, *, lock: bool = False) -> Endpoint:
    """The endpoint; nobody else changes it until the transaction ends, where `lock`. Raises `Troubled`."""
    found = await endpoints.endpoint(conn, endpoint_id, lock=lock)
    if found is None:
        raise _unknown(endpoint_id)
    return found


async def _enabled(conn: Connection, endpoint_id: str) -> Endpoint:
    found = await _found(conn, endpoint_id, lock=True)
    if not found.enabled:
        hint = f"muster webhooks enable {endpoint_id}"
        raise _refused("conflict", f"{endpoint_id} is stopped ({found.stopped})", HTTPStatus.CONFLICT, hint)
    return found


def _wanted(types: Sequence[str], teams: Sequence[str], accounts: Sequence[str]) -> Wanted:
    for field, names in (("teams", teams), ("accounts", accounts)):
        if problem := next(filter(None, map(name_problem, names)), ""):
            raise _refused("invalid", f"{field}: {problem}")
    try:
        full = spelled_out(types)
    except ValueError as error:
        raise _refused("invalid", f"types: {error}", hint="docs/events.md lists them") from error
    return Wanted(full, tuple(dict.fromkeys(teams)), tuple(dict.fromkeys(accounts)))


def _check_url(here: Here, url: str) -> None:
    """Events can be sent there, as far as can be known without resolving the host. Raises `Troubled`."""
    try:
        target = parse_url(url)
    except ValueError as error:
        raise _refused("invalid", f"url: {error}") from error
    try:
        address = ip_address(target.host)
    except ValueError:
        return
    if why := refusal(address, encrypted=target.scheme == "https", allowed=here.webhooks_allow):
        raise _refused("invalid", f"url: {why}", hint="operators allow networks by MUSTER_WEBHOOKS_ALLOW")


def _secret(typed: str) -> bytes:
    try:
        return parse_secret(typed) if typed else secrets.token_bytes(SECRET_BYTES)
    except ValueError as error:
        raise _refused("invalid", f"secret: {error}") from error


async def _position(here: Here, field: str, typed: str, *, end: Position, without: bool = False) -> Position:
    """The last position that is meant by a moment; the one before it where a position is meant `without` itself."""
    try:
        moment = moment_of(typed, here.clock.now())
    except Troubled as error:
        told = error.problem.detail.removeprefix("at: ")
        raise _refused("invalid", f"{field}: {told}", hint=error.problem.hint) from error
    if moment.position is None:
        return await last_by(here.log, moment, end)
    if moment.position > end:
        raise _refused("invalid", f"{field}: {spelled(moment.position)} is beyond the end of the log, {spelled(end)}")
    return await before(here.log, moment.position) if without and moment.position else moment.position


async def last_by(log: Reader, moment: Moment, end: Position) -> Position:
    """The position of the last record that was stored by a time; `START` where there is none."""
    assert moment.time is not None
    ends = await chapter_ends(log, end)
    while ends:
        chapter, low, high = chapter_of(ends[-1]), 0, sequence_of(ends.pop())
        while low < high:
            middle = (low + high + 1) // 2
            recorded = await log.read(position_of(chapter, middle))
            if recorded is not None and recorded.at <= moment.time:
                low = middle
            else:
                high = middle - 1
        if low:
            return position_of(chapter, low)
    return START


def _unknown(endpoint_id: str) -> Troubled:
    told = f"there is no webhook {shown(endpoint_id)}"
    return trouble(HTTPStatus.NOT_FOUND, "webhook_not_found", told, "muster webhooks list shows them")


def _refused(code: str, told: str, status: HTTPStatus = HTTPStatus.UNPROCESSABLE_ENTITY, hint: str = "") -> Troubled:
    return trouble(status, RefusalCode(code), told, hint)
