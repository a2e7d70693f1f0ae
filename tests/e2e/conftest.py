"""Clusters for end-to-end tests: one that a module shares, and one that a test may kill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.user import User, cluster


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A user with a running cluster of two nodes with 8 GPUs each."""
    with cluster(tmp_path_factory.mktemp("user")) as user:
        yield user


@pytest.fixture
def breaker(tmp_path: Path) -> Iterator[User]:
    """Like `user`, with a cluster of their own to break."""
    with cluster(tmp_path) as user:
        yield user
