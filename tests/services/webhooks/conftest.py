"""A sender over a log in memory and a real PostgreSQL, and a receiver."""

from collections.abc import AsyncIterator

import pytest

from events.base import START
from events.head import LogFounded
from events.log.memory import MemoryLog
from runtime.clock import ManualClock
from runtime.postgres import create_pool
from services.webhooks import schema
from tests.services.webhooks.receiver import Receiver, receiving
from tests.services.webhooks.sending import Sender


async def founded(clock: ManualClock, log_id: str) -> MemoryLog:
    """A log with this id."""
    log = MemoryLog("main", clock.now)
    await log.append([LogFounded(at=clock.now(), log_id=log_id, cell="main")], after=START)
    return log


@pytest.fixture
async def sender(postgres_dsn: str) -> AsyncIterator[Sender]:
    """A log that has been founded, and no endpoint yet."""
    clock = ManualClock()
    pool = await create_pool(postgres_dsn, name="test", size_max=12)
    async with pool.acquire() as conn:
        await schema.create(conn)
    yield Sender(await founded(clock, "log-1"), pool, clock)
    pool.terminate()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver that answers 204."""
    async with receiving() as made:
        yield made
