"""Deliveries: what is to be sent to whom, who is sending it now, and what became of it."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from events.base import Position, Stretch
from events.codec import type_of
from runtime.postgres import Connection, Pool
from services.webhooks import endpoints
from services.webhooks.endpoints import Endpoint
from services.webhooks.schedule import Answer, State, Verdict
from services.webhooks.signature import webhook_id_of
from services.webhooks.testing import TEST_TYPE

LEASE_S: Final = 60.0  # of an attempt; then whoever makes it is taken for dead, and it is made again
AT_ONCE_MAX: Final = 4  # attempts at one endpoint, of all processes together
PROBLEM_MAX: Final = 300  # characters

ADD: Final = """
INSERT INTO webhooks.delivery (endpoint_id, webhook_id, position, event_type, state, next_try, made_at)
SELECT *, 'waiting', $5, $5 FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[])
ON CONFLICT (endpoint_id, webhook_id) DO NOTHING
"""
# An attempt that is under way is left alone: what it brings is what was asked for.
ADD_AGAIN: Final = """
INSERT INTO webhooks.delivery AS d (endpoint_id, webhook_id, position, event_type, state, next_try, made_at)
SELECT *, 'waiting', $5, $5 FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[])
ON CONFLICT (endpoint_id, webhook_id) DO UPDATE SET state = 'waiting', attempts = 0, next_try = excluded.next_try,
    claim = NULL, claimed_until = NULL
WHERE d.claimed_until IS NULL OR d.claimed_until <= excluded.next_try
"""
ADD_TEST: Final = """
INSERT INTO webhooks.delivery
    (endpoint_id, webhook_id, position, event_type, document, state, next_try, made_at)
VALUES ($1, $2, 0, $3, $4, 'waiting', $5, $5)
"""
# Whoever claims holds the endpoint meanwhile, so that all processes together keep to `AT_ONCE_MAX`.
READY: Final = """
SELECT e.endpoint_id FROM webhooks.endpoint e, LATERAL (
    SELECT min(next_try) AS since FROM webhooks.delivery d
    WHERE d.endpoint_id = e.endpoint_id AND d.state = 'waiting' AND d.next_try <= $1
) due
WHERE e.enabled AND e.quiet_until <= $1 AND due.since IS NOT NULL
ORDER BY due.since FOR NO KEY UPDATE OF e SKIP LOCKED
"""
CLAIM: Final = """
UPDATE webhooks.delivery d
SET claim = nextval('webhooks.claim'), claimed_until = $2, next_try = $2, attempts = d.attempts + 1
FROM (
    SELECT due.endpoint_id, due.webhook_id FROM unnest($3::text[]) WITH ORDINALITY e (id, turn), LATERAL (
        SELECT endpoint_id, webhook_id FROM webhooks.delivery
        WHERE endpoint_id = e.id AND state = 'waiting' AND next_try <= $1
        ORDER BY next_try, position
        LIMIT greatest(0, $4 - (SELECT count(*) FROM webhooks.delivery
                                WHERE endpoint_id = e.id AND claimed_until > $1))
    ) due ORDER BY e.turn LIMIT $5
) chosen, webhooks.endpoint p
WHERE d.endpoint_id = chosen.endpoint_id AND d.webhook_id = chosen.webhook_id AND p.endpoint_id = d.endpoint_id
RETURNING d.endpoint_id, d.webhook_id, d.position, d.document, d.attempts, d.claim, p.url
"""
NOTE: Final = """
UPDATE webhooks.delivery SET state = $4, next_try = coalesce($5, next_try), claim = NULL, claimed_until = NULL,
    last_status = $6, last_problem = $7, last_at = $8
WHERE endpoint_id = $1 AND webhook_id = $2 AND claim = $3
"""
PUT_BACK: Final = """
UPDATE webhooks.delivery SET attempts = attempts - 1, next_try = $4, claim = NULL, claimed_until = NULL
WHERE endpoint_id = $1 AND webhook_id = $2 AND claim = $3
"""
DISABLE: Final = """
UPDATE webhooks.delivery SET state = 'disabled', last_at = coalesce(last_at, $2)
WHERE endpoint_id = $1 AND state = 'waiting'
"""
LISTED: Final = """
SELECT webhook_id, position, event_type, state, attempts, next_try, claimed_until, last_status, last_problem, last_at,
    made_at
