"""Accounts and prices over HTTP: documents, what accounts have, and every entry of them."""

from typing import Any

import httpx
import pytest

from services.api.credit_schemas import Entry, Statement
from services.api.credits import month_bounds, next_month
from services.api.problems import Troubled
from tests.services.api.cell import Cell
from tests.services.api.paying import ACCOUNTS, HOUR_US, MICRO, PRICES, Book, priced, put

ACCOUNT = "/v1/credits/accounts/red"
DOCUMENTS = {"/v1/credits/document": ACCOUNTS, "/v1/credits/prices": PRICES}


async def test_documents_are_set_over_the_ones_that_were_read(cell: Cell) -> None:
    """Each with its ETag; what is read can be put; a later writer is told, and a bad one where it is wrong."""
    for path, document in DOCUMENTS.items():
        nothing = await cell.http.get(path)
        assert (nothing.headers["etag"], nothing.json()["by"]) == ('"0"', "")
        await put(cell, path, document, '"0"')
        read = await cell.http.get(path)
        assert (read.json()["by"], await _changed(cell, path, read)) == ("api:ada", False)
        late = await cell.http.put(path, json={}, headers={"If-Match": '"0"'})
        assert late.status_code in {412, 422}
        wrong = await cell.http.put(path, json=document | {"acounts": 1}, headers={"If-Match": "*"})
        assert (wrong.status_code, "acounts" in wrong.json()["detail"]) == (422, True)
        missing = await cell.http.put(path, json=document)
        assert missing.status_code == 428


async def test_types_of_the_cluster_without_a_price_are_told(cell: Cell) -> None:
    """A warning: the file is taken, and nodes may come later."""
    at = await cell.join()
    await cell.get("/v1/nodes", min_position=at)
    warnings = []
    for document in ({"lists": [{"gpu_hour": {"a100": 1}}]}, PRICES):
        done = await cell.http.put("/v1/credits/prices", json=document, headers={"If-Match": "*"})
        warnings.append(done.json()["warnings"])
    assert warnings == [
        ["list from the beginning has no price for h100: jobs that may get one and are paid for wait"], []
    ]  # fmt: skip


async def _changed(cell: Cell, path: str, read: httpx.Response) -> bool:
    response = await cell.http.put(path, json=read.json()["document"], headers={"If-Match": read.headers["etag"]})
    return bool(response.json()["changed"])


async def test_their_schemas_are_there(cell: Cell) -> None:
    """Under the names that the routes give."""
    for name in ("accounts", "prices"):
        assert name in str(await cell.get(f"/schemas/{name}.json")).lower()


async def test_an_account_has_what_its_entries_add_up_to(cell: Cell) -> None:
    """As decimals, and as whole micro-credits; what is lent is told apart."""
    at = await priced(cell)
    book = Book(cell)
    empty = await cell.get(ACCOUNT, min_position=at)
    assert (empty["balance"], empty["headroom"], empty["forecast"]["basis"]) == ("0", "10", "nothing was used yet")
    job = await cell.submit()
    await book.grant(amount="100.5")
    at = await cell.decide(*book.reserved(job["job_id"], 5 * MICRO))

    account = await cell.get(ACCOUNT, min_position=at)
    told = {name: account[name] for name in ("granted", "reserved", "balance", "overdraft", "headroom", "owed")}
    assert told == {
        "granted": "100.5", "reserved": "5", "balance": "95.5", "overdraft": "10", "headroom": "105.5", "owed": "0",
    }  # fmt: skip
    assert (account["balance_micro"], account["reservations"], account["queues"]) == (95_500_000, 1, ["default"])
    listed = await cell.get("/v1/credits/accounts", min_position=at)
    assert [one["account"] for one in listed["accounts"]] == ["red"]
    unknown = await cell.http.get("/v1/credits/accounts/blue")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "account_not_found")


async def test_what_runs_use_makes_the_forecast(cell: Cell) -> None:
    """What is recorded of late, and what goes on."""
    await priced(cell)
    await cell.join()
    book, job = Book(cell), await cell.submit()
    await book.grant()
    await cell.decide(*book.reserved(job["job_id"], 5 * MICRO))
    at = await book.run(job["job_id"], epoch=cell.epoch)
    told = (await cell.get(ACCOUNT, min_position=at))["forecast"]
    assert told["since"] is not None
    assert (told["per_day"], told["days_left"]) == (None, None)
    assert told["basis"].startswith("not enough is known")


async def test_a_statement_has_every_entry(cell: Cell) -> None:
    """Each with what the balance changed by, and was then: changes add up to it; totals are of all that fit."""
    await priced(cell)
    await cell.join()
    at = await _history(cell)
    whole = await cell.get(f"{ACCOUNT}/statement", min_position=at)
    Statement.model_validate(whole, strict=False)  # as its schema says
    assert all(set(entry) == set(Entry.model_fields) for entry in whole["entries"])
    entries = whole["entries"]
    assert [entry["entry"] for entry in entries] == [1, 2, 3, 4, 5, 6]
    assert [(entry["kind"], entry["change"], entry["amount"], entry["balance"]) for entry in entries] == [
        ("granted", "100", "100", "100"),
        ("reserved", "-5", "5", "95"),
        ("usage", "0", "1.25", "95"),
        ("committed", "0", "1.25", "95"),
        ("refunded", "2.5", "2.5", "97.5"),
        ("refunded", "1.25", "1.25", "98.75"),
    ]
    balance = 0
    for entry in entries:
        balance += entry["change_micro"]
        assert entry["balance_micro"] == balance
    assert (entries[4]["cause"], entries[4]["evidence"], entries[4]["gpu_hours"]) == ("interrupted", ["main-42"], "1")
    assert entries[0]["by"] == "api:operator"
    totals = {total["kind"]: (total["entries"], total["change"], total["amount"]) for total in whole["totals"]}
    assert totals["refunded"] == (2, "3.75", "3.75")
    assert totals["committed"] == (1, "0", "1.25")


