"""What a month is charged with, as a file for a billing system: `/v1/credits/export`, read and sent page by page."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse

from events.ask import RefusalCode
from projections.tables import charges, period_view, projection_position
from projections.tables.charges import BEGINNING, Charge, Place, Scope
from runtime.logging import get_logger
from services.api.credits import account_named
from services.api.jobs import read_all
from services.api.parts import EXPORTS_MAX, AtLeast, Here, InHere
from services.api.problems import Troubled, trouble
from services.billing.exact import ZERO, Exact, exact
from services.billing.export import KINDS, File, Format, document, file_of, used
from services.billing.focus import NO_CURRENCY, Sheet
from services.billing.month import Month, Period, month_typed, period, scope
from services.billing.parquet import TooLarge
from services.gate.names import shown

logger = get_logger(__name__)
router = APIRouter(prefix="/v1/credits", tags=["credits"])

PAGE: Final = 500  # charges
RATE_PLACES: Final = 6
RATE_MAX: Final = 1_000_000
CURRENCY: Final = re.compile(r"[A-Z]{3}")


class Asked(NamedTuple):
    """What is exported, and how."""

    format: Format
    period: Period
    scope: Scope
    sheet: Sheet
    late: Sequence[str]  # `charges.late`

    @property
    def chosen(self) -> dict[str, str | None]:
        """Which charges, as metadata say it; None: all."""
        return {"Account": self.scope.account, "Team": self.scope.team}


@router.get("/export", response_class=Response, responses={200: {"description": "The file, by its format."}})
async def export(
    here: InHere,
    *,
    month: Annotated[str, Query(description="A month of UTC: 2026-11.")],
    format: Annotated[Format, Query(description="Of the file.")],  # noqa: A002  # its name in the address
    min_position: AtLeast,
    account: Annotated[str | None, Query(description="Only of this account.")] = None,
    team: Annotated[str | None, Query(description="Only of this team: grants are of none.")] = None,
    currency: Annotated[str, Query(description="ISO 4217: what credits are sold for. With rate.")] = "",
    rate: Annotated[str, Query(description="What a credit costs in that currency: a decimal, 0.40.")] = "",
    provider: Annotated[
        str, Query(min_length=1, max_length=100, pattern=r"\S", description="Whose GPUs.")
    ] = "Musterbook",
) -> Response:
    """What was used, granted and corrected in a month. Of a month that is closed it is the same whenever it is asked for.

    `Muster-Closed` says whether it is, `Muster-Position` up to which position of the log it goes. Rows are ordered by
    account, time and id. An answer that is cut off broke off here: it must not be used.
    """
    chosen = _month(month, here)
    money = _money(format, currency, rate)
    async with here.tables(min_position) as tables:
        if account is not None:
            await account_named(tables.db, account)
        reached = await projection_position.shown(tables.db)
        sheet = Sheet(chosen, provider, here.subjects.cell, reached.log_id, *money)
        months = await period_view.months(tables.db)
        told = period(months, chosen, tables.position)
        what = scope(months, told, account=account, team=team)
        asked = Asked(format, told, what, sheet, await charges.late(tables.db, what))
    kind = KINDS[format]
    headers = {
        "Cache-Control": "no-store",
        "Content-Disposition": f'attachment; filename="musterbook-{month}.{kind.ending}"',
        "Muster-Closed": "true" if told.closed else "false",
        "Muster-Position": str(told.through),
    }
    if format is Format.FOCUS_METADATA:
        return Response(document(told, sheet, asked.chosen), media_type=kind.media_type, headers=headers)
    pieces = _stored(here, asked) if format is Format.OPENMETER else _made(here, asked)
    if here.exports.locked():
        told_busy = f"{EXPORTS_MAX} exports are being sent, no more may be"
        raise trouble(HTTPStatus.SERVICE_UNAVAILABLE, "busy", told_busy, "try again")
    return StreamingResponse(_whole(here, pieces, month), media_type=kind.media_type, headers=headers)


async def _whole(here: Here, pieces: AsyncIterator[bytes], month: str) -> AsyncIterator[bytes]:
    """The pieces; where they break off, so does the answer, and nobody takes it for whole."""
    try:
        async with here.exports:
            async for piece in pieces:
                if piece:
                    yield piece
    except (Troubled, TooLarge) as error:
        logger.warning("export_broken_off", month=month, reason=str(error))
        raise


async def _made(here: Here, asked: Asked) -> AsyncIterator[bytes]:
    """The file made of charges. What takes time is done in a thread, so that other requests do not wait for it."""
    file: File = file_of(asked.format, asked.period, asked.sheet, asked.chosen)
    yield file.begin()
    async for page in _pages(here, asked):
        yield await asyncio.to_thread(file.add, page)
    yield await asyncio.to_thread(file.end)


async def _stored(here: Here, asked: Asked) -> AsyncIterator[bytes]:
    """The events of the records of use, a line each, with the bytes that the log has."""
    async for page in _pages(here, asked):
        told = used(page)
        records = await read_all(here, [charge.position for charge in told])
        if [recorded.id for recorded in records] != [charge.event_id for charge in told]:
            raise trouble(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "log_differs",
                "the log does not have the events that the tables were made from",
                "was the log put back to an earlier state? see docs/operating.md",
            )
        yield b"".join(recorded.document.rstrip() + b"\n" for recorded in records)


async def _pages(here: Here, asked: Asked) -> AsyncIterator[list[Charge]]:
    """All charges, in order. Rows are only ever added, and later ones are left out: pages of different moments fit together."""
    after = BEGINNING
    while True:
        async with here.tables(asked.scope.through) as tables:
            page = await charges.page(tables.db, asked.scope, asked.late, after=after, limit=PAGE)
        if page:
            yield page
        if len(page) < PAGE:
            return
        after = Place(page[-1].account, page[-1].began, page[-1].id)


def _month(text: str, here: Here) -> Month:
    """The month that is meant, which has begun. Raises `Troubled`."""
    found = month_typed(text)
    if found is None:
        raise _wrong(f"month: {shown(text)} is no month: 2026-11 is one")
    if found.start > here.clock.now():
        raise _wrong(f"month: {text} has not begun")
    return found


def _money(made: Format, currency: str, rate: str) -> tuple[str, Exact]:
    """The currency, and what a credit costs in it; an empty one: credits are not sold. Raises `Troubled`."""
    if not currency and not rate:
        return "", ZERO
    if not KINDS[made].money:
        raise _wrong(f"currency: {made.value} events say nothing of money", "leave out currency and rate")
    if not currency or not rate:
        missing, given = ("rate", "currency") if currency else ("currency", "rate")
        raise _wrong(f"{missing}: is missing, and {given} is given", "both, or neither: currency=USD, rate=0.40")
    if not CURRENCY.fullmatch(currency) or currency == NO_CURRENCY:
        raise _wrong(f"currency: must be the three letters of one in ISO 4217, such as USD, not {shown(currency)}")
    found = exact(rate)
    if found is None or found.places > RATE_PLACES or not 0 < found.units <= RATE_MAX * 10**found.places:
        told = f"rate: must be a decimal above 0, up to {RATE_MAX}, with up to {RATE_PLACES} places, not {shown(rate)}"
        raise _wrong(told)
    return currency, found


def _wrong(detail: str, hint: str = "") -> Troubled:
    return trouble(HTTPStatus.UNPROCESSABLE_ENTITY, RefusalCode.INVALID, detail, hint)
