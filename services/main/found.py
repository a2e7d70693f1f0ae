"""What must be there before any part starts: the streams with their first record, and the tables."""

from events.log.port import LogFault
from events.log.streams import StreamSettings, check, found
from projections.tables.schema import LIVE, create
from runtime.fault import Fault
from runtime.nats import Login, connect
from runtime.postgres import create_pool


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


async def migrate(dsn: str) -> None:
    """The tables are there, as this version has them. Raises `Fault`."""
    pool = await create_pool(dsn, name="migrating", size_max=1)
    try:
        async with pool.acquire() as connection:
            await create(connection, LIVE)
    finally:
        await pool.close()
