"""The simulated servers answer as the real ones: the log as any log, the desired values as those on NATS."""

import asyncio
from random import Random
from typing import Any, cast

import pytest

from events.log.streams import StreamSettings, found
from runtime.last_values import LastValues
from runtime.nats import Connection
from tests.sim.loop import VirtualLoop
from tests.sim.network import Network
from tests.sim.store import SimValues, Store

SUBJECT = "muster.main.desired.n1"


@pytest.fixture(params=["simulated", "real"])
async def values(request: pytest.FixtureRequest, nats_connection: Connection) -> Any:
    """Last values, of both kinds."""
    if request.param == "real":
        await found(nats_connection, StreamSettings())
        return LastValues(nats_connection, "DESIRED")
    loop = cast("VirtualLoop", asyncio.get_running_loop())  # in good weather any loop will do
    return SimValues(Store(loop, Network(loop, Random(1)), Random(1)), "p")


async def test_a_value_is_written_over_the_one_that_was_seen(values: Any) -> None:
    """And over no other: who saw an older one is told so, and writes nothing."""
    assert await values.get(SUBJECT) == (0, b"")
    first = await values.put(SUBJECT, b'{"one":1}', after=0)
    assert first
    assert await values.put(SUBJECT, b'{"two":2}', after=0) is None
    assert await values.get(SUBJECT) == (first, b'{"one":1}')
    second = await values.put(SUBJECT, b'{"two":2}', after=first)
    assert second > first
    assert await values.get(SUBJECT) == (second, b'{"two":2}')
    assert await values.get("muster.main.desired.n2") == (0, b"")
