"""Endpoints and their secrets: who wants which events, where, and what proves that they are ours."""

import base64
import hashlib
from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

import msgspec

from events.base import Position
from runtime.postgres import Connection, Pool
from services.webhooks.wanted import Wanted

ENDPOINTS_MAX: Final = 1_000
SECRETS_MAX: Final = 5  # that sign at once: of several rotations in one grace

ALL: Final = "SELECT * FROM webhooks.endpoint ORDER BY created_at, endpoint_id"
# None of them can be removed until the transaction ends: deliveries are about to be put down for them.
ENABLED: Final = "SELECT * FROM webhooks.endpoint WHERE enabled ORDER BY endpoint_id FOR KEY SHARE"
ONE: Final = "SELECT * FROM webhooks.endpoint WHERE endpoint_id = $1"
ONE_LOCKED: Final = "SELECT * FROM webhooks.endpoint WHERE endpoint_id = $1 FOR NO KEY UPDATE"
SOME_ENABLED: Final = "SELECT EXISTS (SELECT FROM webhooks.endpoint WHERE enabled)"
COUNT: Final = "SELECT count(*) FROM webhooks.endpoint"
INSERT: Final = """
INSERT INTO webhooks.endpoint
    (endpoint_id, url, types, teams, accounts, description, after, created_at, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (endpoint_id) DO NOTHING RETURNING endpoint_id
"""
UPDATE: Final = """
UPDATE webhooks.endpoint SET url = $2, types = $3, teams = $4, accounts = $5, description = $6, enabled = $7,
    stopped = $8, after = $9, quiet_until = CASE WHEN $7 AND NOT enabled THEN '-infinity' ELSE quiet_until END
WHERE endpoint_id = $1
"""
STOP: Final = "UPDATE webhooks.endpoint SET enabled = false, stopped = $2 WHERE endpoint_id = $1 AND enabled"
QUIET: Final = "UPDATE webhooks.endpoint SET quiet_until = greatest(quiet_until, $2) WHERE endpoint_id = $1"
DELETE: Final = "DELETE FROM webhooks.endpoint WHERE endpoint_id = $1 RETURNING endpoint_id"
SECRETS: Final = """
SELECT endpoint_id, bytes FROM webhooks.secret WHERE endpoint_id = ANY ($1) AND ends_at > $2 ORDER BY number DESC
"""
ADD_TO_SECRETS: Final = "INSERT INTO webhooks.secret (endpoint_id, bytes, made_at) VALUES ($1, $2, $3)"
END_SECRETS: Final = "UPDATE webhooks.secret SET ends_at = least(ends_at, $2) WHERE endpoint_id = $1"
NEWEST_OF_SECRETS: Final = "SELECT bytes FROM webhooks.secret WHERE endpoint_id = $1 ORDER BY number DESC LIMIT 1"
FORGET_SECRETS: Final = "DELETE FROM webhooks.secret WHERE ends_at <= $1"


def endpoint_id_for(key: str) -> str:
    """The id of the endpoint that was asked for under a key: 65 bits of a hash."""
    digest = hashlib.sha256(f"webhook\0{key}".encode()).digest()
    return "w" + base64.b32encode(digest).decode().lower()[:13]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where to send what."""

    endpoint_id: str
    url: str
    wanted: Wanted
    description: str = ""
    enabled: bool = True
    stopped: str = ""  # why it is not enabled: "gone", "backlog", "operator"
    after: Position  # it gets events behind this position
    quiet_until: datetime | None = None  # nothing is sent to it before
    created_at: datetime
    created_by: str

    def asks_the_same_as(self, other: "Endpoint") -> bool:
        """Whether whoever asked for both may have meant one."""
        return (self.url, self.wanted, self.description) == (other.url, other.wanted, other.description)


def _endpoint(record: Any) -> Endpoint:  # noqa: ANN401 - a row as the driver gives it
    quiet = record["quiet_until"]
    return Endpoint(
        endpoint_id=record["endpoint_id"],
        url=record["url"],
        wanted=Wanted(tuple(record["types"]), tuple(record["teams"]), tuple(record["accounts"])),
        description=record["description"],
        enabled=record["enabled"],
        stopped=record["stopped"],
        after=record["after"],
        quiet_until=quiet if quiet.year > 1 else None,  # minus infinity is the first moment of all
        created_at=record["created_at"],
        created_by=record["created_by"],
    )


async def endpoints(db: Pool | Connection) -> list[Endpoint]:
    """All of them, oldest first."""
    return [_endpoint(record) for record in await db.fetch(ALL)]


async def enabled(conn: Connection) -> list[Endpoint]:
    """Those that get events now; they stay until the caller's transaction ends."""
    return [_endpoint(record) for record in await conn.fetch(ENABLED)]


