"""What tests of the tables share: histories in any order, and tables filled with them."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from events.base import START, Event, Position, Recorded, position_of
from events.codec import type_of
from events.subjects import family_subject
from projections.tables import schema
from projections.tables.fold import Tables
from projections.tables.verify import KEYS
from runtime.postgres import Connection
from tests.events import drawn
from tests.histories import BEGIN, History


def recorded(events: Iterable[Event]) -> list[Recorded]:
    """The events as a log would hold them, one every 7 ms."""
    return [
        Recorded(
            event, position_of(1, number), BEGIN + timedelta(milliseconds=7 * number), f"id-{number}", _home(event)
        )
        for number, event in enumerate(events, 1)
    ]


def _home(event: Event) -> str:
    return family_subject(event) if hasattr(event, "family") else type_of(type(event))


def lived(seed: int, steps: int) -> History:
    """What happened in a cluster, by its own rules."""
    history = History(seed)
    for _ in range(steps):
        history.step()
    return history


@st.composite
def histories(draw: st.DrawFn, *, steps: int = 80) -> list[Recorded]:
    """What a log could hold, and what it never should: events left out, doubled, in another order, or out of nowhere."""
    events = [record.event for record in lived(draw(st.integers(0, 1_000_000)), steps).records]
    for _ in range(draw(st.integers(0, 12))):
        first, second = draw(st.integers(0, len(events) - 1)), draw(st.integers(0, len(events) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                events.insert(first, events[second])
            case 1:
                events[first], events[second] = events[second], events[first]
            case 2 if len(events) > 1:
                del events[first]
            case _:
                events.insert(first, draw(drawn.events))
    return recorded(events)


def cut(records: Sequence[Recorded], at: Iterable[int]) -> list[tuple[Recorded, ...]]:
    """The records in stretches that end at these places."""
    places = sorted({0, len(records), *(place % (len(records) + 1) for place in at)})
    return [tuple(records[a:b]) for a, b in pairwise(places)]


async def fill(conn: Connection, name: str, stretches: Iterable[Sequence[Recorded]]) -> Tables:
    """The tables of a schema, empty before, hold these stretches."""
    await empty(conn, name)
    tables, after = Tables(name), START
    for stretch in stretches:
        assert await tables.take(conn, tuple(stretch), after=after)
        after = stretch[-1].position
    return tables


async def empty(conn: Connection, name: str) -> None:
    """The schema is there, its tables are empty, and names are found in it."""
    if not await conn.fetchval(schema.EXISTS, name):
        await schema.create(conn, name)
    await schema.enter(conn, name)
    await conn.execute(";".join(f'DELETE FROM "{table}"' for table in KEYS))


async def table(conn: Connection, name: str) -> list[dict[str, Any]]:
    """All rows of a table that is found by name."""
    return [dict(record) for record in await conn.fetch(f'SELECT * FROM "{name}"')]


def last(records: Sequence[Recorded]) -> Position:
    """The position of the last one."""
    return records[-1].position
