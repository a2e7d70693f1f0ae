"""Whose turn it is: each policy's order over all lines, and one look for all that need the same."""

from typing import Any

import pytest

from events.base import JobId, TeamId
from events.job import JobPlaced, Priority
from events.policy import JobOrder
from events.queues import Queue
from projections.cluster.quota.entitlement import Standing
from services.admission.decide import decide as admission
from services.scheduler.order import Lineup, Stands
from tests.clusters import World, names


def order_of(world: World) -> list[str]:
    """The jobs in the order in which the scheduler would try them, when none is placed."""
    lineup = Lineup(world.cluster, Standing(world.cluster, world.at), promised=(), passed=set())
    found: list[str] = []
    while (following := lineup.first()) is not None:
        found.append(following.job_id)
        lineup.advance()
    return found


def admitted(world: World) -> World:
    """The world once admission has had its turn, and nobody else."""
    world.add(*admission(world.cluster, world.tick()))
    return world


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (JobOrder.FAIR, ["urgent", "long", "short", "silent", "low"]),
        (JobOrder.PRIORITY, ["urgent", "long", "short", "silent", "low"]),
        (JobOrder.FIFO, ["low", "long", "short", "silent", "urgent"]),
        (JobOrder.SJF, ["short", "urgent", "long", "low", "silent"]),
    ],
)
def test_jobs_of_a_team_are_tried_in_the_order_of_the_policy(policy: JobOrder, expected: list[str]) -> None:
    """By class, age or declared runtime, whatever lines they stand in."""
    world = World({"n1": 8})
    world.policy(order=policy)
    specs: list[tuple[str, int, dict[str, Any]]] = [
        ("low", 1, {"priority": Priority.LOW, "max_runtime_s": 100}),
        ("long", 2, {"max_runtime_s": 90}),
        ("short", 2, {"max_runtime_s": 5}),
        ("silent", 1, {}),
        ("urgent", 4, {"priority": Priority.URGENT, "max_runtime_s": 60}),
    ]
    for name, gpus, spec in specs:
        world.submit(name, gpus, **spec)

    assert order_of(admitted(world)) == expected


def test_teams_take_turns_by_what_they_have_and_not_by_who_came_first() -> None:
    """One that floods the cluster with jobs first gets no more than its half of what comes free."""
    world = World()
    for number in range(8):
        world.submit(f"a{number}", 1, team="a")
    for number in range(4):
        world.submit(f"b{number}", 1, team="b")
    world.rounds()
    world.join("n1", 8)
    placed = [event.job_id for event in world.rounds() if isinstance(event, JobPlaced)]

    assert sorted(placed) == ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"]


def test_what_is_within_its_share_goes_before_what_is_beyond_it() -> None:
    """A team that borrows waits for those that do not, though its job is older."""
    world = World({"n1": 4, "n2": 4})
    world.queues(Queue(name=TeamId("a")), Queue(name=TeamId("b")))
    world.submit("held", 4, team="a")
    world.rounds()
    world.submit("more", 4, team="a")
    world.submit("mine", 4, team="b")
    admitted(world)

    assert order_of(world) == ["mine", "more"]


def test_a_line_that_is_left_out_is_one_look() -> None:
    """Ten thousand misfits of one shape are passed over at once."""
    world = World({"n1": 4})
    for number in range(300):
        world.submit(f"j{number:03d}", 8)
    world.submit("small", 1)
    admitted(world)
    lineup = Lineup(world.cluster, Standing(world.cluster, world.at), promised=(), passed=set())
    looks = 0
    while lineup.first() is not None:
        looks += 1
        lineup.drop()

    assert looks == len(world.cluster.admitted.groups())
    assert looks <= 2


def test_a_job_with_a_promise_is_first_in_its_class_and_stands_for_itself() -> None:
    """Whatever its team has by then: nodes that drain would drain for others."""
    world = World({"n1": 8})
    world.policy(preemption=False)
    world.submit("most", 6, team="b")
    world.submit("runs", 1, team="a")
    world.rounds()
    world.submit("gang", 2, team="a")
    world.rounds()
    assert list(world.cluster.promises) == ["gang"]
    world.submit("nothing-yet", 1, team="c")
    admitted(world)
    gang = world.cluster.jobs[JobId("gang")]
    lineup = Lineup(world.cluster, Standing(world.cluster, world.at), promised=(gang,), passed=set())

    first = lineup.first()
    assert first is not None
    assert (first.job_id, first.stands) == ("gang", Stands.FOR_ITSELF)


def test_cancelled_jobs_and_those_that_are_passed_have_no_turn() -> None:
    """Nor are they counted as placed or held."""
    world = World({"n1": 8})
    jobs = [world.submit(name, 1) for name in ("a", "b", "c")]
    admitted(world)
    world.cancel(jobs[0])
    lineup = Lineup(world.cluster, Standing(world.cluster, world.at), promised=(), passed={jobs[1]})

    first = lineup.first()
    assert first is not None
    assert first.job_id == "c"
    assert names(world.rounds()).count("JobPlaced") == 2
