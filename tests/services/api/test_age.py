"""Answers that were read from the tables say how old they are."""

import asyncio
from datetime import timedelta

from services.api.age import BEHIND, POSITION
from tests.services.api.cell import Cell


async def test_a_read_says_at_which_position_the_tables_were(cell: Cell) -> None:
    """And that they show all; what reads no tables says nothing of them."""
    answer = await cell.submit("one")
    response = await cell.http.get("/v1/jobs", params={"min_position": answer["position"]})
    assert int(response.headers[POSITION]) >= answer["position"]
    assert float(response.headers[BEHIND]) < 5
    assert BEHIND not in (await cell.http.get("/healthz")).headers


async def test_tables_that_stand_still_are_as_old_as_what_they_lack(cell: Cell) -> None:
    """Counted from when the first record was stored that they do not show, by the API's clock."""
    before = await cell.submit("before")
    await cell.get("/v1/jobs", min_position=before["position"])
    assert cell.projector is not None
    cell.projector.cancel()
    await asyncio.wait({cell.projector})
    await cell.submit("after")
    shown = await cell.http.get("/v1/jobs")
    while float(shown.headers[BEHIND]) == 0:
        shown = await cell.http.get("/v1/jobs")
    assert float((await cell.http.get("/v1/jobs")).headers[BEHIND]) >= float(shown.headers[BEHIND])
    assert timedelta(seconds=float(shown.headers[BEHIND])) < timedelta(seconds=60)
