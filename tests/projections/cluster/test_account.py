"""What teams used: exact, from the log's times, whatever the moments at which it is looked at."""

import pytest

from events.base import TeamId
from projections.cluster.account import past_gpu_s
from tests.clusters import World

HALF_LIFE_S = 3_600


def used(world: World) -> float:
    """GPU-seconds of the team, by now."""
    return past_gpu_s(world.cluster, TeamId("t"), world.at)


def test_use_counts_half_after_each_half_life() -> None:
    """Eight GPUs for a time that is short against the half-life, then nothing."""
    world = World({"n1": 8})
    world.policy(half_life_s=HALF_LIFE_S)
    job = world.submit("one", 8)
    world.round()
    world.wait(1)
    world.finish(job)
    assert used(world) == pytest.approx(8, rel=1e-3)

    world.wait(HALF_LIFE_S)
    assert used(world) == pytest.approx(4, rel=1e-3)


def test_long_use_comes_to_a_limit() -> None:
    """What is used without end counts as much as half-life / ln 2 of it."""
    world = World({"n1": 8})
    world.policy(half_life_s=HALF_LIFE_S)
    world.submit("one", 2)
    world.round()
    world.wait(50 * HALF_LIFE_S)

    assert used(world) == pytest.approx(2 * HALF_LIFE_S / 0.693_147, rel=1e-4)


def test_it_is_the_same_however_often_it_is_brought_up_to_date() -> None:
    """The integral over two intervals is that over both: other jobs of the team that come and go change nothing of it."""
    plain, busy = World({"n1": 8}), World({"n1": 8})
    for world in (plain, busy):
        world.policy(half_life_s=HALF_LIFE_S)
        world.submit("one", 2)
        world.round()
    for _ in range(10):
        plain.wait(360)
        busy.wait(360)
        job = busy.submit(f"brief-{busy.at}", 1)
        busy.round()
        busy.finish(job)

    assert used(busy) == pytest.approx(used(plain))


def test_use_counts_from_when_the_policy_asks_for_it() -> None:
    """Of what runs already, too: not from its next change, and not from its start."""
    world = World({"n1": 8})
    world.submit("one", 8)
    world.round()
    world.wait(1_000)
    world.policy(half_life_s=HALF_LIFE_S)
    assert used(world) == 0

    world.wait(1)

    assert used(world) == pytest.approx(8, rel=1e-3)


def test_another_half_life_holds_from_when_it_is_set() -> None:
    """What was counted by the old one stays as it is."""
    world = World({"n1": 8})
    world.policy(half_life_s=HALF_LIFE_S)
    job = world.submit("one", 8)
    world.round()
    world.wait(1)
    world.finish(job)
    world.wait(HALF_LIFE_S)

    world.policy(half_life_s=10 * HALF_LIFE_S)

    assert used(world) == pytest.approx(4, rel=1e-3)
    world.wait(10 * HALF_LIFE_S)
    assert used(world) == pytest.approx(2, rel=1e-3)


def test_without_a_half_life_the_past_is_forgotten() -> None:
    """And does not come back with it."""
    world = World({"n1": 8})
    world.policy(half_life_s=HALF_LIFE_S)
    job = world.submit("one", 8)
    world.round()
    world.wait(100)
    world.finish(job)

    world.policy()
    assert used(world) == 0
    world.policy(half_life_s=HALF_LIFE_S)

    assert used(world) == 0


def test_a_policy_that_keeps_the_half_life_changes_nothing_of_the_past() -> None:
    """Whatever else it says."""
    world = World({"n1": 8})
    world.policy(half_life_s=HALF_LIFE_S)
    world.submit("one", 8)
    world.round()
    world.wait(100)
    before = used(world)

    world.policy(half_life_s=HALF_LIFE_S, promises=4)

    assert used(world) == before


def test_the_oldest_use_comes_to_nothing() -> None:
    """And not to something that is no number."""
    world = World({"n1": 8})
    world.policy(half_life_s=1)
    job = world.submit("one", 8)
    world.round()
    world.finish(job)
    world.wait(10**8)

    assert used(world) == 0
