"""Replays: a range of the log, sent to one endpoint again because somebody asked for it."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from events.base import START, Position, Stretch
from events.log.port import Reader
from runtime.postgres import Connection, Pool
from services.webhooks import deliveries, endpoints

SHOWN_MAX: Final = 10

ADD: Final = """
INSERT INTO webhooks.replay (endpoint_id, after, until, reached, made_at, made_by) VALUES ($1, $2, $3, $2, $4, $5)
ON CONFLICT (endpoint_id) WHERE ended_at IS NULL DO NOTHING RETURNING *
"""
UNFINISHED: Final = """
SELECT * FROM webhooks.replay WHERE ended_at IS NULL ORDER BY replay_id LIMIT 1 FOR UPDATE SKIP LOCKED
"""
REACHED: Final = "UPDATE webhooks.replay SET reached = $2, matched = matched + $3, ended_at = $4 WHERE replay_id = $1"
LISTED: Final = "SELECT * FROM webhooks.replay WHERE endpoint_id = $1 ORDER BY replay_id DESC LIMIT $2"


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """That an endpoint gets again what it wants of a range."""

    replay_id: int = 0  # of one that is only asked for
    endpoint_id: str
    after: Position
    until: Position  # with the event at it
    reached: Position = START  # up to which wanted events wait again
    matched: int = 0
    made_at: datetime
    made_by: str
    ended_at: datetime | None = None


def _replay(record: Any) -> Replay:  # noqa: ANN401 - a row as the driver gives it
    return Replay(**dict(record))


async def ask(conn: Connection, new: Replay) -> Replay | None:
    """The replay that will be made; None while another to the same endpoint is not done."""
    record = await conn.fetchrow(ADD, new.endpoint_id, new.after, new.until, new.made_at, new.made_by)
    return _replay(record) if record is not None else None


async def replays(db: Pool | Connection, endpoint_id: str) -> list[Replay]:
    """The last ones to an endpoint, newest first."""
    return [_replay(record) for record in await db.fetch(LISTED, endpoint_id, SHOWN_MAX)]


async def step(conn: Connection, log: Reader, now: datetime) -> bool:
    """Whether there was a replay to go on with: what its endpoint wants of one more stretch waits to be sent again."""
    async with conn.transaction():
        record = await conn.fetchrow(UNFINISHED)
        if record is None:
            return False
        replay = _replay(record)
        stretch = await _next(log, replay.reached)
        reached = stretch[-1].position if stretch else replay.reached
        wanting = await endpoints.endpoint(conn, replay.endpoint_id)
        assert wanting is not None, "a replay goes with its endpoint"
        chosen = tuple(recorded for recorded in stretch if recorded.position <= replay.until)
        matched = await deliveries.add_again(conn, chosen, [replace(wanting, after=START)], now)
        ended = now if reached >= replay.until else None
        await conn.execute(REACHED, replay.replay_id, min(reached, replay.until), matched, ended)
        return True


async def _next(log: Reader, after: Position) -> Stretch:
    """What follows in the log; empty where nothing came within a moment."""
    async with aclosing(cast("AsyncGenerator[Stretch, None]", log.follow(after))) as following:
        return await anext(following)