FROM webhooks.delivery WHERE endpoint_id = $1 AND ($2::text IS NULL OR state = $2) AND position <= $3
ORDER BY position DESC, made_at DESC LIMIT $4
"""
COUNTS: Final = "SELECT state, count(*) FROM webhooks.delivery WHERE endpoint_id = $1 GROUP BY state"
FORGET: Final = """
DELETE FROM webhooks.delivery d USING (
    SELECT endpoint_id, webhook_id FROM webhooks.delivery WHERE state <> 'waiting' AND last_at < $1 LIMIT $2
) old WHERE d.endpoint_id = old.endpoint_id AND d.webhook_id = old.webhook_id RETURNING 1
"""
OVERFULL: Final = """
SELECT endpoint_id FROM webhooks.endpoint e WHERE enabled AND (
    SELECT count(*) FROM (SELECT FROM webhooks.delivery WHERE endpoint_id = e.endpoint_id AND state = 'waiting' LIMIT $1) w
) >= $1
"""


class Claimed(NamedTuple):
    """An attempt that is ours to make."""

    endpoint_id: str
    webhook_id: str
    position: Position
    document: bytes | None  # of a test
    attempts: int  # with this one
    claim: int
    url: str
    secrets: Sequence[bytes]  # that sign it, newest first


class Delivery(msgspec.Struct, frozen=True):
    """What became of sending one event to one endpoint."""

    webhook_id: str
    position: Position
    event_type: str
    state: State
    attempts: int
    next_try: datetime
    claimed_until: datetime | None  # of the attempt that is being made
    last_status: int | None
    last_problem: str
    last_at: datetime | None
    made_at: datetime


async def add(conn: Connection, stretch: Stretch, wanting: Sequence[Endpoint], now: datetime) -> int:
    """How many deliveries there are for a stretch; those that are new wait."""
    return await _add(conn, ADD, stretch, wanting, now)


async def add_again(conn: Connection, stretch: Stretch, wanting: Sequence[Endpoint], now: datetime) -> int:
    """How many deliveries there are for a stretch; all wait, also those that were made before."""
    return await _add(conn, ADD_AGAIN, stretch, wanting, now)


async def _add(conn: Connection, statement: str, stretch: Stretch, wanting: Sequence[Endpoint], now: datetime) -> int:
    found = [
        (endpoint.endpoint_id, webhook_id_of(recorded.id), recorded.position, type_of(type(recorded.event)))
        for recorded in stretch
        for endpoint in wanting
        if recorded.position > endpoint.after and recorded.id and endpoint.wanted.wants(recorded.event)
    ]
    if found:
        await conn.execute(statement, *(list(column) for column in zip(*found, strict=True)), now)
    return len(found)


async def add_test(conn: Connection, endpoint_id: str, webhook_id: str, *, document: bytes, now: datetime) -> None:
    """An event that nothing happened for waits to be sent."""
    await conn.execute(ADD_TEST, endpoint_id, webhook_id, TEST_TYPE, document, now)


async def claim(conn: Connection, now: datetime, most: int) -> list[Claimed]:
    """Attempts to make now, which nobody else makes until `LEASE_S` from now: at most `most`."""
    async with conn.transaction():
        ready = [record["endpoint_id"] for record in await conn.fetch(READY, now)]
        if not ready:
            return []
        until = now + timedelta(seconds=LEASE_S)
        found = await conn.fetch(CLAIM, now, until, ready, AT_ONCE_MAX, most)
        signing = await endpoints.secrets(conn, {record["endpoint_id"] for record in found}, now)
        return [Claimed(**dict(record), secrets=signing[record["endpoint_id"]]) for record in found]


async def note(conn: Connection, claimed: Claimed, answer: Answer, verdict: Verdict, now: datetime) -> None:
    """What became of an attempt is kept, unless another was begun since."""
    async with conn.transaction():
        if verdict.quiet_until is not None:  # endpoints before deliveries, as in a claim: nobody waits for each other
            await endpoints.quieten(conn, claimed.endpoint_id, verdict.quiet_until)
        if verdict.gone:
            await endpoints.stop(conn, claimed.endpoint_id, "gone")
        await conn.execute(
            NOTE, claimed.endpoint_id, claimed.webhook_id, claimed.claim, verdict.state, verdict.next_try,
            answer.status, answer.problem[:PROBLEM_MAX], now,
        )  # fmt: skip
        if verdict.gone:
            await conn.execute(DISABLE, claimed.endpoint_id, now)


async def put_back(conn: Connection, claimed: Claimed, at: datetime) -> None:
    """An attempt that came to nothing on our side is made later, and does not count."""
    await conn.execute(PUT_BACK, claimed.endpoint_id, claimed.webhook_id, claimed.claim, at)


async def deliveries(
    db: Pool | Connection, endpoint_id: str, state: str | None, *, until: Position, limit: int
) -> list[Delivery]:
    """Those to one endpoint up to a position, newest events first."""
    found = await db.fetch(LISTED, endpoint_id, state, until, limit)
    return [_delivery(record) for record in found]


def _delivery(record: Any) -> Delivery:  # noqa: ANN401 - a row as the driver gives it
    return Delivery(**(dict(record) | {"state": State(record["state"])}))


async def counts(db: Pool | Connection, endpoint_id: str) -> dict[State, int]:
    """How many deliveries to an endpoint are in each state."""
    found = {record["state"]: int(record["count"]) for record in await db.fetch(COUNTS, endpoint_id)}
    return {state: found.get(state, 0) for state in State}


async def forget(conn: Connection, before: datetime, most: int) -> int:
    """How many deliveries that ended before that are gone now: at most so many."""
    return len(await conn.fetch(FORGET, before, most))


async def overfull(conn: Connection, waiting_max: int) -> list[str]:
    """The endpoints that so many deliveries wait for."""
    return [record["endpoint_id"] for record in await conn.fetch(OVERFULL, waiting_max)]
