"""Routes of credits: the documents that say who pays and what GPUs cost, balances, statements, and what operators ask."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response

from events.ask import SetAccounts, SetPrices
from events.log.port import Unknown
from services.api.jobs import log_away
from services.api.parts import InHere
from services.api.schemas import DocumentSet, StandingDocument
from services.api.standing import DryRun, Over, Trace, Who, set_standing, standing, with_etag

router = APIRouter(prefix="/v1/credits", tags=["credits"])

AccountsBody = Annotated[dict[str, Any], Body(description="All accounts: see /schemas/accounts.json.")]
PricesBody = Annotated[dict[str, Any], Body(description="All price lists: see /schemas/prices.json.")]


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
    return with_etag(await set_standing(here, ask, who, dry_run=dry_run), response)
