"""`alarm_view`: every alarm, one row each from when it was raised: what it said last, and when it was over."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

import msgspec

from events.alarm import AlarmCleared, AlarmCode, AlarmEvent, AlarmRaised
from events.base import NodeId, Position, Recorded
from projections.cluster.evolve_health import ABOUT_MAX
from projections.tables.rows import as_json
from runtime.postgres import Connection, Pool

LOAD: Final = """
SELECT raised, code, message, hint, node_ids, count, raised_at, cleared_at, position
FROM alarm_view WHERE code = ANY($1) AND cleared_at IS NULL
"""
WRITE: Final = """
INSERT INTO alarm_view SELECT * FROM json_populate_recordset(NULL::alarm_view, $1::json)
ON CONFLICT (raised) DO UPDATE SET
    message = excluded.message, hint = excluded.hint, node_ids = excluded.node_ids, count = excluded.count,
    cleared_at = excluded.cleared_at, position = excluded.position
"""
SHOWN: Final = """
SELECT raised, code, message, hint, node_ids, count, raised_at, cleared_at, position
FROM live.alarm_view WHERE raised < $1 AND (NOT $2 OR cleared_at IS NULL) ORDER BY raised DESC LIMIT $3
"""
EVENTS: Final = (AlarmEvent,)  # that this table shows
PAGE_MAX: Final = 1_000
NEWEST: Final = Position((1 << 63) - 1)


class AlarmRow(msgspec.Struct, gc=False):
    """An alarm, as the table has it."""

    raised: Position  # of its `AlarmRaised`, the first if it was raised again before it was cleared
    code: str  # an `AlarmCode`
    message: str
    hint: str
    node_ids: list[NodeId]  # that it is about; the first few
    count: int  # of all of them
    raised_at: datetime
    cleared_at: datetime | None
    position: Position  # of the last event that changed it


class Alarms:
    """The table: of each code, the one that is raised."""

    def __init__(self) -> None:
        self._raised: dict[AlarmCode, AlarmRow] = {}
        self._known: set[AlarmCode] = set()
        self._changed: dict[Position, AlarmRow] = {}

    def forget(self) -> None:
        """Nothing is kept: the table may have changed."""
        self._raised.clear()
        self._known.clear()
        self._changed.clear()

    async def load(self, conn: Connection, codes: Iterable[AlarmCode]) -> None:
        """Those of these codes that are raised are kept."""
        missing = sorted(set(codes) - self._known)
        if missing:
            self._known.update(missing)
            for record in await conn.fetch(LOAD, missing):
                row = AlarmRow(*record)
                self._raised[AlarmCode(row.code)] = row

    def fold(self, recorded: Recorded) -> None:
        """An alarm is raised, says something else, or is over."""
        event, position = recorded.event, recorded.position
        assert isinstance(event, AlarmEvent)
        row = self._raised.get(event.code)
        if isinstance(event, AlarmRaised):
            node_ids = list(event.node_ids[:ABOUT_MAX])
            raised, at = (position, recorded.at) if row is None else (row.raised, row.raised_at)
            row = AlarmRow(
                raised, event.code, event.message, event.hint, node_ids, event.count, at, None, position
            )  # fmt: skip
            self._raised[event.code] = self._changed[raised] = row
        elif isinstance(event, AlarmCleared) and row is not None:
            del self._raised[event.code]
            row.cleared_at, row.position = recorded.at, position
            self._changed[row.raised] = row

    async def write(self, conn: Connection) -> None:
        """The table has every row that changed."""
        if self._changed:
            await conn.execute(WRITE, as_json(self._changed.values()))
            self._changed.clear()


def keys(records: Iterable[Recorded]) -> Iterator[AlarmCode]:
    """The codes that these records are about."""
    for recorded in records:
        if isinstance(recorded.event, AlarmEvent):
            yield recorded.event.code


async def alarms(
    db: Pool | Connection, *, raised: bool = False, before: Position = NEWEST, limit: int = PAGE_MAX
) -> list[AlarmRow]:
    """Alarms, newest first; those only that are raised, if so wished."""
    return [AlarmRow(*record) for record in await db.fetch(SHOWN, before, raised, min(limit, PAGE_MAX))]
