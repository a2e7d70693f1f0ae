"""What must be there before any part starts: servers that keep what they acknowledge, the log, its policy, the tables."""

from typing import Final

from msgspec.structs import replace

from events.base import START
from events.log.append import JetStreamLog
from events.log.port import Conflict, Log, LogFault
from events.log.streams import StreamSettings, check_servers, found
from events.policy import PolicySet
from projections.tables.schema import LIVE, create
from runtime.fault import Fault
from runtime.nats import Login, connect
from runtime.postgres import create_pool
from services.main.local import CLOCK
from services.webhooks import schema as webhooks

SUSPECT_SHARE: Final = 1 / 3  # of the time until a node is lost
TRIES_MAX: Final = 10  # to set a policy that others set too


async def found_log(login: Login, settings: StreamSettings) -> str:
    """The id of the cell's log, which is there with all that belongs to it. Raises `Fault`."""
    connection = await connect(login, name="founding")
    try:
        return (await found(connection, settings, trial=True)).log_id
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


async def set_lost_after(login: Login, lost_after_s: float) -> None:
    """The log's policy says when a silent node is suspect, and when lost, whatever runs there; all else is as it was.

    Raises `Fault`.
    """
    connection = await connect(login, name="founding")
    try:
        log = JetStreamLog(connection, source="up")
        for _ in range(TRIES_MAX):
            if await _lost_after_set(log, lost_after_s):
                return
        raise Fault("policy_contended", "The policy is being set by others all the time.", "Start again.")
    except LogFault as fault:
        raise Fault(fault.code, str(fault), fault.hint) from fault
    finally:
        await connection.close()


async def _lost_after_set(log: Log, lost_after_s: float) -> bool:
    """Whether the policy says so now; not, where another was set while this one was written."""
    last = await log.last("policy")
    held = last.event if last is not None else PolicySet(at=CLOCK.now())
    if not isinstance(held, PolicySet):
        raise Fault("policy_unreadable", "The log's policy is of another version.", "Set it by muster policy apply.")
    wanted = replace(
        held, suspect_after_s=lost_after_s * SUSPECT_SHARE, lost_after_s=lost_after_s, lost_most_s=lost_after_s
    )
    if last is not None and wanted == held:
        return True
    try:
        position = last.position if last is not None else START
        await log.record([replace(wanted, at=CLOCK.now(), by="up", trace="", replaces=position)])
    except Conflict:
        return False
    return True


async def migrate(dsn: str) -> None:
    """The tables are there, as this version has them. Raises `Fault`."""
    pool = await create_pool(dsn, name="migrating", size_max=1)
    try:
        async with pool.acquire() as connection:
            await create(connection, LIVE)
            await webhooks.create(connection)
    finally:
        await pool.close()