async def _history(cell: Cell) -> int:
    """A grant, and a run that was interrupted: of 5 credits 1.25 charged, 2.5 waived, 1.25 not used."""
    book, job = Book(cell), await cell.submit()
    await book.grant()
    await cell.decide(*book.reserved(job["job_id"], 5 * MICRO))
    await book.run(job["job_id"], epoch=cell.epoch)
    return await book.lost(job["job_id"], *book.settled(job["job_id"], 5 * MICRO, HOUR_US // 2, HOUR_US))


async def test_a_statement_is_read_page_by_page(cell: Cell) -> None:
    """Whatever the size of pages; by kind, by month, and only the last ones."""
    await priced(cell)
    await cell.join()
    path, at = f"{ACCOUNT}/statement", await _history(cell)
    for limit in (1, 2, 4, 6, 7):
        read, cursor = [], None
        while True:
            page = await cell.get(path, min_position=at, limit=limit, **({"cursor": cursor} if cursor else {}))
            assert (page["totals"] is None) == (cursor is not None)
            read += [entry["entry"] for entry in page["entries"]]
            if (cursor := page["next_cursor"]) is None:
                break
        assert read == [1, 2, 3, 4, 5, 6]
    assert await _entries(cell, kind=["granted", "refunded"]) == [1, 5, 6]
    assert await _entries(cell, last=2) == [5, 6]
    assert await _entries(cell, last=99) == [1, 2, 3, 4, 5, 6]
    assert await _entries(cell, last=2, kind=["granted", "refunded", "reserved"]) == [5, 6]
    assert await _entries(cell, last=2, limit=1) == [5]
    month = (await cell.get(path))["entries"][0]["at"][:7]
    assert await _entries(cell, month=month) == [1, 2, 3, 4, 5, 6]
    assert await _entries(cell, month="2020-01") == []
    assert await _entries(cell, month="2099-12") == []
    page = await cell.get(path, last=2, limit=1)
    assert await _entries(cell, last=2, limit=1, cursor=page["next_cursor"]) == [6]


async def _entries(cell: Cell, **params: Any) -> list[int]:
    page = await cell.get(f"{ACCOUNT}/statement", **params)
    return [entry["entry"] for entry in page["entries"]]


async def test_a_statement_of_nothing_in_particular_is_refused(cell: Cell) -> None:
    """A month, or a kind, that there is none of."""
    at = await priced(cell)
    for params in ({"month": "2026-13"}, {"month": "november"}, {"month": "0000-01"}, {"kind": "given"}, {"last": 0}):
        response = await cell.http.get(f"{ACCOUNT}/statement", params={**params, "min_position": at})
        assert (response.status_code, next(iter(params)) in response.json()["detail"]) == (422, True), params
    for month in ("2026-13", "0000-01"):
        response = await cell.http.get(f"{ACCOUNT}/statement", params={"month": month})
        assert response.json()["detail"] == f"month: '{month}' is no month: 2026-11 is one"
    response = await cell.http.get("/v1/credits/accounts/bl%00ue/statement", params={"min_position": at})
    assert response.status_code == 404


async def test_what_a_month_waits_for_is_told(cell: Cell) -> None:
    """That it is over; else the control plane."""
    nothing = await cell.get("/v1/credits/months", min_position=await priced(cell))
    assert (nothing["closed_through"], nothing["next"], nothing["closed"]) == ("", "", [])
    at = await put(cell, "/v1/credits/document", ACCOUNTS | {"closed_through": "2026-01"})
    told = await cell.get("/v1/credits/months", min_position=at)
    assert (told["next"], told["waits_for"]) == ("2026-01", "the control plane closes it within a round")


@pytest.mark.parametrize(
    ("closed", "wanted", "following"),
    [
        ([], "", ""),
        ([], "2026-11", "2026-11"),
        (["2026-11"], "2026-11", ""),
        (["2026-11"], "2027-03", "2026-12"),
        (["2026-11", "2026-12"], "2027-03", "2027-01"),
        (["2026-11"], "2026-09", ""),
    ],
)
def test_months_are_closed_in_order(closed: list[str], wanted: str, following: str) -> None:
    """From the first that was ever to be."""
    assert next_month(closed, wanted) == following


def test_a_month_is_of_utc() -> None:
    """From its first moment to that of the next one."""
    assert [f"{at:%Y-%m-%d %H:%M %Z}" for at in month_bounds("2026-12")] == [
        "2026-12-01 00:00 UTC",
        "2027-01-01 00:00 UTC",
    ]
    assert [f"{at:%Y-%m-%d}" for at in month_bounds("2028-02")] == ["2028-02-01", "2028-03-01"]
    for none in ("2026-00", "9999-12", "0000-01"):
        with pytest.raises(Troubled):
            month_bounds(none)


async def test_metrics_tell_what_accounts_have(cell: Cell) -> None:
    """Once the tables have it."""
    at = await priced(cell)
    await cell.get("/v1/credits/accounts", min_position=at)
    assert 'muster_credits_balance{account="red"} 0.0' in (await cell.http.get("/metrics")).text
