"""A log in memory, endpoints in PostgreSQL, and the part that sends, run for as long as a test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from events.base import Event, JobId, Position, TeamId
from events.job import JobSpec, JobSubmitted
from events.log.memory import MemoryLog
from runtime.clock import ManualClock
from runtime.postgres import Pool
from services.webhooks import deliveries, endpoints, reached
from services.webhooks.address import parse_networks
from services.webhooks.deliveries import Claimed, Delivery
from services.webhooks.endpoints import Endpoint
from services.webhooks.post import Post
from services.webhooks.run import Webhooks
from services.webhooks.wanted import Wanted
from tests.fixtures.waiting import LOOK_EVERY_S, until

SECRET: Final = bytes(range(32))
LOOPBACK: Final = parse_networks(["127.0.0.0/8"])
ALL: Final = Wanted(("musterbook.job.*",))
END: Final = Position((1 << 63) - 1)


class Sender:
    """What a test works with."""

    def __init__(self, log: MemoryLog, pool: Pool, clock: ManualClock) -> None:
        self.log = log
        self.pool = pool
        self.clock = clock
        self.jobs = 0

    async def endpoint(self, url: str, wanted: Wanted = ALL, *, name: str = "w1") -> Endpoint:
        """An endpoint that gets events from now on."""
        async with self.pool.acquire() as conn, conn.transaction():
            after = await reached.from_now(conn, self.log)
            new = Endpoint(
                endpoint_id=name, url=url, wanted=wanted, after=after, created_at=self.clock.now(), created_by="test"
            )
            assert await endpoints.add(conn, new, SECRET)
        return new

    async def submit(self, count: int = 1, team: str = "red") -> list[str]:
        """The ids by which receivers know that so many jobs were submitted."""
        events: list[Event] = []
        for _ in range(count):
            self.jobs += 1
            spec = JobSpec(name="train", command=("true",), gpus=1)
            job_id = JobId(f"j{self.jobs:04d}")
            events.append(
                JobSubmitted(
                    at=self.clock.now(),
                    by="ask.red",
                    team=TeamId(team),
                    job_id=job_id,
                    spec=spec,
                    key="k",
                    request_hash="h",
                )
            )
        last = await self.log.record(events)
        found = [await self.log.read(Position(last - count + n)) for n in range(1, count + 1)]
        return [recorded.id for recorded in found if recorded is not None]

    @asynccontextmanager
    async def running(self, log: MemoryLog | None = None) -> AsyncIterator[asyncio.Task[None]]:
        """The part runs; then it ends as a process does that is killed."""
        async with Post(self.clock, LOOPBACK) as post:
            part = Webhooks(log or self.log, self.pool, post, self.clock, kept=timedelta(days=30))
            task = asyncio.create_task(part.run())
            try:
                yield task
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def claim(self) -> list[Claimed]:
        """The attempts that another process would begin now."""
        async with self.pool.acquire() as conn:
            return await deliveries.claim(conn, self.clock.now(), 1_000)

    async def deliveries(self, name: str = "w1") -> list[Delivery]:
        """What became of the events to an endpoint, newest first."""
        return await deliveries.deliveries(self.pool, name, None, until=END, limit=1_000)

    async def states(self, name: str = "w1") -> dict[str, int]:
        """How many deliveries are in which state."""
        return {state.value: number for state, number in (await deliveries.counts(self.pool, name)).items() if number}

    async def settled(self, count: int, state: str = "delivered", name: str = "w1") -> None:
        """So many deliveries have come to this state."""

        async def are() -> bool:
            return (await self.states(name)).get(state, 0) >= count

        await eventually(are, what=f"{count} {state}")

    async def noted(self, attempts: int) -> None:
        """So many attempts have been made at the newest event, and what came of each is noted."""

        async def is_noted() -> bool:
            found = await self.deliveries()
            return bool(found) and found[0].attempts == attempts and found[0].claimed_until is None

        await eventually(is_noted, what=f"{attempts} attempts")


async def eventually(condition: Callable[[], Awaitable[object]], *, what: str) -> None:
    """The condition holds, of something that has to be asked; else the test fails."""

    async def look() -> None:
        while True:
            if await condition():
                return
            await asyncio.sleep(LOOK_EVERY_S)

    looking = asyncio.create_task(look())
    try:
        await until(looking.done, what=what)
        await looking
    finally:
        looking.cancel()
