"""`projection_position`: how far into which log the tables of a schema reach. One row, in the transaction of the rest."""

from datetime import datetime
from typing import Final

import msgspec

from events.base import START, Position
from events.codec import EPOCH
from projections.tables import schema
from runtime.fault import Fault
from runtime.postgres import Connection, Pool

READ: Final = "SELECT log_id, position, at, fold FROM projection_position"
WRITE: Final = """
INSERT INTO projection_position (log_id, position, at, fold) VALUES ($1, $2, $3, $4)
ON CONFLICT (one) DO UPDATE SET log_id = excluded.log_id, position = excluded.position, at = excluded.at
"""
SHOWN: Final = "SELECT log_id, position, at, fold FROM live.projection_position"


class Reached(msgspec.Struct, frozen=True):
    """How far the tables reach."""

    log_id: str = ""
    position: Position = START
    at: datetime = EPOCH  # when the record at `position` was stored
    fold: int = schema.FOLD_VERSION  # version of the fold that made the rows


async def read(conn: Connection) -> Reached:
    """How far the tables reach that this connection finds by name."""
    record = await conn.fetchrow(READ)
    return Reached(*record) if record is not None else Reached()


async def write(conn: Connection, reached: Reached) -> None:
    """The tables reach this far."""
    await conn.execute(WRITE, reached.log_id, reached.position, reached.at, reached.fold)


def of_this_version(stored: Reached) -> None:
    """The rows were made by this version of the fold. Raises `Fault`.

    Two versions of it that write the same tables in turn would leave rows that no version makes.
    """
    if stored.fold != schema.FOLD_VERSION:
        hint = (
            "Run `muster rebuild`."
            if stored.fold < schema.FOLD_VERSION
            else "Run that version; this one can be stopped."
        )
        raise Fault(
            "tables_of_another_version",
            f"The tables were made by version {stored.fold} of the fold; this is version {schema.FOLD_VERSION}.",
            hint,
        )


async def shown(db: Pool | Connection) -> Reached:
    """How far the tables reach that readers see: nowhere, where there are none yet."""
    if not await db.fetchval(schema.EXISTS, schema.LIVE):
        return Reached()
    record = await db.fetchrow(SHOWN)
    return Reached(*record) if record is not None else Reached()
