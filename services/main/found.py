"""What must be there before any part starts: servers that keep what they acknowledge, the log, its policy, the tables."""

from typing import Final

from msgspec.structs import replace

from events.log.append import JetStreamLog
from events.log.port import LogFault
from events.log.streams import StreamSettings, check, check_servers, found
from events.policy import PolicySet
from projections.tables.schema import LIVE, create
from runtime.fault import Fault
from runtime.nats import Login, connect
from runtime.postgres import create_pool
from services.main.local import CLOCK

SUSPECT_SHARE: Final = 1 / 3  # of the time until a node is lost


async def found_log(login: Login, settings: StreamSettings) -> str:
    """The id of the cell's log, which is there with all that belongs to it. Raises `Fault`."""
    connection = await connect(login, name="founding")
    try:
        await found(connection, settings)
        return (await check(connection, settings, trial=True)).log_id
    except LogFault as fault:
        raise Fault(fault.code, str(fault), fault.hint) from fault
    finally:
        await connection.close()


async def fit_servers(login: Login) -> None:
    """The server writes to disk before it acknowledges, and takes large batches. `login` is of the system account.

    Raises `Fault`.
    """
    connection = await connect(login, name="founding")
    try:
        await check_servers(connection)
    except LogFault as fault:
        raise Fault(fault.code, str(fault), fault.hint) from fault
    finally:
        await connection.close()


async def set_policy(login: Login, *, lost_after_s: float) -> None:
    """The log's policy says when a silent node is lost, and when it is suspect. Raises `Fault`."""
    connection = await connect(login, name="founding")
    try:
        log = JetStreamLog(connection, source="up")
        policy = PolicySet(at=CLOCK.now(), suspect_after_s=lost_after_s * SUSPECT_SHARE, lost_after_s=lost_after_s)
        last = await log.last("policy")
        if last is None or replace(policy, at=last.event.at) != last.event:
            await log.record([policy])
    except LogFault as fault:
        raise Fault(fault.code, str(fault), fault.hint) from fault
    finally:
        await connection.close()


async def migrate(dsn: str) -> None:
    """The tables are there, as this version has them. Raises `Fault`."""
    pool = await create_pool(dsn, name="migrating", size_max=1)
    try:
        async with pool.acquire() as connection:
            await create(connection, LIVE)
    finally:
        await pool.close()
