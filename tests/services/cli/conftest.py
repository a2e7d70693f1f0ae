"""A network for tests of the commands."""

from collections.abc import Iterator

import pytest

from tests.services.cli.network import Network, open_network


@pytest.fixture
def network() -> Iterator[Network]:
    """A server whose answers the test chooses."""
    with open_network() as network:
        yield network
