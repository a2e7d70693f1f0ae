"""Exports of months over HTTP: files for billing systems, the same for ever once the month is closed."""

import asyncio
import io
from datetime import timedelta
from decimal import Decimal
from typing import Any

import httpx
import msgspec
import pytest
from arro3.io import read_parquet

from events.base import AccountId, JobId, Position, RunId, TeamId
from events.credit import UsageRecorded
from events.period import PeriodClosed
from runtime.postgres import create_pool
from services.api.exports import PAGE
from services.billing.focus import NO_CURRENCY
from tests.services.api.cell import CLOCK, Cell
from tests.services.api.paying import BEGAN, HOUR_US, RED, Book, priced
from tests.services.billing.focus_check import problems, rows_of

PATH = "/v1/credits/export"
MARCH = {"month": "2026-03", "format": "focus-csv"}
FORMATS = ("focus-csv", "focus-parquet", "focus-metadata", "lago", "stripe", "openmeter")
USD = {"currency": "USD", "rate": "0.40"}
NANO = 2_500_000_000


def used(number: int, entry: int, account: AccountId = RED, **changed: Any) -> UsageRecorded:
    """A record of an hour in March, of a run of its own."""
    began = BEGAN + timedelta(minutes=number % 50)
    known: dict[str, Any] = {
        "at": began,
        "account": account,
        "entry": entry,
        "usage_id": f"j{number}-1-1",
        "run_id": RunId(f"j{number}-1"),
        "job_id": JobId(f"j{number}"),
        "team": TeamId("blue" if number % 2 else "green"),
        "gpu_type": "h100",
        "gpu_us": HOUR_US,
        "amount_micro": 2_500_000 + number,
        "nano_per_gpu_hour": NANO,
        "began": began,
        "ended": began + timedelta(minutes=3),
    }
    return UsageRecorded(**(known | changed))


async def written(cell: Cell, many: int, **changed: Any) -> Position:
    """So many records of March are in the tables."""
    await priced(cell)
    at = await cell.decide(*(used(number, number + 1, **changed) for number in range(many)))
    await cell.get("/v1/credits/accounts", min_position=at)
    return at


async def exported(cell: Cell, **params: Any) -> httpx.Response:
    """The answer, which is good."""
    response = await cell.http.get(PATH, params=MARCH | params)
    assert response.status_code == 200, response.text
    return response


async def test_a_closed_month_is_the_same_for_ever(cell: Cell) -> None:
    """Byte for byte, in every format, whatever is written later; an open one says that it is."""
    await written(cell, 3)
    assert (await exported(cell)).headers["muster-closed"] == "false"
    closing = await cell.decide(PeriodClosed(at=CLOCK.now(), month="2026-03"))
    wanted = {"min_position": closing}
    before = {made: await exported(cell, format=made, **wanted) for made in FORMATS}
    assert {one.headers["muster-closed"] for one in before.values()} == {"true"}
    assert {one.headers["muster-position"] for one in before.values()} == {str(closing)}
    later = await cell.decide(used(9, 4), used(10, 5, corrects=True, gpu_us=-HOUR_US, amount_micro=-5))
    for made in FORMATS:
        again = await exported(cell, format=made, min_position=later)
        assert again.content == before[made].content
    april = rows_of((await exported(cell, month="2026-04")).content)
    assert [row["x_ChargeId"] for row in april] == ["j9-1-1", "j10-1-1"]
    assert {row["ChargeClass"] for row in april} == {"Correction"}


async def test_a_month_of_several_pages_is_whole(cell: Cell) -> None:
    """Every record once, in order; it adds up to the ledger; each format tells of the same."""
    many = PAGE + 20
    await written(cell, many)
    data = (await exported(cell, **USD)).content
    rows = rows_of(data)
    assert problems(data) == []
    order = [(row["BillingAccountId"], row["ChargePeriodStart"], row["x_ChargeId"]) for row in rows]
    assert order == sorted(order)
    assert len(set(order)) == many
    expected = sum(2_500_000 + number for number in range(many))
    assert sum(int(row["x_AmountMicroCredits"]) for row in rows) == expected
    assert sum(Decimal(row["PricingCurrencyEffectiveCost"]) for row in rows) * 1_000_000 == expected
    assert sum(Decimal(row["EffectiveCost"]) for row in rows) == Decimal(expected) * Decimal("0.4") / 1_000_000

    table = read_parquet(io.BytesIO((await exported(cell, format="focus-parquet", **USD)).content)).read_all()
    assert [one.as_py() for one in table.column("x_ChargeId")] == [row["x_ChargeId"] for row in rows]
    ids = [row["x_EventId"] for row in rows]
    log_id = (await exported(cell, format="focus-metadata")).json()["x_Dataset"]["Log"]
    for made, field, before in (
        ("lago", "transaction_id", f"{log_id}-"),
        ("stripe", "identifier", f"{log_id}-"),
        ("openmeter", "id", ""),
    ):
        lines = (await exported(cell, format=made)).content.splitlines()
        told = [msgspec.json.decode(line) for line in lines]
        assert [one.get("event", one)[field] for one in told] == [f"{before}{one}" for one in ids]


