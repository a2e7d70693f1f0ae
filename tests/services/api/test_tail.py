"""One reader for all who follow: everyone gets every record once, in order, however far behind they begin."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

from events.base import JobId, Position, Stretch, TeamId
from events.codec import EPOCH
from events.job import JobCancelRequested
from events.log.memory import MemoryLog
from runtime.clock import ManualClock
from services.api.tail import Tail
from tests.fixtures.waiting import until

CLOCK = ManualClock()


def log_of(count: int) -> MemoryLog:
    """A log with as many records."""
    log = MemoryLog("main", CLOCK.now)
    for _ in range(count):
        log.write_raw("intake.red.jx", b"")
    return log


async def write(log: MemoryLog) -> Position:
    """One more record."""
    team, job_id = TeamId("red"), JobId("jx")
    return await log.record([JobCancelRequested(at=CLOCK.now(), team=team, job_id=job_id)])


async def read(tail: Tail, after: Position, count: int) -> list[Position]:
    """The positions of the next records."""
    found: list[Position] = []
    async with asyncio.timeout(10):
        async for stretch in tail.follow(after):
            found += [recorded.position for recorded in stretch]
            if len(found) >= count:
                return found
    return found


async def test_everyone_gets_everything_once() -> None:
    """From the beginning, from the end, before and after what is kept, and before it runs."""
    log = log_of(30)
    positions = [recorded.position for recorded in log.stretch()]
    tail = Tail(log, kept_max=5)
    early = asyncio.create_task(read(tail, Position(0), 60))
    middle = asyncio.create_task(read(tail, positions[14], 45))
    running = asyncio.create_task(tail.run())
    late = asyncio.create_task(read(tail, positions[-1], 30))
    for _ in range(30):
        positions.append(await write(log))
        await asyncio.sleep(0)
    assert await early == positions
    assert await middle == positions[15:]
    assert await late == positions[30:]
    assert len(tail._kept) <= 10
    assert await read(tail, positions[40], 19) == positions[41:]
    running.cancel()


async def test_quiet_is_told() -> None:
    """An empty stretch, so that who streams can say that it still lives."""
    tail = Tail(log_of(1))
    running = asyncio.create_task(tail.run())
    async with asyncio.timeout(10):
        async for stretch in tail.follow(Position(0)):
            if not stretch:
                break
    running.cancel()


async def test_who_has_caught_up_no_longer_reads_alone() -> None:
    """However many follow, the log is read by one."""

    class Counted(MemoryLog):
        readers = 0

        async def follow(self, after: Position, *, since: datetime = EPOCH) -> AsyncIterator[Stretch]:
            """See `port.Reader`."""
            self.readers += 1
            try:
                async for stretch in super().follow(after, since=since):
                    yield stretch
            finally:
                self.readers -= 1

    log = Counted("main", CLOCK.now)
    for _ in range(10):
        await write(log)
    tail = Tail(log)
    running = asyncio.create_task(tail.run())
    following = [asyncio.create_task(read(tail, Position(0), 20)) for _ in range(5)]
    await until(lambda: log.readers == 1, what="one reader is left")
    for _ in range(10):
        await write(log)
    assert [len(await one) for one in following] == [20] * 5
    running.cancel()
