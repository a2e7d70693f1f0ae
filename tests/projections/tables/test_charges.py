"""What a month is charged with: every record in one month, in one order, whatever size the pages have."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from events.accounts import Account
from events.base import AccountId, Event, Position, Recorded, RunId, TeamId, position_of
from events.credit import AdjustCause, CreditAdjusted, CreditGranted, UsageRecorded
from events.period import PeriodClosed
from events.policy import Bearer
from events.subjects import family_subject
from projections.tables import charges, period_view, schema
from projections.tables.charges import BEGINNING, Charge, ChargeKind, Place, Scope, closed_at
from runtime.postgres import Pool
from tests.projections.tables.paid import BLUE, RED, TEAM, Purse, accounts, asked, paying
from tests.projections.tables.written import fill, recorded

OCTOBER = datetime(2026, 10, 31, 22, tzinfo=UTC)
HOUR = timedelta(hours=1)
GREEN = AccountId("green")


class Written:
    """A log with times that a test chooses."""

    def __init__(self) -> None:
        self.records: list[Recorded] = []

    def add(self, at: datetime, *events: Event) -> Position:
        """The events were stored then."""
        for event in events:
            position = position_of(1, len(self.records) + 1)
            subject = family_subject(event)
            self.records.append(Recorded(event, position, at, f"id-{len(self.records) + 1}", subject))
        return self.records[-1].position

    def grant(self, purse: Purse, at: datetime, amount: int, key: str) -> None:
        """An operator's grant is asked for, and done."""
        ask = asked(key, amount, purse.account)
        done = CreditGranted(**purse.next(), ask_id=ask.ask_id, amount_micro=amount, reason=ask.reason)
        self.add(at, ask, done)

    def adjust(self, purse: Purse, at: datetime, amount: int, key: str, **refund: Any) -> None:
        """An operator's correction, or refund, is asked for, and done."""
        ask = asked(key, -abs(amount), purse.account)
        told: dict[str, Any] = {"cause": AdjustCause.OPERATOR, "reason": "amends", **refund}
        self.add(at, ask, CreditAdjusted(**purse.next(), ask_id=ask.ask_id, amount_micro=amount, **told))


def two_months() -> Written:
    """Of two accounts: use, grants, a refund, what was uncovered; October closes, then more comes of it."""
    log, red, blue = Written(), Purse(RED, at=OCTOBER), Purse(BLUE, run_id=RunId("j2-1"), at=OCTOBER)
    log.add(OCTOBER, accounts(Account(name=RED, queues=(TEAM,)), Account(name=BLUE, queues=(TEAM,))))
    log.grant(blue, OCTOBER, 900, "1")
    log.grant(red, OCTOBER, 1000, "2")
    log.add(OCTOBER, red.reserved(500), red.used(5, 50), blue.reserved(500), blue.used(7, 70))
    red.at += HOUR
    log.add(OCTOBER + HOUR, red.used(6, 60), red.uncovered(3, Bearer.ACCOUNT), red.committed(11, 110))
    committed = red.entry
    log.add(OCTOBER + HOUR, red.paid(committed - 1, 3), red.refunded(489))
    log.add(OCTOBER + 2 * HOUR + HOUR / 60, PeriodClosed(at=OCTOBER, month="2026-10"))
    november = OCTOBER + 3 * HOUR
    log.adjust(red, november, 4, "3", cause=AdjustCause.REFUND, of_entry=committed)
    log.adjust(blue, november, -20, "4")
    correction = blue.used(-2, -20, corrects=True)
    log.add(november, msgspec.structs.replace(correction, at=november))
    log.add(november, blue.used(8, 80))  # began in October, and comes when that is closed: there should be none
    return log


async def everything(pool: Pool, month: str, *, size: int = 1000, **chosen: Any) -> list[Charge]:
    """All charges of a month, read in pages."""
    months = await period_view.months(pool)
    start = datetime.fromisoformat(f"{month}-01T00:00:00+00:00")
    end = (start + timedelta(days=31)).replace(day=1)
    before = (start - timedelta(days=1)).strftime("%Y-%m")
    through = closed_at(months, month) or Position(1 << 50)
    scope = Scope(month=month, start=start, end=end, through=through, after=closed_at(months, before), **chosen)
    late = await charges.late(pool, scope)
    found: list[Charge] = []
    after = BEGINNING
    while page := await charges.page(pool, scope, late, after=after, limit=size):
        assert len(page) <= size
        found += page
        after = Place(page[-1].account, page[-1].began, page[-1].id)
    return found


@pytest.fixture
async def filled(pool: Pool) -> Pool:
    """The tables hold two months."""
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [two_months().records])
    return pool


async def test_a_month_has_its_use_and_its_grants_in_order(filled: Pool) -> None:
    """By account, then by time; what pays a debt is no charge: the record of use says it already."""
    found = await everything(filled, "2026-10")
    assert [(charge.account, charge.kind, charge.amount_micro) for charge in found] == [
        (BLUE, "grant", 900),
        (BLUE, "usage", 7),
        (RED, "grant", 1000),
        (RED, "usage", 5),
        (RED, "usage", 6),
    ]
    assert [charge.id for charge in found if charge.account == RED] == ["0000000001", "j1-1-1", "j1-1-2"]
    assert found[0].reason == "why 1"


