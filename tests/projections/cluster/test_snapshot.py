"""Snapshots: what they give back, and that anything doubtful about one gives nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.base import NodeId
from projections.cluster.fitness import FIT
from projections.cluster.snapshot import dump, load
from projections.cluster.state import FOLD_VERSION, Cluster
from tests.clusters import World
from tests.histories import history


def busy() -> Cluster:
    """A cluster with nodes, runs and waiting jobs."""
    return history(seed=7, steps=150).cluster


SAVED = dump(busy())


def test_a_snapshot_gives_back_what_was_saved() -> None:
    """Saved again, it is the same to the last byte."""
    restored = load(SAVED, log_id="test")

    assert restored is not None
    assert dump(restored) == SAVED
    assert (len(restored.nodes), len(restored.jobs) > 0) == (len(busy().nodes), True)


def test_a_node_that_is_fit_is_known_by_that_in_another_life_and_from_a_snapshot() -> None:
    """It is the common case, which is told by identity."""
    world = World({"n1": 2})
    world.join("n1", 2, boot_id="another")
    restored = load(dump(world.cluster), log_id="test")

    assert restored is not None
    assert [cluster.nodes[NodeId("n1")].fitness is FIT for cluster in (world.cluster, restored)] == [True, True]


def test_an_empty_cluster_can_be_saved() -> None:
    """Before anything is read there is no time yet."""
    restored = load(dump(Cluster()), log_id="")

    assert restored is not None
    assert restored.at is None


def test_a_snapshot_of_another_log_is_none() -> None:
    """A wiped log beside an old data directory is noticed."""
    assert load(SAVED, log_id="another") is None


def test_a_snapshot_of_another_version_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold that reads the same log otherwise would go on from where it never was."""
    with monkeypatch.context() as older:
        older.setattr("projections.cluster.snapshot.FOLD_VERSION", FOLD_VERSION - 1)
        saved = dump(World({"n1": 2}).cluster)
        assert load(saved, log_id="test") is not None

    assert load(saved, log_id="test") is None


@given(st.integers(0, len(SAVED) - 1), st.integers(1, 255))
def test_one_damaged_byte_is_enough(place: int, flipped: int) -> None:
    """Also where what is left could be read: a position off by one would be a cluster that never was."""
    damaged = bytearray(SAVED)
    damaged[place] ^= flipped

    assert load(bytes(damaged), log_id="test") is None


@given(st.integers(0, len(SAVED) - 1))
def test_a_snapshot_cut_short_is_none(length: int) -> None:
    """As a full disk leaves it; an empty file too."""
    assert load(SAVED[:length], log_id="test") is None
