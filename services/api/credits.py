"""Routes of credits: the documents that say who pays and what GPUs cost, what accounts have, and what they did."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Body, Query, Response

from events.accounts import AccountsSet
from events.ask import SetAccounts, SetPrices
from events.log.port import Unknown
from events.prices import PricesSet
from projections.tables import account_view, period_view, spending, statement
from projections.tables.account_view import AccountRow
from projections.tables.credit_entry import EntryKind, EntryRow
from runtime.postgres import Connection
from services.api.credit_schemas import (
    Account,
    Accounts,
    ClosedMonth,
    Forecast,
    Months,
    Statement,
    StatementOf,
    gpu_hours,
    money,
)
from services.api.forecast import Recorded, Running, forecast, window_of
from services.api.jobs import log_away
from services.api.parts import AtLeast, InHere
from services.api.problems import Troubled, trouble
from services.api.schemas import DocumentSet, StandingDocument
from services.api.standing import DryRun, Over, Trace, Who, capacity_of, set_standing, standing, with_etag
from services.gate.names import shown
from services.gate.prices import checked_prices, unpriced

router = APIRouter(prefix="/v1/credits", tags=["credits"])

ACCOUNTS_EXAMPLE: Final = {"accounts": [{"name": "vision-2026", "queues": ["vision"], "overdraft": 500}]}
PRICES_EXAMPLE: Final = {"lists": [{"gpu_hour": {"h100": 2.5, "*": 1}, "classes": {"urgent": 1.5}, "step": "60s"}]}
AccountsBody = Annotated[
    dict[str, Any], Body(description="All accounts: see /schemas/accounts.json.", examples=[ACCOUNTS_EXAMPLE])
]
PricesBody = Annotated[
    dict[str, Any], Body(description="All price lists: see /schemas/prices.json.", examples=[PRICES_EXAMPLE])
]


@router.get("/document")
async def get_accounts(here: InHere, response: Response) -> StandingDocument:
    """The accounts as one document, with its position as ETag: to be edited, and put back with If-Match."""
    try:
        return standing(await here.gate.documents.accounts(), response)
    except Unknown as error:
        raise log_away() from error


@router.put("/document")
async def put_accounts(
    document: AccountsBody,
    here: InHere,
    response: Response,
    over: Over,
    who: Who,
    *,
    dry_run: DryRun = False,
    traceparent: Trace = "",
) -> DocumentSet:
    """Set who pays for whom, whole, over the document that If-Match names. 412, with its ETag, when another holds by now."""
    ask = SetAccounts(document=document, replaces=over, trace=traceparent)
    return with_etag(await set_standing(here, ask, who, dry_run=dry_run), response)


@router.get("/prices")
async def get_prices(here: InHere, response: Response) -> StandingDocument:
    """The price lists as one document, with its position as ETag."""
    try:
        return standing(await here.gate.documents.prices(), response)
    except Unknown as error:
        raise log_away() from error


@router.put("/prices")
async def put_prices(
    document: PricesBody,
    here: InHere,
    response: Response,
    over: Over,
    who: Who,
    *,
    dry_run: DryRun = False,
    traceparent: Trace = "",
) -> DocumentSet:
    """Set what GPUs cost, whole, over the document that If-Match names. What is reserved keeps its price."""
    ask = SetPrices(document=document, replaces=over, trace=traceparent)
    done = await set_standing(here, ask, who, dry_run=dry_run)
    now = here.clock.now()
    prices = checked_prices(document, now)
    if isinstance(prices, PricesSet):
        done.warnings += unpriced(prices, await capacity_of(here), now)
    return with_etag(done, response)


@router.get("/accounts")
async def list_accounts(here: InHere, min_position: AtLeast) -> Accounts:
    """Every account of the document, and every one that ever had an entry: what it has, and how long that lasts."""
    now = here.clock.now()
    async with here.tables(min_position) as tables:
        found = await _with_forecasts(tables.db, await account_view.accounts(tables.db), now)
    return Accounts(accounts=found, position=tables.position)


@router.get("/accounts/{account}")
async def get_account(account: str, here: InHere, min_position: AtLeast) -> Account:
    """What an account has, what is reserved of that, and how long it lasts at the pace of the last days."""
    now = here.clock.now()
    async with here.tables(min_position) as tables:
        row = await account_named(tables.db, account)
        (found,) = await _with_forecasts(tables.db, [row], now, account=row.account)
    return found


@router.get("/accounts/{account}/statement", response_model=Statement)
async def get_statement(
    account: str, here: InHere, min_position: AtLeast, which: Annotated[StatementOf, Query()]
) -> Response:
    """Every record of an account, the oldest first, each with the balance after it. Pages never shift: it only grows."""
    since, until = month_bounds(which.month) if which.month is not None else (None, None)
    async with here.tables(min_position) as tables:
        row = await account_named(tables.db, account)
        kinds = frozenset(map(EntryKind, which.kind)) if which.kind else None
        stretch = statement.Stretch(row.account, which.cursor + 1, kinds=kinds)
        stretch = await statement.between(tables.db, stretch, since=since, until=until)
        if which.last is not None and not which.cursor:
            stretch = await statement.last_of(tables.db, stretch, which.last)
        found = await statement.page(tables.db, stretch, limit=which.limit + 1)
        totals = None if which.cursor else await statement.totals(tables.db, stretch)
    entries = found[: which.limit]
    body = {
        "account": row.account,
        "entries": [_entry(entry) for entry in entries],
        "totals": [_total(total) for total in totals] if totals is not None else None,
        "next_cursor": entries[-1].entry if len(found) > len(entries) else None,
        "position": tables.position,
    }
    return Response(msgspec.json.encode(body), media_type="application/json")


@router.get("/months")
async def get_months(here: InHere, min_position: AtLeast) -> Months:
    """Which months are closed, which is next, and what that waits for."""
    try:
        held = await here.gate.documents.accounts()
    except Unknown as error:
        raise log_away() from error
    event = held.recorded.event if held.recorded is not None else None
    wanted = event.closed_through if isinstance(event, AccountsSet) else ""
    async with here.tables(min_position) as tables:
        closed = await period_view.months(tables.db)
        month = next_month([row.month for row in closed], wanted)
        waits = await _waits_for(tables.db, month, here.clock.now()) if month else ""
    return Months(
        closed_through=wanted,
        closed=[ClosedMonth(month=row.month, closed_at=row.closed_at) for row in closed],
        next=month,
        waits_for=waits,
        position=tables.position,
    )


async def account_named(db: Connection, name: str) -> AccountRow:
    """The account of this name. Raises `Troubled`."""
    row = await account_view.account(db, name.replace("\0", "\ufffd"))
    if row is None:
        raise no_account(name)
    return row


def no_account(name: str) -> Troubled:
    """What to raise where there is no account of this name."""
    told = f"account: there is no account {shown(name)}"
    hint = "muster credits balance lists them; one that was just set is there at the position of that"
    return trouble(HTTPStatus.NOT_FOUND, "account_not_found", told, hint)


def month_bounds(month: str) -> tuple[datetime, datetime]:
    """When a month begins, and when the next one does, in UTC. Raises `Troubled` for one that no calendar has."""
    try:
        began = datetime.fromisoformat(f"{month}-01").replace(tzinfo=UTC)
        return began, (began + timedelta(days=31)).replace(day=1)
    except (ValueError, OverflowError):
        raise trouble(
            HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", f"month: {shown(month)} is no month: 2026-11 is one"
        ) from None


def next_month(closed: Sequence[str], wanted: str) -> str:
    """The month that is closed next, where months up to `wanted` are to be; empty: none is."""
    if not wanted or (closed and max(closed) >= wanted):
        return ""
    if not closed:
        return wanted
    _, following = month_bounds(max(closed))
    return f"{following:%Y-%m}"


async def _waits_for(db: Connection, month: str, now: datetime) -> str:
    _, end = month_bounds(month)
    if now < end:
        return f"{month} is over at {end:%Y-%m-%d %H:%M} UTC"
    unrecorded = await spending.unrecorded_before(db, end)
    if unrecorded:
        return f"the use of {unrecorded} run{'s' if unrecorded != 1 else ''} up to the end of {month} is being recorded"
    return "the control plane closes it within a round"


async def _with_forecasts(
    db: Connection, rows: Sequence[AccountRow], now: datetime, *, account: str | None = None
) -> list[Account]:
    """The accounts as the API shows them; `account`: where it is one alone."""
    known = {
        one.account: Recorded(one.micro, one.first)
        for one in await spending.recorded(db, window_of(now), account=account)
    }
    going: dict[str, list[Running]] = {}
    for run in await spending.running(db, account=account):
        going.setdefault(run.account, []).append(Running(run.since, run.gpus, run.nano_per_gpu_hour))
    return [_account(row, known.get(row.account, Recorded(0, None)), going.get(row.account, []), now) for row in rows]


def _account(row: AccountRow, recorded: Recorded, going: Sequence[Running], now: datetime) -> Account:
    told = forecast(row.balance_micro, recorded, going, now)
    return Account(
        account=row.account,
        queues=row.queues,
        reservations=row.reservations,
        entry=row.entry,
        listed=row.listed,
        closing=row.closing,
        closed=row.closed,
        position=row.position,
        forecast=Forecast(
            since=told.since,
            days_left=told.days_left,
            basis=told.basis,
            **money(used=told.used_micro, per_day=told.per_day_micro),
        ),
        **money(
            granted=row.granted_micro,
            adjusted=row.adjusted_micro,
            committed=row.committed_micro,
            reserved=row.reserved_micro,
            balance=row.balance_micro,
            overdraft=row.overdraft_micro,
            headroom=row.headroom_micro,
            owed=row.debt_micro,
        ),
    )


def _entry(row: EntryRow) -> dict[str, Any]:
    """The fields of an `Entry`: written as they are, since a page has thousands, and others wait meanwhile."""
    gpu_us = row.gpu_us or 0
    return {
        "account": row.account,
        "entry": row.entry,
        "at": row.at,
        "kind": row.kind,
        "run_id": row.run_id or "",
        "job_id": row.job_id or "",
        "team": row.team or "",
        "reservation": row.reservation or 0,
        "cause": row.cause or "",
        "reason": row.reason or "",
        "by": row.by or "",
        "ask_id": row.ask_id or "",
        "gpu_us": gpu_us,
        "gpu_hours": gpu_hours(gpu_us) if gpu_us else "0",
        "of_entry": row.of_entry or 0,
        "evidence": row.evidence,
        "position": row.position,
        "event_id": row.event_id,
        "gpus": row.gpus or 0,
        "covers_s": row.covers_s or 0,
        "until": row.until,
        **money(change=row.change_micro, balance=row.balance_micro, amount=row.amount_micro),
    }


def _total(total: statement.Total) -> dict[str, Any]:
    """The fields of a `Total`."""
    amounts = money(change=total.change_micro, amount=total.amount_micro)
    return {"kind": total.kind.value, "entries": total.entries, **amounts}
