"""`period_view`: the months that are closed: all that was used in them is recorded."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

import msgspec

from events.base import Position, Recorded
from events.period import PeriodClosed
from projections.tables.rows import Rows, text
from runtime.postgres import Connection, Pool

LOAD: Final = "SELECT month, closed_at, position FROM period_view WHERE month = ANY($1)"
WRITE: Final = """
INSERT INTO period_view SELECT * FROM json_populate_recordset(NULL::period_view, $1::json)
ON CONFLICT (month) DO NOTHING
"""
SHOWN: Final = "SELECT month, closed_at, position FROM live.period_view ORDER BY month"


class PeriodRow(msgspec.Struct, gc=False):
    """A month that is closed."""

    month: str  # "2026-11", of UTC
    closed_at: datetime
    position: Position  # of its `PeriodClosed`


def rows() -> Rows[str, PeriodRow]:
    """The table, with nothing read yet."""
    return Rows(PeriodRow, lambda row: row.month, load=LOAD, write=WRITE)


def keys(records: Iterable[Recorded]) -> Iterator[str]:
    """The months that these records close."""
    for recorded in records:
        if isinstance(recorded.event, PeriodClosed):
            yield text(recorded.event.month)


def fold(periods: Rows[str, PeriodRow], event: PeriodClosed, recorded: Recorded) -> None:
    """The month is closed, from when that was first said."""
    if periods.get(month := text(event.month)) is None:
        periods.put(PeriodRow(month, recorded.at, recorded.position))


async def months(db: Pool | Connection) -> list[PeriodRow]:
    """The months that are closed, the first one first."""
    return [PeriodRow(*record) for record in await db.fetch(SHOWN)]
