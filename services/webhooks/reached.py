"""How far deliveries reach into which log, and the steps by which they go on: every wanted event once, never one again."""

from datetime import datetime
from typing import Any, Final, NamedTuple

from events.base import START, Position, Stretch, spelled
from events.log.port import Reader
from projections.tables.projector import log_id_of
from runtime.fault import Fault
from runtime.postgres import Connection, Pool
from services.webhooks import deliveries, endpoints

READ: Final = "SELECT log_id, position FROM webhooks.reader"
LOCKED: Final = "SELECT log_id, position FROM webhooks.reader FOR UPDATE"
WRITE: Final = "UPDATE webhooks.reader SET log_id = $1, position = $2"


class Reached(NamedTuple):
    """How far deliveries reach."""

    log_id: str = ""  # empty: there has never been an endpoint
    position: Position = START


async def reached(db: Pool | Connection) -> Reached:
    """How far deliveries reach now."""
    return _reached(await db.fetchrow(READ))


async def _locked(conn: Connection) -> Reached:
    """How far deliveries reach, which nobody changes until the caller's transaction ends."""
    return _reached(await conn.fetchrow(LOCKED))


def _reached(record: Any) -> Reached:  # noqa: ANN401 - a row as the driver gives it
    return Reached(record["log_id"], record["position"])


async def check(log: Reader, there: Reached) -> str:
    """The id of the log, from which deliveries may go on. Raises `Fault` for another one, and for one that was cut."""
    log_id = await log_id_of(log)
    if there.log_id and there.log_id != log_id:
        raise Fault(
            "webhooks_of_another_log",
            f"Webhooks were sent from log {there.log_id!r}; this is log {log_id!r}. Nothing is sent.",
            "Connect to the other log; or, if this one is right, drop the schema webhooks and set up endpoints anew.",
        )
    end = await log.end()
    if end < there.position:
        raise Fault(
            "webhooks_ahead",
            f"Webhooks reach position {spelled(there.position)}, but the log ends at {spelled(end)}: its end was lost. "
            "Nothing is sent.",
            "Restore the log; or, if what was lost stays lost, drop the schema webhooks and set up endpoints anew.",
        )
    return log_id


async def begin(conn: Connection, log: Reader) -> Reached | None:
    """From where to read on; None while no endpoint wants anything. Raises `Fault`.

    What came while there was none is left out: nobody is to get it.
    """
    async with conn.transaction():
        there = await _locked(conn)
        wanting = await endpoints.enabled(conn)
        if not wanting:
            await check(log, there)
            return None
        start = max(there.position, min(endpoint.after for endpoint in wanting))
        log_id = await check(log, there._replace(position=start))
        await conn.execute(WRITE, log_id, start)
        return Reached(log_id, start)


async def take(conn: Connection, there: Reached, stretch: Stretch, now: datetime) -> Reached | None:
    """How far deliveries reach with this stretch, of which all that is wanted waits to be sent. Both or neither.

    None, and nothing done, where they do not reach as far as `there`, or farther: another process went on.
    """
    async with conn.transaction():
        if await _locked(conn) != there:
            return None
        await deliveries.add(conn, stretch, await endpoints.enabled(conn), now)
        after = there._replace(position=stretch[-1].position)
        await conn.execute(WRITE, *after)
        return after


async def from_now(conn: Connection, log: Reader) -> Position:
    """The position behind which an endpoint gets events that is made, or enabled, in the caller's transaction.

    Until that is committed nothing is read on, so that the endpoint misses nothing behind it. Raises `Fault`.
    """
    there = await _locked(conn)
    log_id = await check(log, there)
    if not there.log_id:
        await conn.execute(WRITE, log_id, there.position)
    return max(await log.end(), there.position)