async def test_openmeter_gets_the_bytes_of_the_log(cell: Cell) -> None:
    """The event as it was written, so that its signature, its hash and its id are those of the log."""
    at = await written(cell, 2)
    stored = [await cell.log.read(Position(at - 1)), await cell.log.read(at)]
    lines = (await exported(cell, format="openmeter")).content.splitlines()
    assert lines == [recorded.document for recorded in stored if recorded is not None]
    event = msgspec.json.decode(lines[0])
    assert (event["type"], event["subject"]) == ("musterbook.credit.usage_recorded.v1", "credit.red")
    assert event["data"]["gpu_us"] == HOUR_US


async def test_grants_are_sold_where_credits_have_a_price(cell: Cell) -> None:
    """And are no use: metering systems are told nothing of them."""
    await priced(cell)
    at = await Book(cell).grant(amount="1000")
    month = CLOCK.now().strftime("%Y-%m")
    for money, category, billed in ((USD, "Purchase", "400.0"), ({}, "Credit", "0.0")):
        response = await exported(cell, month=month, min_position=at, **money)
        row = rows_of(response.content)[0]
        assert (row["ChargeCategory"], row["BilledCost"], row["PricingQuantity"]) == (category, billed, "1000.0")
        assert row["x_Reason"] == "order 1"
    for made in ("lago", "stripe", "openmeter"):
        assert (await exported(cell, month=month, format=made)).content == b""


async def test_an_account_or_a_team_is_exported_alone(cell: Cell) -> None:
    """And the metadata say so."""
    await written(cell, 4)
    teams = {row["SubAccountId"] for row in rows_of((await exported(cell, team="blue")).content)}
    assert teams == {"blue"}
    assert len(rows_of((await exported(cell, account="red")).content)) == 4
    told = (await exported(cell, format="focus-metadata", account="red", team="blue", **USD)).json()
    assert told["Schema"]["FocusVersion"] == "1.2"
    assert told["x_Dataset"] == {
        "BillingPeriod": "2026-03",
        "Closed": False,
        "ThroughPosition": told["x_Dataset"]["ThroughPosition"],
        "Provider": "Musterbook",
        "Region": "main",
        "Log": told["x_Dataset"]["Log"],
        "Currency": "USD",
        "RatePerCredit": "0.4",
        "Account": "red",
        "Team": "blue",
    }
    other = await cell.http.get(PATH, params=MARCH | {"account": "ochre"})
    assert (other.status_code, other.json()["code"]) == (404, "account_not_found")


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"month": "2026-3"}, "month: '2026-3' is no month: 2026-11 is one"),
        ({"month": "2999-01"}, "month: 2999-01 has not begun"),
        ({"format": "xlsx"}, "format: must be 'focus-csv'"),
        ({"currency": "USD"}, "rate: is missing, and currency is given"),
        ({"rate": "0.4"}, "currency: is missing, and rate is given"),
        ({"currency": "usd", "rate": "1"}, "currency: must be the three letters"),
        ({"currency": NO_CURRENCY, "rate": "1"}, "currency: must be the three letters"),
        ({"currency": "USD", "rate": "1e2"}, "rate: must be a decimal above 0"),
        ({"currency": "USD", "rate": "0"}, "rate: must be a decimal above 0"),
        ({"currency": "USD", "rate": "0.1234567"}, "with up to 6 places"),
        ({"currency": "USD", "rate": "1", "format": "stripe"}, "stripe events say nothing of money"),
        ({"provider": " "}, "provider"),
    ],
    ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else None,
)
async def test_what_is_typed_wrong_is_told(cell: Cell, params: dict[str, str], told: str) -> None:
    """With the place, and what was meant."""
    response = await cell.http.get(PATH, params=MARCH | params)
    assert (response.status_code, response.json()["code"]) == (422, "invalid")
    assert told in response.json()["detail"]


async def test_what_breaks_off_is_never_taken_for_whole(cell: Cell) -> None:
    """A client sees that the answer was cut: a number has more digits than Parquet holds, and CSV has them all."""
    await written(cell, 1, amount_micro=1 << 61)
    with pytest.raises(httpx.RemoteProtocolError):
        await cell.http.get(PATH, params=MARCH | {"format": "focus-parquet", "currency": "USD", "rate": "1000000"})
    row = rows_of((await exported(cell, currency="USD", rate="1000000")).content)[0]
    assert row["PricingCurrencyEffectiveCost"] == f"{(1 << 61) // 10**6}.{(1 << 61) % 10**6}"


async def test_exports_at_once_are_bounded(cell: Cell) -> None:
    """More are refused, and told to come again; those that are sent go on."""
    await written(cell, 1)
    found = await asyncio.gather(*(cell.http.get(PATH, params=MARCH) for _ in range(12)))
    assert {response.status_code for response in found} <= {200, 503}
    assert all(response.json()["code"] == "busy" for response in found if response.status_code == 503)
    assert (await exported(cell)).status_code == 200


async def test_events_that_the_tables_do_not_know_are_not_sent(cell: Cell, postgres_dsn: str) -> None:
    """A log that was put back, or another one: what is at a position is not what was recorded there."""
    await written(cell, 1)
    pool = await create_pool(postgres_dsn, name="test")
    await pool.execute("UPDATE live.usage_record SET event_id = 'another'")
    await pool.close()
    with pytest.raises(httpx.RemoteProtocolError):
        await cell.http.get(PATH, params=MARCH | {"format": "openmeter"})
