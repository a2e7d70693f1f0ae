"""Alarms as a table: one row each, from when it was raised until it is over."""

from events.alarm import AlarmCleared, AlarmCode, AlarmRaised
from events.base import NodeId, position_of
from projections.tables import alarm_view, schema
from projections.tables.alarm_view import AlarmRow
from runtime.postgres import Pool
from tests.histories import BEGIN
from tests.projections.tables.written import fill, recorded

BREAKER, NETWORK = AlarmCode.BREAKER, AlarmCode.NETWORK_SUSPECTED


def raised(code: AlarmCode, message: str) -> AlarmRaised:
    """About more nodes than are named."""
    return AlarmRaised(at=BEGIN, code=code, message=message, node_ids=(NodeId("n1"),) * 30, count=30)


def cleared(code: AlarmCode) -> AlarmCleared:
    """It is over."""
    return AlarmCleared(at=BEGIN, code=code)


async def test_an_alarm_is_one_row_until_it_is_over(pool: Pool) -> None:
    """Said again, it is the same one; raised after its end, another; cleared without having been raised, none."""
    events = [
        cleared(BREAKER),
        raised(BREAKER, "first"),
        raised(NETWORK, "many"),
        raised(BREAKER, "again"),
        cleared(BREAKER),
        raised(BREAKER, "later"),
    ]

    def summed(rows: list[AlarmRow]) -> list[tuple[int, str, str, bool]]:
        return [(row.raised - position_of(1, 0), row.code, row.message, row.cleared_at is None) for row in rows]

    for cut in range(len(events) + 1):  # what is kept between stretches, and what is read again
        async with pool.acquire() as conn:
            stretches = [part for part in (recorded(events)[:cut], recorded(events)[cut:]) if part]
            await fill(conn, schema.LIVE, stretches)
        rows = await alarm_view.alarms(pool)
        assert summed(rows) == [
            (6, "breaker", "later", True),
            (3, "network_suspected", "many", True),
            (2, "breaker", "again", False),
        ]
        assert (len(rows[0].node_ids), rows[0].count) == (20, 30)
    assert summed(await alarm_view.alarms(pool, raised=True)) == [
        (6, "breaker", "later", True),
        (3, "network_suspected", "many", True),
    ]
    assert [row.message for row in await alarm_view.alarms(pool, before=position_of(1, 6), limit=1)] == ["many"]
