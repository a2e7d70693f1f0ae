"""`POST /v1/credits:reconcile`."""

import asyncio

from runtime.postgres import create_pool
from tests.services.api.cell import Cell


async def test_what_was_compared_is_answered_and_shown_as_metrics(cell: Cell, postgres_dsn: str) -> None:
    """Where all agree, and where somebody changed a row by a micro-credit."""
    submitted = await cell.submit()
    await cell.get("/v1/jobs", min_position=submitted["position"])
    found = (await cell.http.post("/v1/credits:reconcile")).json()
    assert (found["same"], found["alarms"]) == (True, [])
    assert "muster_credits_differ 0.0" in (await cell.http.get("/metrics")).text

    pool = await create_pool(postgres_dsn, name="test", size_max=1)
    ghost = "VALUES ('ghost', '{}', 0, 0, 0, 0, 0, 1, 0, 0, 0, true, false, false, 1)"
    await pool.execute(f"INSERT INTO live.account_view {ghost}")  # our own words
    await pool.close()
    found = (await cell.http.post("/v1/credits:reconcile")).json()
    assert not found["same"]
    assert found["alarms"] == [{"account": "ghost", "what": "balance_micro", "fold": 0, "audit": 0, "tables": 1}]
    assert "muster_credits_differ 1.0" in (await cell.http.get("/metrics")).text


async def test_one_run_at_a_time(cell: Cell) -> None:
    """Whoever asks meanwhile is told to come back."""
    await cell.get("/v1/jobs", min_position=(await cell.submit())["position"])
    first, second = await asyncio.gather(*(cell.http.post("/v1/credits:reconcile") for _ in range(2)))

    assert sorted((first.status_code, second.status_code)) in ([200, 409], [200, 200])
    for response in (first, second):
        if response.status_code == 409:
            assert response.json()["code"] == "reconciling"