async def some_enabled(db: Pool | Connection) -> bool:
    """Whether there is anything to do."""
    return bool(await db.fetchval(SOME_ENABLED))


async def count(db: Pool | Connection) -> int:
    """How many there are."""
    return int(await db.fetchval(COUNT))


async def endpoint(db: Pool | Connection, endpoint_id: str, *, lock: bool = False) -> Endpoint | None:
    """The one with this id; as it stays until the caller's transaction ends, where `lock`."""
    record = await db.fetchrow(ONE_LOCKED if lock else ONE, endpoint_id)
    return _endpoint(record) if record is not None else None


async def add(conn: Connection, new: Endpoint, secret: bytes) -> bool:
    """It is there, with its first secret; False where its id was taken before. In a transaction of the caller's."""
    wanted = new.wanted
    lists = (list(wanted.types), list(wanted.teams), list(wanted.accounts))
    added = await conn.fetchval(
        INSERT, new.endpoint_id, new.url, *lists, new.description, new.after, new.created_at, new.created_by
    )
    if added:
        await conn.execute(ADD_TO_SECRETS, new.endpoint_id, secret, new.created_at)
    return bool(added)


async def change(conn: Connection, to: Endpoint) -> None:
    """It is so from now on. One that is enabled again is sent to at once."""
    wanted = to.wanted
    lists = (list(wanted.types), list(wanted.teams), list(wanted.accounts))
    await conn.execute(UPDATE, to.endpoint_id, to.url, *lists, to.description, to.enabled, to.stopped, to.after)


async def stop(conn: Connection, endpoint_id: str, why: str) -> None:
    """It gets nothing any more."""
    await conn.execute(STOP, endpoint_id, why)


async def quieten(conn: Connection, endpoint_id: str, until: datetime) -> None:
    """Nothing is sent to it before."""
    await conn.execute(QUIET, endpoint_id, until)


async def remove(conn: Connection, endpoint_id: str) -> bool:
    """It is gone with its secrets and deliveries; False where there was none."""
    return bool(await conn.fetchval(DELETE, endpoint_id))


async def secrets(db: Pool | Connection, endpoint_ids: Collection[str], now: datetime) -> dict[str, list[bytes]]:
    """Those of each endpoint that sign now, newest first."""
    found: dict[str, list[bytes]] = {endpoint_id: [] for endpoint_id in endpoint_ids}
    for record in await db.fetch(SECRETS, list(endpoint_ids), now):
        if len(found[record["endpoint_id"]]) < SECRETS_MAX:
            found[record["endpoint_id"]].append(bytes(record["bytes"]))
    return found


async def rotate(conn: Connection, endpoint_id: str, secret: bytes, *, now: datetime, until: datetime) -> bool:
    """The new secret signs from now on, those before it until `until`; False where it is the newest already.

    In a transaction of the caller's.
    """
    await conn.fetchrow(ONE_LOCKED, endpoint_id)
    if await conn.fetchval(NEWEST_OF_SECRETS, endpoint_id) == secret:
        return False
    await conn.execute(END_SECRETS, endpoint_id, until)
    await conn.execute(ADD_TO_SECRETS, endpoint_id, secret, now)
    return True


async def forget_secrets(conn: Connection, now: datetime) -> None:
    """Secrets that sign no more are gone."""
    await conn.execute(FORGET_SECRETS, now)
