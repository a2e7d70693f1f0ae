"""Routes by which operators grant credits and correct balances, and learn what became of that."""

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from events.ask import Adjust, Grant, RefusalCode, Refused
from events.base import START, AccountId, Position
from projections.tables import ask_view, bill_view, statement
from projections.tables.ask_view import AskRow, AskState
from projections.tables.bill_view import BillRow
from services.api.credit_schemas import WAIT_MAX_S, AdjustBody, Ask, Asked, GrantBody, money
from services.api.parts import AtLeast, Here, InHere, Tables, say_position
from services.api.problems import Troubled, accepted, trouble
from services.api.standing import Trace, Who
from services.gate.names import KEY_MAX, shown

router = APIRouter(prefix="/v1/credits", tags=["credits"])

Key = Annotated[
    str, Header(alias="Idempotency-Key", max_length=KEY_MAX, description="The same key again is the same wish.")
]
Wait = Annotated[float, Query(ge=0, le=WAIT_MAX_S, description="Wait so many seconds for it to be answered.")]


@router.post("/accounts/{account}/grants", status_code=HTTPStatus.ACCEPTED)
async def grant(
    account: str, body: GrantBody, here: InHere, who: Who, *, idempotency_key: Key = "", traceparent: Trace = ""
) -> Asked:
    """Ask for more credits for an account. The wish is in the log when this answers; asking again with its key is the same."""
    key = _key(body, idempotency_key)
    ask = Grant(account=AccountId(account), key=key, credits=body.credits, reason=body.reason, trace=traceparent)
    return await _asked(here, ask, who)


@router.post("/accounts/{account}/adjustments", status_code=HTTPStatus.ACCEPTED)
async def adjust(
    account: str, body: AdjustBody, here: InHere, who: Who, *, idempotency_key: Key = "", traceparent: Trace = ""
) -> Asked:
    """Ask for a correction of a balance, up or down, or for a refund of what a run was charged.

    One downwards is done if the account has so much, else refused; a refund is never of more than the run was charged.
    """
    key = _key(body, idempotency_key)
    refunds = await _charge_of(here, account, body.refunds) if body.refunds else START
    ask = Adjust(
        account=AccountId(account),
        key=key,
        credits=body.credits,
        reason=body.reason,
        refunds=refunds,
        trace=traceparent,
    )
    return await _asked(here, ask, who)


@router.get("/asks/{ask_id}")
async def get_ask(ask_id: str, here: InHere, response: Response, min_position: AtLeast, wait_s: Wait = 0.0) -> Ask:
    """What was asked of an account, and what became of it. With `wait_s`, once it is answered, or after so long."""
    row, position = await _look(here, ask_id, min_position)
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            while row.state == AskState.ASKED:
                await here.shown.wait_for(Position(position + 1), WAIT_MAX_S)
                row, position = await _look(here, ask_id, None)
    say_position(response, position)
    return Ask(
        ask_id=row.ask_id,
        account=row.account,
        kind=row.kind,
        state=row.state,
        code=row.code or "",
        message=row.message or "",
        entry=row.entry or 0,
        reason=row.reason,
        by=row.by,
        asked_at=row.asked_at,
        position=row.position,
        **money(amount=row.amount_micro),
    )


def _key(body: GrantBody | AdjustBody, in_header: str) -> str:
    """The key of a wish. There is none by itself: whoever asks again without one would have granted twice."""
    key = body.key or in_header
    if not key:
        told = "key: is missing: without one, whoever asks again after a lost answer has asked twice"
        hint = "make one before the first try, such as a UUID or the number of an order; or send it as Idempotency-Key"
        raise trouble(HTTPStatus.UNPROCESSABLE_ENTITY, RefusalCode.INVALID, told, hint)
    return key


async def _look(here: Here, ask_id: str, min_position: int | None) -> tuple[AskRow, Position]:
    async with here.tables(min_position) as tables:
        row = await ask_view.ask(tables.db, ask_id.replace("\0", "\ufffd"))
    if row is None:
        told = f"ask_id: nothing was asked under {shown(ask_id)}"
        hint = "if it was just asked, pass the position of the answer as min_position"
        raise trouble(HTTPStatus.NOT_FOUND, "ask_not_found", told, hint)
    return row, tables.position


async def _asked(here: Here, ask: Grant | Adjust, who: str) -> Asked:
    answer = await here.gate.ask_account(ask, who)
    if isinstance(answer, Refused) and answer.code is RefusalCode.NOT_FOUND:
        raise trouble(HTTPStatus.NOT_FOUND, "account_not_found", answer.message, answer.hint)
    taken = accepted(answer)
    return Asked(
        ask_id=taken.ask_id, account=ask.account, key=ask.key, position=taken.position, repeated=taken.repeated
    )


async def _charge_of(here: Here, account: str, run_id: str) -> Position:
    """Where the run, whose id may be shortened, was charged. Raises `Troubled` where it was not, or another account was."""
    async with here.tables() as tables:
        bill = await _bill_named(tables, run_id)
        commit = await statement.commit_of(tables.db, bill.run_id)
    if bill.account != account:
        raise _not_charged(f"refunds: {bill.run_id} is paid for by {bill.account}, not by {shown(account)}")
    if commit is None:
        settled = bill.state == bill_view.BillState.SETTLED
        told = (
            "never had GPUs: all of it was given back" if settled else "is not settled yet: try again once it has ended"
        )
        raise _not_charged(f"refunds: {bill.run_id} {told}")
    return commit.position


async def _bill_named(tables: Tables, text: str) -> BillRow:
    """The bill of the run whose id is, or alone begins with, `text`. Raises `Troubled`."""
    found = await bill_view.named(tables.db, text)
    if len(found) == 1:
        return found[0]
    if found:
        told = f"refunds: several runs are meant by {shown(text)}: {', '.join(bill.run_id for bill in found[:5])}"
        raise trouble(HTTPStatus.CONFLICT, "ambiguous", told, "give more of it, with its attempt: -1")
    hint = "muster job ID lists its runs, with what each was charged"
    raise trouble(HTTPStatus.NOT_FOUND, "run_not_found", f"refunds: no account pays for a run {shown(text)}", hint)


def _not_charged(told: str) -> Troubled:
    return trouble(HTTPStatus.CONFLICT, "not_charged", told)
