"""A restored log goes on in a chapter of its own: no position in it was ever one of what came after the copy."""

from contextlib import aclosing
from pathlib import Path
from typing import Final

from events.base import START, Position, chapter_of
from events.chain import Chain, extended
from events.chapter import RollCause
from events.head import LogFounded
from events.log.append import JetStreamLog
from events.log.port import LogFault, Roll
from runtime.fault import Fault
from runtime.nats import Login, connect
from services.control.chapters import kept
from services.main.local import CLOCK

BY: Final = "restore"


async def renewed(login: Login, cell: str, *, beyond: int) -> Position:
    """The first position of a new chapter, behind all that the log has and behind chapter `beyond`. Raises `Fault`.

    Agents obey nothing older than what they have seen, and nodes are known by positions: those that were written after
    the copy was made, and are lost, must never be met again.
    """
    connection = await connect(login, name="restore")
    try:
        log = JetStreamLog(connection, cell, source=BY)
        chain, log_id = await _read(log)
        opened, beyond = START, max(beyond, chapter_of(chain.position))
        while chapter_of(opened) <= beyond:
            opened = (await log.roll(chain, Roll(log_id, CLOCK.now(), RollCause.RESTORED, BY))).opened
            chain, _ = await _read(log, chain)
    except LogFault as fault:
        raise Fault(fault.code, str(fault), fault.hint) from fault
    else:
        return opened
    finally:
        await connection.close()


def remembered(data_dir: Path) -> int:
    """The newest chapter that control planes and nodes whose data are in the directory have seen; 0: they saw none."""
    seen = [Position(int(file.read_bytes() or b"0")) for file in data_dir.glob("nodes/*/as_of")]
    return max(map(chapter_of, (kept(data_dir / "control").chain.position, *seen)))


async def _read(log: JetStreamLog, chain: Chain | None = None) -> tuple[Chain, str]:
    """The chain of the whole log, and the id of the log where it was read from the first record on."""
    chain, log_id, end = chain or Chain(), "", await log.end()
    async with aclosing(log.follow(chain.position, since=chain.at)) as following:  # type: ignore[type-var]
        async for stretch in following:
            if stretch and isinstance(stretch[0].event, LogFounded):
                log_id = stretch[0].event.log_id
            chain = extended(chain, stretch)
            if chain.position >= end:
                return chain, log_id
    raise AssertionError("following never ends")
