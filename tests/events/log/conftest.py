"""The fixture `rig`: every log in turn, so that one set of tests holds them all to the same answers."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest

from runtime.embedded.nats import EmbeddedNats
from runtime.embedded.nats_cluster import NatsCluster
from tests.events.log.rigs import Rig, memory_rig, server_rig

KINDS = (
    "memory",
    "one-nats",
    "one-wire",
    pytest.param("three-nats", marks=pytest.mark.cluster),
    pytest.param("three-wire", marks=pytest.mark.cluster),
)


@pytest.fixture(params=KINDS)
def opening(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Rig]:
    """A way to a log, its servers running."""
    servers, _, reader = str(request.param).partition("-")
    if servers == "memory":
        return memory_rig()
    if servers == "one":
        one: EmbeddedNats = request.getfixturevalue("nats_server")
        return server_rig(one.login("system"), reader)
    three: NatsCluster = request.getfixturevalue("nats_cluster")
    return server_rig(three.login("system"), reader, replicas=3)


@pytest.fixture
async def rig(opening: AbstractAsyncContextManager[Rig]) -> AsyncIterator[Rig]:
    """A founded log."""
    async with opening as opened:
        yield opened
