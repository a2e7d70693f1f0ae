"""`usage_record`: what was used, by month and account, in log order."""

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from events.base import START
from events.credit import UsageRecorded
from projections.tables import schema, usage_record
from projections.tables.usage_record import month_of
from runtime.postgres import Pool
from tests.projections.tables.paid import BLUE, RED, RUN, Purse
from tests.projections.tables.written import fill, recorded

OCTOBER = datetime(2026, 10, 31, 23, tzinfo=UTC)
NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)


def _used() -> list[UsageRecorded]:
    """Of two accounts in two months, with a correction that is made later than what it corrects."""
    red, blue = Purse(RED, at=OCTOBER), Purse(BLUE, run_id=RUN.replace("1", "2"), at=OCTOBER)  # type: ignore[arg-type]
    events = [red.used(5, 50), blue.used(7, 70), red.used(6, 60)]
    correction = msgspec.structs.replace(red.used(-6, -60, corrects=True), at=NOVEMBER)
    blue.at = NOVEMBER
    return [*events, correction, blue.used(8, 80)]


@pytest.fixture
async def filled(pool: Pool) -> Pool:
    """The tables hold them."""
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded(_used())])
    return pool


async def test_records_are_found_by_month_and_account(filled: Pool) -> None:
    """A record counts in the month that its CloudEvents time lies in: of a correction, when that was made."""
    every = await usage_record.usage(filled)
    assert [row.amount_micro for row in every] == [5, 7, 6, -6, 8]
    paged, after = [], START
    while page := await usage_record.usage(filled, after=after, limit=2):
        paged += page
        after = page[-1].position
    assert paged == every
    assert [row.month for row in every if row.account == RED] == ["2026-10", "2026-10", "2026-11"]
    correction = every[3]
    assert (correction.corrects, correction.cause, correction.gpu_us) == (True, "interrupted", -60)
    assert (correction.began, correction.counted_at, correction.month) == (OCTOBER, NOVEMBER, "2026-11")
    assert (correction.usage_id, correction.entry, correction.prices) == (f"{RUN}-3", 3, 7)
    assert correction.at == recorded(_used())[3].at
    assert correction.event_id == "id-4"


async def test_records_of_a_run_are_its_own(filled: Pool) -> None:
    """Not those of a run whose id begins alike."""
    async with filled.acquire() as conn:
        longer = Purse(run_id=f"{RUN}0").used(1, 1)  # type: ignore[arg-type]
        await fill(conn, schema.LIVE, [recorded([*_used(), msgspec.structs.replace(longer, entry=9)])])
    assert [row.usage_id for row in await usage_record.usage_of(filled, RUN)] == [f"{RUN}-{n}" for n in (1, 2, 3)]


async def test_an_id_is_recorded_once(pool: Pool) -> None:
    """What was said first under it holds, whoever says it again."""
    purse = Purse()
    first, second = purse.used(5, 50), msgspec.structs.replace(purse.used(6, 60), usage_id=f"{RUN}-1")
    records = recorded([first, second])
    async with pool.acquire() as conn:
        for stretches in ([records], [records[:1], records[1:]]):
            await fill(conn, schema.LIVE, stretches)
            assert [row.amount_micro for row in await usage_record.usage(conn)] == [5]


def test_a_month_is_that_of_utc() -> None:
    """Wherever the clock hung that wrote the time."""
    assert month_of(datetime(2026, 11, 1, 0, 30, tzinfo=timezone(timedelta(hours=1)))) == "2026-10"
    assert month_of(datetime(987, 1, 1, tzinfo=UTC)) == "0987-01"
