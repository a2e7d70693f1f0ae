"""How many jobs a queue lets wait, and which are turned away."""

from events.base import TeamId
from events.job import HoldCode, JobRejected
from events.node import EndReason
from events.queues import Bounds, Queue, QueueStop
from services.admission.decide import decide
from services.admission.pending import REJECTED_MAX
from services.lifecycle.decide import decide as lifecycle
from tests.clusters import World


def waiting(jobs: int, **knobs: object) -> World:
    """A queue that lets nothing run, and so many jobs in it that no round has seen."""
    world = World({"n1": 8})
    limit = (Bounds(limit=0),)
    world.queues(Queue(name=TeamId("t"), bounds=limit, **knobs))  # type: ignore[arg-type]
    for number in range(jobs):
        world.submit(f"j{number:04d}", 1)
    return world


def turned_away(world: World) -> list[str]:
    """The jobs that a round rejects."""
    events = decide(world.cluster, world.tick())
    world.add(*events)
    assert all(e.code == "too_many_pending" and "lets" in e.message for e in events if isinstance(e, JobRejected))
    return sorted(event.job_id for event in events if isinstance(event, JobRejected))


def test_the_newest_beyond_the_bound_are_turned_away() -> None:
    """And no more of them; what waits stays."""
    world = waiting(5, pending_max=3)

    assert turned_away(world) == ["j0003", "j0004"]
    assert turned_away(world) == []
    world.submit("one-more", 1)
    assert turned_away(world) == ["one-more"]


def test_a_missing_bound_is_none_and_0_lets_nobody_wait() -> None:
    """In that order."""
    assert turned_away(waiting(3)) == []
    assert turned_away(waiting(3, pending_max=0)) == ["j0000", "j0001", "j0002"]


def test_what_is_let_in_does_not_wait() -> None:
    """A burst that fits is no crowd."""
    world = World({"n1": 8})
    world.queues(Queue(name=TeamId("t"), bounds=(Bounds(limit=8),), pending_max=1))
    for number in range(9):
        world.submit(f"j{number}", 1)

    assert turned_away(world) == []


def test_a_lowered_bound_turns_nobody_away_that_waits_already() -> None:
    """Only who comes then."""
    world = waiting(5, pending_max=5)
    turned_away(world)

    world.queues(Queue(name=TeamId("t"), bounds=(Bounds(limit=0),), pending_max=1))
    world.submit("late", 1)

    assert turned_away(world) == ["late"]


def test_a_job_that_ran_before_is_not_turned_away() -> None:
    """Its queue was on hold, and no round has looked at it since."""
    world = World({"n1": 8})
    job = world.put(world.submit("a", 8), n1=8)
    world.queues(Queue(name=TeamId("t"), stop=QueueStop.HOLD))
    world.rounds()
    world.end(job, reason=EndReason.STOPPED)
    world.release(job)
    world.queues(Queue(name=TeamId("t"), bounds=(Bounds(limit=0),), pending_max=0))
    world.add(*lifecycle(world.cluster, world.tick()))
    assert world.cluster.jobs[job].hold is HoldCode.NOT_EVALUATED

    assert turned_away(world) == []
    assert job in world.cluster.jobs


def test_the_bound_of_an_organisation_counts_all_its_teams() -> None:
    """The newest of them all go."""
    world = World({"n1": 8})
    org = Queue(name=TeamId("org"), bounds=(Bounds(limit=0),), pending_max=2)
    world.queues(org, *(Queue(name=TeamId(name), parent="org") for name in "ab"))
    for number, team in enumerate("abab"):
        world.submit(f"j{number}", 1, team=team)
    world.submit("apart", 1, team="else")

    assert turned_away(world) == ["j2", "j3"]


def test_no_more_are_turned_away_in_a_round_than_its_limit() -> None:
    """The rest is the next round's: nobody slips in meanwhile."""
    world = waiting(REJECTED_MAX + 10, pending_max=0)

    assert [len(turned_away(world)) for _ in range(3)] == [REJECTED_MAX, 10, 0]
