"""A pool of connections to an empty database, and a log in memory that tests write to."""

from collections.abc import AsyncIterator

import pytest

from events.base import START
from events.head import LogFounded
from events.log.memory import MemoryLog
from runtime.clock import ManualClock
from runtime.postgres import Pool, create_pool


@pytest.fixture
async def pool(postgres_dsn: str) -> AsyncIterator[Pool]:
    """Connections to an empty database."""
    made = await create_pool(postgres_dsn, name="test")
    yield made
    await made.close()


@pytest.fixture
def clock() -> ManualClock:
    """The clock of the log."""
    return ManualClock()


@pytest.fixture
async def log(clock: ManualClock) -> MemoryLog:
    """A log that has been founded."""
    made = MemoryLog("main", clock.now)
    await made.append([LogFounded(at=clock.now(), log_id="log-1", cell="main")], after=START)
    return made
