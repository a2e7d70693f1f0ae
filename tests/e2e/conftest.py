"""Clusters for end-to-end tests: one that a module shares, and one that a test may kill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.main.background import end_leftovers
from tests.e2e.user import User


def _cluster(folder: Path) -> Iterator[User]:
    user = User(folder)
    try:
        user.up()
        yield user
    finally:
        if user.alive:
            user.down()
        end_leftovers(user.data_dir)


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A user with a running cluster of two nodes with 8 GPUs each."""
    yield from _cluster(tmp_path_factory.mktemp("user"))


@pytest.fixture
def breaker(tmp_path: Path) -> Iterator[User]:
    """Like `user`, with a cluster of their own to break."""
    yield from _cluster(tmp_path)
