"""The cells that control planes are tried on: a real JetStream, and the log in memory."""

from collections.abc import AsyncIterator, Callable

import pytest

from events.base import START
from events.head import LogFounded
from events.log.append import JetStreamLog
from events.log.memory import MemoryLog
from events.log.port import Log
from events.log.streams import StreamSettings, found
from runtime.nats import Connection
from tests.services.control.cells import CLOCK, Cell


@pytest.fixture
async def real(nats_connection: Connection) -> AsyncIterator[Cell]:
    """A cell on a real server; the auditor reads its log at the end."""
    await found(nats_connection, StreamSettings())
    async with Cell(lambda name: JetStreamLog(nats_connection, source=name)).watched() as cell:
        yield cell


async def _in_memory() -> Callable[[str], Log]:
    log = MemoryLog("main", CLOCK.now)
    await log.append([LogFounded(at=CLOCK.now(), log_id="memory", cell="main")], after=START)
    return lambda _: log


@pytest.fixture
async def memory() -> AsyncIterator[Cell]:
    """A cell in memory; the auditor reads its log at the end."""
    async with Cell(await _in_memory()).watched() as cell:
        yield cell


@pytest.fixture(params=["real", "memory"])
def cell(request: pytest.FixtureRequest) -> Cell:
    """Each in turn."""
    found_cell: Cell = request.getfixturevalue(request.param)
    return found_cell
