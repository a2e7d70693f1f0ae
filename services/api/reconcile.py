"""The route that reconciles the credits of all accounts."""

from http import HTTPStatus

from fastapi import APIRouter, Response

from runtime.fault import Fault
from services.api.parts import InHere
from services.api.problems import trouble

router = APIRouter(prefix="/v1", tags=["credits"])


@router.post("/credits:reconcile")
async def post_reconcile(here: InHere) -> Response:
    """Compare what the log, the tables and an independent count of all use say of every account. Takes a while.

    `same` says whether they agree to the micro-credit. 409 while another run goes on.
    """
    if here.reconciling.busy:
        raise trouble(HTTPStatus.CONFLICT, "reconciling", "credits are being reconciled", "try again in a minute")
    try:
        said = await here.reconciling.run()
    except Fault as fault:
        raise trouble(HTTPStatus.SERVICE_UNAVAILABLE, fault.code, fault.sentence, fault.hint) from fault
    return Response(said, media_type="application/json")