async def test_what_comes_later_counts_in_the_month_that_is_open(filled: Pool) -> None:
    """Corrections and refunds in the month in which they are made; each says which time it is about."""
    found = await everything(filled, "2026-11")
    assert [(charge.account, charge.kind, charge.amount_micro) for charge in found] == [
        (BLUE, "usage", -2),
        (BLUE, "usage", 8),
        (BLUE, "adjustment", -20),
        (RED, "refund", 4),
    ]
    refund = found[-1]
    assert (refund.run_id, refund.team, refund.from_at, refund.to_at) == ("j1-1", TEAM, OCTOBER, OCTOBER + 2 * HOUR)
    assert (refund.of_entry, refund.cause, refund.reason) == (6, "refund", "amends")
    assert found[0].corrects
    assert found[0].from_at == OCTOBER
    assert await everything(filled, "2026-12") == []


@pytest.mark.parametrize("size", [1, 2, 3])
async def test_pages_of_any_size_give_the_same(filled: Pool, size: int) -> None:
    """None is left out between two pages, and none comes twice."""
    for month in ("2026-10", "2026-11"):
        assert await everything(filled, month, size=size) == await everything(filled, month)


async def test_charges_are_chosen_by_account_and_team(filled: Pool) -> None:
    """A team has the use of its runs and their refunds; grants are of no team."""
    assert [charge.amount_micro for charge in await everything(filled, "2026-10", account=RED)] == [1000, 5, 6]
    assert [charge.amount_micro for charge in await everything(filled, "2026-10", team=TEAM)] == [7, 5, 6]
    assert [charge.kind for charge in await everything(filled, "2026-11", account=RED, team=TEAM)] == ["refund"]
    assert await everything(filled, "2026-10", team=TeamId("other")) == []


async def test_a_closed_month_stays_as_it_is(filled: Pool) -> None:
    """Whatever is written after it was closed."""
    before = await everything(filled, "2026-10")
    log = two_months()
    more = Purse(GREEN, run_id=RunId("j9-1"), at=OCTOBER)
    log.add(OCTOBER + 9 * HOUR, more.used(1, 10), more.used(-1, -10, corrects=True))
    log.grant(more, OCTOBER, 5, "9")
    async with filled.acquire() as conn:
        await fill(conn, schema.LIVE, [log.records])
    assert await everything(filled, "2026-10") == before
    late = [charge for charge in await everything(filled, "2026-11") if charge.account == GREEN]
    assert sorted(charge.amount_micro for charge in late) == [-1, 1, 5]


async def test_charges_add_up_to_the_ledger(filled: Pool) -> None:
    """Over all months: use to its records, grants to what was granted, to the unit."""
    found = [*await everything(filled, "2026-10"), *await everything(filled, "2026-11")]

    def total(kind: ChargeKind) -> int:
        return sum(charge.amount_micro for charge in found if charge.kind == kind)

    used = await filled.fetchval("SELECT sum(amount_micro)::bigint FROM live.usage_record")
    granted = await filled.fetchval("SELECT sum(granted_micro)::bigint FROM live.account_view")
    adjusted = await filled.fetchval("SELECT sum(adjusted_micro)::bigint FROM live.account_view")
    paid = 3  # a debt
    assert (total(ChargeKind.USAGE), total(ChargeKind.GRANT)) == (used, granted)
    assert total(ChargeKind.REFUND) + total(ChargeKind.ADJUSTMENT) - paid == adjusted
    assert len({charge.id if charge.kind == "usage" else (charge.account, charge.id) for charge in found}) == len(found)


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_each_record_is_in_one_month(pool: Pool, seed: int) -> None:
    """Over logs that nobody chose, with months that close at any time: none is in two, none in none, and all add up."""
    log = recorded(paying(seed, 120).events)
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [log])
    found = [charge for month in range(1, 13) for charge in await everything(pool, f"2026-{month:02}", size=7)]
    expected = {
        one.id: one.event.amount_micro
        for one in log
        if isinstance(one.event, UsageRecorded | CreditGranted)
        or (isinstance(one.event, CreditAdjusted) and one.event.cause is not AdjustCause.UNCOVERED)
    }
    assert len(found) == len(expected)
    assert {charge.event_id: charge.amount_micro for charge in found} == expected


async def test_pages_are_read_from_indexes(filled: Pool) -> None:
    """A page costs what is in it, not what the month holds."""
    start = datetime(2026, 10, 1, tzinfo=UTC)
    scope = ("2026-10", start, start + timedelta(days=31), Position(1 << 50), Position(1 << 50))
    async with filled.acquire() as conn, conn.transaction():
        await conn.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
        plan = await conn.fetch(f"EXPLAIN {charges.PAGE}", *scope, *BEGINNING, None, None, 100, [])
    text = "\n".join(line["QUERY PLAN"] for line in plan)
    assert "usage_record_charged" in text
    assert "credit_entry_charged" in text
