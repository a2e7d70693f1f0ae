"""`verify`: whether the live tables are what the log says, row by row."""

from typing import Any, Final

import msgspec

from events.base import START, Position
from events.log.port import Reader
from projections.tables import projection_position, schema
from projections.tables.projector import check
from projections.tables.rebuild import Building, OnProgress
from runtime.postgres import Connection, Pool

KEYS: Final = {
    "projection_position": ("one",),
    "job_view": ("job_id",),
    "run_view": ("run_id",),
    "share_view": ("run_id", "node_id"),
    "node_view": ("node_id",),
    "gpu_view": ("node_id", "slot"),
    "alarm_view": ("raised",),
    "queue_view": ("team",),
    "promise_view": ("job_id", "promised"),
    "account_view": ("account",),
    "credit_entry": ("account", "entry"),
    "usage_record": ("usage_id",),
    "bill_view": ("run_id",),
    "ask_view": ("ask_id",),
    "period_view": ("month",),
    "event_index": ("position",),
    "unreadable": ("position",),
}
DIFFERENCES_MAX: Final = 20  # of each table


class Difference(msgspec.Struct, frozen=True):
    """A row that is not as the log says."""

    table: str
    key: dict[str, Any]
    columns: tuple[str, ...]  # that differ
    live: dict[str, Any] | None  # their values in the live table; None: the row is missing
    rebuilt: dict[str, Any] | None  # their values by the log; None: there is no such row


class Verified(msgspec.Struct, frozen=True):
    """What was compared, and what differs."""

    position: Position  # that both reach
    rows: dict[str, int]  # by table, as rebuilt
    differences: tuple[Difference, ...]  # at most `DIFFERENCES_MAX` a table
    differing: dict[str, int]  # how many rows differ, by table, where any do

    @property
    def same(self) -> bool:
        """Whether the live tables are what the log says."""
        return not self.differing


async def verify(reader: Reader, pool: Pool, *, on_progress: OnProgress | None = None) -> Verified:
    """A comparison of the live tables with new ones, made from the log alone, at one position. Changes nothing.

    Projectors wait only for the last records: the rest is compared in a snapshot. Raises `Fault` where the live tables
    are not this log's.
    """
    async with pool.acquire() as conn, schema.alone(conn):
        await schema.drop(conn, schema.SCRATCH)
        await schema.create(conn, schema.LIVE)
        await schema.create(conn, schema.SCRATCH)
        await schema.enter(conn, schema.SCRATCH)
        await check(reader, await projection_position.shown(conn))
        try:
            return await _at_one_position(conn, Building(reader, schema.SCRATCH, on_progress))
        finally:
            if not conn.is_closed():
                await schema.drop(conn, schema.SCRATCH)


async def _at_one_position(conn: Connection, building: Building) -> Verified:
    async def goal() -> Position:
        return (await projection_position.shown(conn)).position

    await building.near(conn, goal)
    snapshot = conn.transaction(isolation="repeatable_read", readonly=True)
    async with schema.held_still(conn, schema.LIVE):
        await building.catch_up(conn, await goal())
        await snapshot.start()
        await goal()  # the first statement takes the snapshot: from here on projectors may go on
    try:
        return await compare(conn)
    finally:
        if not conn.is_closed():
            await snapshot.rollback()


async def compare(conn: Connection, *, live: str = schema.LIVE, rebuilt: str = schema.SCRATCH) -> Verified:
    """A comparison of all tables of two schemas, which nobody changes meanwhile."""
    rows: dict[str, int] = {}
    differing: dict[str, int] = {}
    differences: list[Difference] = []
    for table in KEYS:
        rows[table] = await conn.fetchval(f'SELECT count(*) FROM "{rebuilt}"."{table}"')  # noqa: S608  # our own names
        found = await conn.fetch(_differing(table, live, rebuilt), DIFFERENCES_MAX)
        if found:
            differing[table] = found[0]["all"]
            differences += [_difference(table, record["l"], record["r"]) for record in found]
    position = await conn.fetchval(f'SELECT position FROM "{rebuilt}".projection_position')  # noqa: S608  # likewise
    return Verified(position or START, rows, tuple(differences), differing)


def _differing(table: str, live: str, rebuilt: str) -> str:
    same_key = " AND ".join(f"l.{column} = r.{column}" for column in KEYS[table])
    order = ", ".join(f"coalesce(l.{column}, r.{column})" for column in KEYS[table])
    return f"""
        SELECT CASE WHEN l IS NOT DISTINCT FROM NULL THEN NULL ELSE to_jsonb(l) END AS l,
               CASE WHEN r IS NOT DISTINCT FROM NULL THEN NULL ELSE to_jsonb(r) END AS r, count(*) OVER () AS all
        FROM "{live}"."{table}" AS l FULL JOIN "{rebuilt}"."{table}" AS r ON {same_key}
        WHERE ROW(l.*) IS DISTINCT FROM ROW(r.*)
        ORDER BY {order} LIMIT $1
    """  # noqa: S608  # our own names


def _difference(table: str, live: str | None, rebuilt: str | None) -> Difference:
    left: dict[str, Any] | None = msgspec.json.decode(live) if live else None
    right: dict[str, Any] | None = msgspec.json.decode(rebuilt) if rebuilt else None
    either = left or right or {}
    columns = tuple(name for name in either if left is None or right is None or left[name] != right[name])
    return Difference(
        table=table,
        key={name: either[name] for name in KEYS[table]},
        columns=columns,
        live={name: left[name] for name in columns} if left is not None else None,
        rebuilt={name: right[name] for name in columns} if right is not None else None,
    )
