"""`period_view`: months that are closed."""

from events.period import PeriodClosed
from projections.tables import period_view, schema
from projections.tables.period_view import PeriodRow
from runtime.postgres import Pool
from tests.histories import BEGIN
from tests.projections.tables.written import fill, recorded


async def test_months_are_closed_from_when_that_was_first_said(pool: Pool) -> None:
    """In order; said again, nothing changes."""
    records = recorded(PeriodClosed(at=BEGIN, month=month) for month in ("2026-10", "2026-11", "2026-10"))
    async with pool.acquire() as conn:
        for stretches in ([records], [(record,) for record in records]):
            await fill(conn, schema.LIVE, stretches)
            assert await period_view.months(conn) == [
                PeriodRow("2026-10", records[0].at, records[0].position),
                PeriodRow("2026-11", records[1].at, records[1].position),
            ]
