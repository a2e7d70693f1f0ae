"""Grants and corrections over HTTP: keys, amounts, refunds of runs, and what became of each."""

import asyncio
from typing import Any

import httpx

from events.credit import AskRefused
from events.teller import AdjustmentAsked, GrantAsked
from tests.services.api.cell import CLOCK, Cell
from tests.services.api.paying import HOUR_US, MICRO, RED, Book, priced

GRANT: dict[str, Any] = {"credits": "12.5", "reason": "order 1", "key": "k"}


async def ask(cell: Cell, what: str, body: dict[str, Any], account: str = "red", **headers: str) -> httpx.Response:
    """The answer to a wish."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return await cell.http.post(f"/v1/credits/accounts/{account}/{what}", json=body, headers=given)


async def test_a_grant_is_in_the_log_with_who_asked(cell: Cell) -> None:
    """Once, however often it is asked with its key; with another amount the key is taken."""
    await priced(cell)
    first = await ask(cell, "grants", GRANT, Muster_Operator="ada")
    again = await ask(cell, "grants", {**GRANT, "key": ""}, Idempotency_Key="k")
    assert (first.status_code, first.json()["repeated"]) == (202, False)
    assert (again.status_code, again.json()["repeated"], again.json()["ask_id"]) == (202, True, first.json()["ask_id"])
    other = await ask(cell, "grants", GRANT | {"credits": "13"})
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    recorded = await cell.log.read(first.json()["position"])
    assert recorded is not None
    assert isinstance(recorded.event, GrantAsked)
    assert (recorded.event.by, recorded.event.amount_micro, recorded.event.reason) == ("api:ada", 12_500_000, "order 1")


async def test_a_wish_that_cannot_be_meant_is_refused(cell: Cell) -> None:
    """What is wrong is named, and nothing is written."""
    await cell.get("/v1/credits/accounts", min_position=await priced(cell))
    end = await cell.log.end()
    for what, changed, status, told in (
        ("grants", {"credits": "-5"}, 422, "credits"),
        ("grants", {"credits": "lots"}, 422, "credits"),
        ("grants", {"credits": 12}, 422, "credits"),
        ("grants", {"credits": "0.0000001"}, 422, "credits"),
        ("grants", {"key": ""}, 422, "key"),
        ("grants", {"resaon": "x"}, 422, "resaon"),
        ("adjustments", {"credits": "0"}, 422, "credits"),
        ("adjustments", {"refunds": "j0000000000000-1"}, 404, "refunds"),
    ):
        response = await ask(cell, what, GRANT | changed)
        assert (response.status_code, told in response.json()["detail"]) == (status, True), (
            what,
            changed,
            response.text,
        )
    unknown = await ask(cell, "grants", GRANT, account="rde")
    assert (unknown.status_code, unknown.json()["code"], "red" in unknown.text) == (404, "account_not_found", True)
    assert await cell.log.end() == end


async def test_what_became_of_a_wish_can_be_waited_for(cell: Cell) -> None:
    """Until it is answered, or for as long as was said."""
    await priced(cell)
    asked = (await ask(cell, "grants", GRANT)).json()
    path, at = f"/v1/credits/asks/{asked['ask_id']}", asked["position"]
    waits = await cell.get(path, min_position=at, wait_s=0.05)
    assert (waits["state"], waits["amount"], waits["by"], waits["entry"]) == ("asked", "12.5", "api:operator", 0)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(cell.get(path, wait_s=15))
        await cell.decide(Book(cell).granted(asked["ask_id"], 12_500_000))
    done = waiting.result()
    assert (done["state"], done["entry"], done["code"]) == ("done", 1, "")
    account = await cell.get("/v1/credits/accounts/red", min_position=done["position"])
    assert account["balance"] == "12.5"
    unknown = await cell.http.get("/v1/credits/asks/nothing")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "ask_not_found")


async def test_a_refusal_says_why(cell: Cell) -> None:
    """As the control plane put it."""
    await priced(cell)
    asked = (await ask(cell, "adjustments", {"credits": "-50", "reason": "wrong", "key": "k"})).json()
    recorded = await cell.log.read(asked["position"])
    assert recorded is not None
    assert isinstance(recorded.event, AdjustmentAsked)
    refused = AskRefused(
        at=CLOCK.now(), account=RED, entry=1, ask_id=recorded.event.ask_id, code="not_covered", message="has 10"
    )
    at = await cell.decide(refused)
    told = await cell.get(f"/v1/credits/asks/{asked['ask_id']}", min_position=at)
    assert (told["state"], told["code"], told["message"]) == ("refused", "not_covered", "has 10")
    assert (told["kind"], told["amount_micro"]) == ("adjustment", -50_000_000)


async def test_what_a_run_was_charged_is_given_back_by_its_name(cell: Cell) -> None:
    """Once it is settled, on the account that paid; the log says which commit is meant."""
    await priced(cell)
    await cell.join()
    book, job = Book(cell), await cell.submit()
    run = f"{job['job_id']}-1"
    await book.grant("grant")
    await cell.decide(*book.reserved(job["job_id"], 5 * MICRO))
    at = await book.run(job["job_id"], epoch=cell.epoch)
    await cell.get("/v1/credits/accounts/red", min_position=at)
    body = {"credits": "1", "reason": "slow disk", "key": "k", "refunds": run}
    early = await ask(cell, "adjustments", body)
    assert (early.status_code, "is not settled yet" in early.json()["detail"]) == (409, True)

    at = await book.lost(job["job_id"], *book.settled(job["job_id"], 5 * MICRO, HOUR_US // 2, HOUR_US))
    await cell.get("/v1/credits/accounts/red", min_position=at)
    other = await ask(cell, "adjustments", body, account="blue")
    assert (other.status_code, "is paid for by red" in other.json()["detail"]) == (409, True)
    done = await ask(cell, "adjustments", body)
    assert done.status_code == 202, done.text
    for number, short in enumerate((run[:5], f"{run[:5]}-1", job["job_id"], f"{job['job_id']}-")):
        again = await ask(cell, "adjustments", body | {"refunds": short, "key": f"short {number}", "credits": "0.1"})
        assert again.status_code == 202, again.text
    for none in (f"{run[:5]}-2", "-1", "\0", "é", f"{run}0"):
        assert (await ask(cell, "adjustments", body | {"refunds": none, "key": "none"})).status_code == 404, none
    recorded = await cell.log.read(done.json()["position"])
    assert recorded is not None
    assert isinstance(recorded.event, AdjustmentAsked)
    assert (recorded.event.refunds_entry, recorded.event.refunds_micro) == (4, 1_250_000)
