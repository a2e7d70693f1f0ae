"""A cell with an API."""

from collections.abc import AsyncIterator

import pytest

from runtime.embedded.nats import EmbeddedNats
from runtime.nats import Connection
from tests.services.api.cell import Cell, open_cell


@pytest.fixture
async def cell(nats_server: EmbeddedNats, nats_connection: Connection, postgres_dsn: str) -> AsyncIterator[Cell]:
    """A cell with an API, a projector, and nobody who decides."""
    async with open_cell(nats_server, nats_connection, postgres_dsn) as cell:
        yield cell
