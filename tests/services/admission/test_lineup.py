"""Queued jobs over all teams in one order."""

from services.admission.lineup import Lineup
from services.admission.till import Till
from services.admission.unpaid import Unpaid
from tests.clusters import World


def lineup(world: World) -> Lineup:
    """The jobs that are tried, as the world is now."""
    return Lineup(world.cluster, world.at, Unpaid(world.cluster, Till(world.cluster, world.tick())))


def order(world: World) -> list[str]:
    """All jobs, as they come."""
    lines = lineup(world)
    jobs: list[str] = []
    while lines:
        jobs.append(lines.first()[1].job_id)
        lines.advance()
    return jobs


def test_lines_are_merged_by_the_order_of_the_policy() -> None:
    """Here by age, over teams and shapes."""
    world = World({"n1": 8})
    for number, (team, gpus) in enumerate((("b", 1), ("a", 2), ("b", 2), ("a", 1))):
        world.submit(f"j{number}", gpus, team=team)

    assert order(world) == ["j0", "j1", "j2", "j3"]


def test_a_line_that_is_dropped_is_passed_over_whole() -> None:
    """The others go on."""
    world = World({"n1": 8})
    for number, gpus in enumerate((1, 2, 1, 2)):
        world.submit(f"j{number}", gpus)
    lines = lineup(world)
    lines.drop()

    first = lines.first()[1].job_id
    lines.advance()

    assert [first, lines.first()[1].job_id] == ["j1", "j3"]


def test_jobs_whose_back_off_is_over_stand_at_their_old_age() -> None:
    """The others are not there yet."""
    world = World({"n1": 8})
    world.put(world.submit("old", 8), n1=8)
    world.submit("new", 1)
    world.join("n1", 8)
    world.rounds()
    world.submit("newest", 1)
    assert order(world) == ["newest"]

    world.wait(60)

    assert order(world) == ["old", "newest"]
