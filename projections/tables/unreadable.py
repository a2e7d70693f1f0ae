"""`unreadable`: records of the log that this version cannot read or cannot show, for operators to look at."""

from datetime import datetime
from typing import Final

import msgspec

from events.base import START, Position, Recorded, Stretch, Unreadable
from events.codec import type_of
from projections.tables.rows import as_json, text
from runtime.postgres import Connection, Pool

WRITE: Final = """
INSERT INTO unreadable SELECT * FROM json_populate_recordset(NULL::unreadable, $1::json)
"""
SHOWN: Final = """
SELECT position, at, subject, named, reason FROM live.unreadable WHERE position > $1 ORDER BY position LIMIT $2
"""
PASSED_OVER: Final = """
SELECT DISTINCT ON (named, reason) position, named FROM unreadable WHERE reason <> $1
ORDER BY named, reason, position DESC LIMIT 100
"""
PARKED: Final = "its values are beyond what the tables hold"
COUNTED: Final = "SELECT count(*) FROM live.unreadable"
PAGE_MAX: Final = 1_000


class UnreadableRow(msgspec.Struct, frozen=True):
    """A record that is not shown in any other table but the index."""

    position: Position
    at: datetime
    subject: str
    named: str  # the type it names, if any
    reason: str


async def write(conn: Connection, stretch: Stretch) -> None:
    """The table has the records of the stretch that cannot be read."""
    found = [
        UnreadableRow(recorded.position, recorded.at, text(e.subject), text(e.named), text(e.reason))
        for recorded in stretch
        if isinstance(e := recorded.event, Unreadable)
    ]
    if found:
        await conn.execute(WRITE, as_json(found))


async def park(conn: Connection, recorded: Recorded) -> None:
    """The table has a record whose values no table can hold."""
    named = type_of(type(recorded.event))
    row = UnreadableRow(recorded.position, recorded.at, text(recorded.subject), named, PARKED)
    await conn.execute(WRITE, as_json([row]))


async def records(db: Pool | Connection, *, after: Position = START, limit: int = 100) -> list[UnreadableRow]:
    """The records from `after` on, oldest first."""
    return [UnreadableRow(*record) for record in await db.fetch(SHOWN, after, min(limit, PAGE_MAX))]


async def passed_over(conn: Connection) -> list[tuple[Position, str]]:
    """The last record of each kind that could not be read, and the type that it names."""
    return [(position, named) for position, named in await conn.fetch(PASSED_OVER, PARKED)]


async def count(db: Pool | Connection) -> int:
    """How many there are."""
    return int(await db.fetchval(COUNTED) or 0)
