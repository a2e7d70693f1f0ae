"""Rows between stretches: read once, written together, and in forms that columns can hold."""

from typing import cast

import msgspec
import pytest

from events.base import SlotMask
from projections.tables.rows import Added, Rows, slots_of, text
from runtime.postgres import Connection, create_pool


class Fruit(msgspec.Struct):
    """A row."""

    name: str
    eaten: int


LOAD = "SELECT name, eaten FROM fruit WHERE name = ANY($1)"
WRITE = """
INSERT INTO fruit SELECT * FROM json_populate_recordset(NULL::fruit, $1::json)
ON CONFLICT (name) DO UPDATE SET eaten = EXCLUDED.eaten
"""


def rows() -> Rows[str, Fruit]:
    """Nothing read yet."""
    return Rows(Fruit, lambda row: row.name, load=LOAD, write=WRITE)


@pytest.mark.parametrize(("mask", "slots"), [(1, [0]), (0b1010, [1, 3]), (1 << 62, [62]), (0, [])])
def test_a_mask_names_its_slots_from_the_lowest(mask: int, slots: list[int]) -> None:
    """Bit n is slot n."""
    assert slots_of(SlotMask(mask)) == slots


@pytest.mark.parametrize(("given", "kept"), [("plain", "plain"), ("a\0b", "a\ufffdb"), ("é\ud800", "é?"), ("", "")])
def test_a_text_is_made_fit_for_a_column(given: str, kept: str) -> None:
    """No NUL, no half of a pair; all else stays."""
    assert text(given) == kept


async def test_rows_are_read_once_and_written_when_changed(postgres_dsn: str) -> None:
    """What is kept is not read again; what did not change is not written; what is forgotten is read again."""
    pool = await create_pool(postgres_dsn, name="test", size_max=1)
    try:
        async with pool.acquire() as acquired:
            conn = cast("Connection", acquired)
            await conn.execute("CREATE TABLE fruit (name text PRIMARY KEY, eaten int)")
            await conn.execute("INSERT INTO fruit VALUES ('fig', 1), ('plum', 2)")
            kept = rows()
            await kept.load(conn, ["fig", "fig", "pear"])
            assert (kept.get("fig"), kept.get("plum"), kept.get("pear")) == (Fruit("fig", 1), None, None)

            kept.put(Fruit("pear", 7))
            await conn.execute("UPDATE fruit SET eaten = 9")
            await kept.load(conn, ["fig"])
            assert kept.get("fig") == Fruit("fig", 1), "not read again"
            await kept.write(conn)
            assert [tuple(row) for row in await conn.fetch("SELECT * FROM fruit ORDER BY name")] == [
                ("fig", 9), ("pear", 7), ("plum", 9),
            ]  # fmt: skip

            kept.forget()
            assert len(kept) == 0
            await kept.load(conn, ["fig"])
            assert kept.get("fig") == Fruit("fig", 9)
    finally:
        await pool.close()


async def test_rows_that_are_only_added_are_written_once(postgres_dsn: str) -> None:
    """What a transaction that failed would have written is forgotten, what was written is not written again."""
    pool = await create_pool(postgres_dsn, name="test")
    try:
        async with pool.acquire() as acquired:
            conn = cast("Connection", acquired)
            await conn.execute("CREATE TABLE fruit (name text PRIMARY KEY, eaten int)")
            added: Added[Fruit] = Added(
                write="INSERT INTO fruit SELECT * FROM json_populate_recordset(NULL::fruit, $1)"
            )
            added.add(Fruit("fig", 1))
            added.forget()
            added.add(Fruit("pear", 2))
            added.add(Fruit("plum", 3))
            for _ in range(2):
                await added.write(conn)
            assert [tuple(row) for row in await conn.fetch("SELECT * FROM fruit")] == [("pear", 2), ("plum", 3)]
    finally:
        await pool.close()
