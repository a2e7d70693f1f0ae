"""Every round is bounded: what is beyond the limit is the next round's, and nothing is left out for good."""

from itertools import count

from events.base import NodeId
from events.job import GpusEarmarked, JobHeld, JobPlaced, Priority
from events.policy import PlacePolicy
from projections.cluster.holds import HELD_MAX
from services.control.round import PASSED_OVER_MAX, decide_all
from services.health.silent import DECIDED_MAX as NODES_MAX
from services.lifecycle.decide import DECIDED_MAX as RUNS_MAX
from services.scheduler.decide import PLACED_MAX, SEARCHES_MAX
from tests.clusters import World, names


def full(world: World, jobs: int) -> None:
    """That many one-GPU jobs are admitted."""
    for number in range(jobs):
        world.submit(f"j{number:05d}", 1)


def test_placements_and_holds_of_a_round_are_bounded() -> None:
    """First a round of placements, then the rest; then words for those that wait, some a round."""
    nodes = {f"n{number:03d}": 16 for number in range(-(-(PLACED_MAX + 16) // 16))}
    world = World(nodes)
    full(world, PLACED_MAX + 16 + HELD_MAX + 16)
    free = world.free
    said = [world.round() for _ in range(6)]

    placed = [sum(isinstance(e, JobPlaced) for e in events) for events in said]
    held = [sum(isinstance(e, JobHeld) for e in events) for events in said]
    assert max(placed) == PLACED_MAX
    assert sum(placed) == free
    assert max(held) == HELD_MAX
    assert sum(held) == len(world.cluster.jobs) - free
    assert said[-1] == []
    world.assert_sound()


def test_jobs_that_were_admitted_over_many_rounds_are_placed_over_some() -> None:
    """No GPU came for long, then all at once: a round gives away so many and no more."""
    world = World()
    full(world, PLACED_MAX + 16)
    world.rounds()
    for number in range(-(-(PLACED_MAX + 16) // 16)):
        world.join(f"n{number:03d}", 16)

    placed = [sum(isinstance(e, JobPlaced) for e in world.round()) for _ in range(3)]

    assert placed == [PLACED_MAX, 16, 0]


def test_runs_that_end_together_are_settled_over_some_rounds() -> None:
    """A thousand a round, all in the end."""
    nodes = {f"n{number:03d}": 16 for number in range(-(-(RUNS_MAX + 50) // 16))}
    world = World(nodes)
    full(world, RUNS_MAX + 50)
    world.rounds()
    for job in list(world.cluster.jobs):
        world.start(job)
        world.end(job)
        world.release(job)

    rounds = [names(world.round()).count("JobSucceeded") for _ in range(3)]

    assert rounds == [RUNS_MAX, 50, 0]


def test_nodes_that_go_silent_together_are_judged_over_some_rounds() -> None:
    """And none twice."""
    world = World({f"n{number:05d}": 1 for number in range(NODES_MAX + 10)})
    world.policy(silent_percent=0)
    silent = dict.fromkeys(map(NodeId, list(world.cluster.nodes)), 100.0)

    assert [len(world.round(silent)) for _ in range(3)] == [NODES_MAX, 10, 0]


def test_the_decision_record_stays_small_with_any_number_of_shapes() -> None:
    """The largest groups are kept: 64 KiB are never reached."""
    world = World({"n1": 1})
    numbers = count(2)
    for _ in range(PASSED_OVER_MAX + 20):
        world.submit(f"j{next(numbers)}", next(numbers))
    record, *_ = decide_all(world.cluster, world.tick())

    assert len(record.passed_over) == PASSED_OVER_MAX  # type: ignore[attr-defined]


def test_searches_for_victims_are_bounded_in_a_round() -> None:
    """Every preemptor has its search, over as many rounds as it takes."""
    jobs = SEARCHES_MAX + 5
    world = World({"n1": jobs})
    world.policy(min_runtime_s=0)
    for number in range(jobs):
        world.submit(f"low{number:02d}", 1, priority=Priority.LOW)
    world.rounds()
    for number in range(jobs):
        world.submit(f"urgent{number:02d}", 1, priority=Priority.URGENT)

    rounds = [names(world.round()).count("GpusEarmarked") for _ in range(3)]

    assert rounds == [SEARCHES_MAX, 5, 0]
    world.assert_sound()


def test_jobs_that_no_victims_help_take_no_search_from_those_behind() -> None:
    """Each node keeps one run, so that no gang gets a whole one: the counts say that at once."""
    world = World({f"n{number:02d}": 2 for number in range(2 * SEARCHES_MAX)})
    world.policy(min_runtime_s=0, promises=0, placement=PlacePolicy.SPREAD)
    for priority in (Priority.URGENT, Priority.LOW):
        for number in range(2 * SEARCHES_MAX):
            world.submit(f"{priority}{number:02d}", 1, priority=priority)
        world.rounds()
    for nodes in range(1, SEARCHES_MAX + 1):
        world.submit(f"gang{nodes:02d}", 2 * nodes, nodes=nodes, gpus_per_node=2, priority=Priority.URGENT)
    world.submit("small", 1, priority=Priority.URGENT)

    assert [event.job_id for event in world.round() if isinstance(event, GpusEarmarked)] == ["small"]
