"""Where a job stands in the order: by class and age, between teams by what they have, and after those with a promise."""

from datetime import timedelta
from typing import Any

import pytest

from events.ask import Why
from events.base import JobId, NodeId, TeamId
from events.job import JobAdmitted, NodeShare, Priority, StartPromised
from events.policy import JobOrder
from events.queues import Queue
from projections.cluster.explain.why import explain
from services.scheduler.decide import decide
from tests.clusters import World


def admitted(world: World, name: str, gpus: int, *, borrowing: bool = False, **spec: Any) -> JobId:
    """A job that may run."""
    job = world.submit(name, gpus, **spec)
    world.add(JobAdmitted(at=world.at, team=world.cluster.jobs[job].team, job_id=job, borrowing=borrowing))
    return job


def of(world: World, job: str) -> Why:
    """The explanation of the moment."""
    return explain(world.cluster, JobId(job), at=world.at)


def full() -> World:
    """A node in use."""
    world = World({"n1": 8})
    world.put(world.submit("runs", 8), n1=8)
    return world


@pytest.mark.parametrize(
    ("order", "places"),
    [
        (JobOrder.FAIR, {"urgent": 0, "old": 1, "young": 2, "low": 3}),
        (JobOrder.PRIORITY, {"urgent": 0, "old": 1, "young": 2, "low": 3}),
        (JobOrder.FIFO, {"low": 0, "old": 1, "young": 2, "urgent": 3}),
        (JobOrder.SJF, {"young": 0, "low": 1, "old": 2, "urgent": 3}),
    ],
)
def test_the_place_follows_the_policy(order: JobOrder, places: dict[str, int]) -> None:
    """Whatever the lines are: jobs of several shapes wait."""
    world = full()
    world.policy(order=order)
    admitted(world, "low", 1, priority=Priority.LOW)
    admitted(world, "old", 2)
    admitted(world, "young", 3, max_runtime_s=60)
    admitted(world, "urgent", 4, priority=Priority.URGENT)
    assert {job: of(world, job).ahead for job in places} == places
    first = min(places, key=lambda job: places[job])
    assert {of(world, job).behind for job in places if places[job]} == {first}
    assert of(world, first).behind == ""


def test_between_teams_the_one_with_less_comes_first() -> None:
    """Whoever is within its share comes before whoever is beyond it, however old; what it could displace itself is its own."""
    world = full()
    world.queues(Queue(name=TeamId("t")), Queue(name=TeamId("other")))
    admitted(world, "mine", 1)
    admitted(world, "theirs", 4, team="other")
    admitted(world, "urgent", 1, priority=Priority.URGENT)
    assert {job: of(world, job).ahead for job in ("urgent", "theirs", "mine")} == {"urgent": 0, "theirs": 1, "mine": 2}
    assert (of(world, "mine").behind, of(world, "theirs").behind) == ("urgent", "urgent")


def test_those_that_take_no_turn_are_not_counted() -> None:
    """Jobs that can never start, and those of a stopped queue; a job that is held or impossible has no place itself."""
    world = full()
    world.submit("huge", 64)
    world.submit("job", 1)
    world.rounds()
    assert (of(world, "huge").ahead, of(world, "job").ahead, of(world, "job").behind) == (0, 0, "")


def test_a_job_that_wants_another_type_is_nobody_to_be_behind() -> None:
    """It is counted: the order is one for all; who is named is one that could take the same GPUs."""
    world = full()
    world.join("a1", 8, gpu_type="a100")
    world.put(world.submit("on-a1", 8), a1=8)
    admitted(world, "other", 1, gpu_types=("a100",))
    admitted(world, "job", 1, gpu_types=("h100",))
    assert (of(world, "job").ahead, of(world, "job").behind) == (1, "")


def test_a_promised_job_is_the_first_of_its_class() -> None:
    """As the scheduler tries it: before an older one, not before a more urgent one."""
    world = full()
    node = world.cluster.nodes[NodeId("n1")]
    admitted(world, "older", 1)
    gang = admitted(world, "gang", 8)
    share = NodeShare(node.node_id, node.epoch, 255)  # type: ignore[arg-type]
    start = world.at + timedelta(seconds=60)
    world.add(StartPromised(at=world.at, team=TeamId("t"), job_id=gang, shares=(share,), start=start))
    admitted(world, "urgent", 1, priority=Priority.URGENT)
    assert {job: of(world, job).ahead for job in ("urgent", "gang", "older")} == {"urgent": 0, "gang": 1, "older": 2}
    assert of(world, "older").behind == "gang"
    assert not [event for event in decide(world.cluster, world.tick()) if type(event).__name__ == "JobPlaced"]
