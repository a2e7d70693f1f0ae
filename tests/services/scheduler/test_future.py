"""Plans over time: the earliest moment at which a place is free for long enough, around what is promised."""

from datetime import timedelta

from events.base import JobId
from projections.cluster.job import Shape
from projections.cluster.placing.room import Room
from services.scheduler.future import Future, Taken, expected_end
from services.scheduler.promised import Claim
from tests.clusters import World
from tests.services.scheduler.test_promised import claim, share


def running(**ends_s: int) -> World:
    """Nodes of 4, each with a run that holds all of it until so many seconds from now; 0: nobody knows."""
    world = World(dict.fromkeys(ends_s, 4))
    for name, end_s in ends_s.items():
        world.submit(f"on-{name}", 4, max_runtime_s=end_s, stop_grace_s=0)
        world.rounds()
        world.start(JobId(f"on-{name}"))
        world.rounds()
    return world


def plan(
    world: World, gpus: int, lasts_s: int | None = None, around: tuple[Claim, ...] = (), *, before_s: int | None = None
) -> tuple[float | None, list[str]] | None:
    """Seconds to the start that is planned, and the nodes."""
    future = Future(Room(world.cluster), world.at, ())
    lasts = None if lasts_s is None else timedelta(seconds=lasts_s)
    before = None if before_s is None else world.at + timedelta(seconds=before_s)
    found = future.plan(Shape(gpus), lasts, around=around, before=before)
    if found is None:
        return None
    start_s = None if found.start is None else (found.start - world.at).total_seconds()
    return start_s, [part.node_id for part in found.shares]


def test_a_gang_starts_when_the_last_run_in_its_way_ends() -> None:
    """The first ends that make room for it, in whole nodes."""
    world = running(n1=300, n2=100, n3=200)

    assert plan(world, 1) == (100, ["n2"])
    assert plan(world, 8) == (200, ["n2", "n3"])
    assert plan(world, 12) == (300, ["n1", "n2", "n3"])


def test_no_start_is_made_up_where_an_end_is_unknown() -> None:
    """Nodes whose end is known are used first; with others there is no start."""
    world = running(n1=0, n2=100, n3=0)

    assert plan(world, 4) == (100, ["n2"])
    found = plan(world, 8)
    assert found is not None
    assert (found[0], len(found[1]), "n2" in found[1]) == (None, 2, True)
    assert plan(world, 8, before_s=1_000) is None


def test_a_plan_keeps_clear_of_what_is_promised_to_others() -> None:
    """Before it, if it is gone in time; after it; or never, if nobody knows when the other ends."""
    world = running(n1=100)
    other = claim(world, "other", {"n1": 0b1111}, start_s=200, lasts_s=50)

    assert plan(world, 4, 100, (other,)) == (100, ["n1"])
    assert plan(world, 4, 101, (other,)) == (250, ["n1"])
    assert plan(world, 4, None, (other,)) == (250, ["n1"])
    assert plan(world, 4, 101, (claim(world, "other", {"n1": 0b1111}, start_s=200),)) is None
    assert plan(world, 4, 10, (claim(world, "other", {"n1": 0b1111}, start_s=None),)) is None


def test_a_run_that_should_have_ended_is_given_a_quarter_more() -> None:
    """And a minute at the least: its end stays unknown, but not for ever."""
    world = running(n1=100)
    run = next(iter(world.cluster.runs.values()))
    world.wait(101)
    assert expected_end(run, world.at) == world.at + timedelta(seconds=60)
    assert plan(world, 4) == (60, ["n1"])
    world.wait(299)
    assert expected_end(run, world.at) == world.at + timedelta(seconds=100)


def test_what_the_round_gave_away_ends_too() -> None:
    """A job that was placed a moment ago is in the way until it ends."""
    world = World({"n1": 4})
    room = Room(world.cluster)
    shares = (share(world, "n1", 0b1111),)
    room.take(shares)
    future = Future(room, world.at, (Taken(shares, world.at + timedelta(seconds=30)),))

    found = future.plan(Shape(4), None, around=())
    assert found is not None
    assert found.start == world.at + timedelta(seconds=30)


def test_with_many_ends_before_it_a_start_is_still_found() -> None:
    """Moments are passed over after the first tries: the start may be later then, and it is one."""
    world = World({f"n{number:03d}": 1 for number in range(160)})
    for number in range(160):
        world.submit(f"j{number:03d}", 1, max_runtime_s=number + 1, stop_grace_s=0)
    world.rounds()
    found = plan(world, 150)

    assert found is not None
    assert found[0] is not None
    assert 150 <= found[0] <= 160 + 10
