"""What a gang that lost a member keeps: nobody else gets it, and the gang starts on it again, or it is anyone's in the end."""

from datetime import timedelta
from typing import Any

import pytest

from events.base import Event, JobId, NodeId, TeamId
from events.job import Domain, EarmarkCause, EarmarkDropped, HoldCode, JobPlaced, Priority, Topology
from events.node import EndReason
from events.operator import NodeCordoned, NodeDrainAsked
from events.queues import Bounds, Queue, QueueStop
from projections.cluster.job import JobState
from projections.cluster.snapshot import dump, load
from tests.clusters import World

G = JobId("gang")
THREE = {"n1": 8, "n2": 8, "n3": 8}


def running(world: World, gpus: int = 16, *, policy: dict[str, Any] | None = None, **spec: Any) -> World:
    """A gang runs on n1 and n2."""
    world.policy(**{"preemption": False, "promises": 0, **(policy or {})})
    world.submit("gang", gpus, **spec)
    world.rounds()
    world.start(G)
    world.rounds()
    assert [name for name, _ in world.placed["gang"]] == ["n1", "n2"]
    return world


def lose(world: World, name: str = "n2") -> list[Event]:
    """The node is silent for so long that it is given up."""
    said: list[Event] = []
    for _ in range(2):
        said += world.round({NodeId(name): 10_000.0})
    return said + world.rounds()


def newcomers(world: World, jobs: int = 40) -> None:
    """More small jobs than there are GPUs."""
    for number in range(jobs):
        world.submit(f"small{number:02d}", 1)


def leave(world: World, *nodes: str) -> list[Event]:
    """The ranks on some nodes end as they were told, and their GPUs are given back."""
    world.end(G, *nodes, code=143, reason=EndReason.STOPPED)
    world.release(G, *nodes)
    return world.rounds()


def kept(world: World, job_id: JobId = G) -> list[str]:
    """The nodes on which something is kept for the job."""
    earmark = world.cluster.earmarks.get(job_id)
    return [share.node_id for share in earmark.shares] if earmark is not None else []


def dropped(events: list[Event]) -> list[EarmarkCause]:
    """Why what was kept no longer is."""
    return [event.cause for event in events if isinstance(event, EarmarkDropped)]


def placed(events: list[Event]) -> list[JobId]:
    """The jobs that were placed, in order."""
    return [event.job_id for event in events if isinstance(event, JobPlaced)]


def test_it_goes_on_where_it_was_with_another_node_for_the_lost_one() -> None:
    """Newcomers get neither what it has nor what it is to have: not while it is stopped, nor while it waits."""
    world = running(World(THREE))
    lose(world)
    assert kept(world) == ["n1", "n3"]
    newcomers(world)
    assert not placed(world.rounds())
    assert not placed(leave(world, "n1"))  # it backs off
    assert world.cluster.jobs[G].state is JobState.QUEUED
    world.wait(1)
    assert placed(world.rounds()) == ["gang"]
    assert world.placed["gang"] == [("n1", 8), ("n3", 8)]
    assert not world.cluster.earmarks
    world.assert_sound()


def test_without_another_node_it_keeps_a_part_until_it_may_run_again() -> None:
    """Then it has its turn in order: if what is free is not enough, it is anyone's."""
    world = running(World({"n1": 8, "n2": 8}))
    lose(world)
    assert kept(world) == ["n1"]
    newcomers(world)
    assert not placed(leave(world, "n1"))
    world.wait(1)
    said = world.rounds()
    assert dropped(said) == [EarmarkCause.NODE]
    assert len(placed(said)) == 8
    world.assert_sound()


def test_a_part_becomes_whole_when_a_node_comes() -> None:
    """While it is stopped, or waits out its back-off."""
    world = running(World({"n1": 8, "n2": 8}))
    lose(world)
    newcomers(world)
    world.rounds()
    leave(world, "n1")
    world.join("n3", 8)
    assert dropped(world.rounds()) == [EarmarkCause.NODE]
    assert kept(world) == ["n1", "n3"]
    world.wait(1)
    assert placed(world.rounds()) == ["gang"]
    world.assert_sound()


def test_a_second_loss_is_decided_afresh() -> None:
    """Over all that is missing by now; where nothing is left of what it had, there is no place to keep."""
    world = running(World({**THREE, "n4": 8}))
    lose(world)
    assert kept(world) == ["n1", "n3"]
    assert dropped(lose(world, "n3")) == [EarmarkCause.NODE]
    assert kept(world) == ["n1", "n4"]
    assert dropped(lose(world, "n1")) == [EarmarkCause.NODE]
    assert not world.cluster.earmarks
    world.assert_sound()


def test_it_is_anyones_when_its_time_is_over() -> None:
    """The time begins with the word to stop, and the graces are added: an agent that never answers keeps nothing for ever."""
    world = running(World(THREE), stop_grace_s=10)
    lose(world)
    until = world.at + timedelta(seconds=10 + world.cluster.policy.keep_place_s)
    assert world.cluster.earmarks[G].until == until
    newcomers(world)
    world.at = until - timedelta(seconds=0.1)
    assert not placed(world.rounds())
    world.at = until
    said = world.rounds()
    assert dropped(said) == [EarmarkCause.EXPIRED]
    assert len(placed(said)) == 8
    leave(world, "n1")
    assert not world.cluster.earmarks  # it is not kept a second time
    world.assert_sound()


def test_a_job_whose_back_off_is_longer_keeps_nothing() -> None:
    """One that failed often waits long, and others run meanwhile."""
    world = running(World(THREE), policy={"keep_place_s": 1}, stop_grace_s=0)
    lose(world)
    assert kept(world) == ["n1", "n3"]
    world.wait(0.5)
    leave(world, "n1")
    world.wait(0.5)
    assert dropped(world.rounds()) == [EarmarkCause.EXPIRED]
    assert world.cluster.jobs[G].state is JobState.QUEUED


@pytest.mark.parametrize("why", ["cancelled", "policy", "budget", "paused"])
def test_nothing_is_kept_for_who_will_not_come_back(why: str) -> None:
    """A user cancelled it, the policy keeps nothing, its budget is used up, its queue is paused."""
    world = running(
        World(THREE),
        policy={"keep_place_s": 0} if why == "policy" else {},
        **({"retries_infrastructure": 0} if why == "budget" else {}),
    )
    if why == "cancelled":
        lose(world)
        assert kept(world)
        world.cancel(G)
        assert dropped(world.rounds()) == [EarmarkCause.CHANGED]
    elif why == "paused":
        lose(world)
        world.queues(Queue(name=TeamId("t"), stop=QueueStop.PAUSE))
        assert dropped(world.rounds()) == [EarmarkCause.CHANGED]
    else:
        lose(world)
    assert not world.cluster.earmarks
    leave(world, "n1")
    assert not world.cluster.earmarks
    world.assert_sound()


def test_a_limit_that_holds_the_gang_once_holds_what_is_kept() -> None:
    """What is kept counts instead of what is stopped, not beside it."""
    world = World(THREE)
    world.queues(Queue(name=TeamId("t"), bounds=(Bounds(limit=16),)))
    running(world)
    lose(world)
    world.rounds()
    assert kept(world) == ["n1", "n3"]
    leave(world, "n1")
    world.wait(1)
    assert placed(world.rounds()) == ["gang"]
    world.assert_sound()


@pytest.mark.parametrize("queue", [{"bounds": (Bounds(limit=8),)}, {"running_max": 0}], ids=["gpus", "jobs"])
def test_a_limit_that_is_lowered_ends_it_for_good(queue: dict[str, Any]) -> None:
    """It is given up once, and not kept again in the next round."""
    world = running(World(THREE))
    lose(world)
    assert kept(world)
    world.queues(Queue(name=TeamId("t"), **queue))
    assert dropped(world.round()) == [EarmarkCause.CHANGED]
    assert not kept(world)
    assert not dropped(world.rounds())
    assert not kept(world)
    world.assert_sound()


def test_a_team_beyond_its_entitlement_keeps_nothing() -> None:
    """Keeping its place is no way around the shares: what it borrowed is another's by now."""
    world = World({"n1": 8, "n2": 8, "n3": 8, "n4": 8})
    world.queues(Queue(name=TeamId("t")), Queue(name=TeamId("u"), bounds=(Bounds(floor=24),)))
    running(world)
    for number in range(3):
        world.submit(f"u{number}", 8, team="u")
    world.rounds()
    lose(world)
    assert not kept(world)
    world.assert_sound()


@pytest.mark.parametrize("how", ["start_failed", "drained", "cordoned"])
def test_what_is_well_is_kept_and_what_failed_it_is_left(how: str) -> None:
    """A node that could not start its ranks, or is emptied, is left; one where nothing new may come is no place either."""
    world = running(World(THREE))
    if how == "start_failed":
        world.end(G, "n2", code=127, reason=EndReason.START_FAILED)
    else:
        world.add(NodeDrainAsked(at=world.at, node_id=NodeId("n2"), by="ops", reason="fan", deadline=world.at))
    if how == "cordoned":
        world.add(NodeCordoned(at=world.at, node_id=NodeId("n3"), by="ops", reason="fan"))
    world.rounds()
    assert kept(world) == (["n1"] if how == "cordoned" else ["n1", "n3"])


def test_of_two_gangs_the_first_in_order_gets_the_spare_node() -> None:
    """And neither waits for what the other keeps: a part is given up in its turn, and the first of them starts on it."""
    world = World({f"n{number}": 8 for number in range(1, 6)})
    world.policy(preemption=False, promises=0)
    for name in ("a", "b"):
        world.submit(name, 16)
    world.rounds()
    for name in ("a", "b"):
        world.start(JobId(name))
    world.rounds()
    lost = {NodeId("n1"): 10_000.0, NodeId("n3"): 10_000.0}
    world.round(lost)
    world.round(lost)
    world.rounds()
    assert (kept(world, JobId("a")), kept(world, JobId("b"))) == (["n2", "n5"], ["n4"])
    lose(world, "n5")
    assert (kept(world, JobId("a")), kept(world, JobId("b"))) == (["n2"], ["n4"])
    for name in ("a", "b"):
        world.release(JobId(name))
    world.rounds()
    world.wait(1)
    world.rounds()
    assert world.placed["a"] == [("n2", 8), ("n4", 8)]
    assert not world.cluster.earmarks
    world.assert_sound()


def test_what_is_promised_to_a_job_before_it_is_not_kept() -> None:
    """Its own node drains towards a more urgent gang; nor is it given what is promised to anybody."""
    world = running(World(THREE), policy={"promises": 1}, max_runtime_s=600)
    world.submit("first", 16, priority=Priority.URGENT)
    world.rounds()
    assert world.cluster.jobs[JobId("first")].hold is HoldCode.PROMISED
    lose(world)
    assert not kept(world)


def test_it_stays_within_its_rack() -> None:
    """Replacements stand where the rest of the gang is; where that has none, another rack takes it whole."""
    world = World()
    for rack, name in (("r1", "n1"), ("r1", "n2"), ("r2", "n3"), ("r1", "n4"), ("r2", "n5"), ("r2", "n6")):
        world.join(name, 8, labels={"rack": rack, "spine": "s"})
    running(world, topology=Topology(within=Domain.RACK))
    lose(world)
    assert kept(world) == ["n1", "n4"]
    lose(world, "n4")
    assert kept(world) == ["n3", "n5"]
    world.assert_sound()


def test_an_elastic_gang_goes_on_with_what_is_left() -> None:
    """Where that is as many as it starts with."""
    world = running(World({"n1": 8, "n2": 8}), min_gpus=8)
    lose(world)
    newcomers(world)
    leave(world, "n1")
    world.wait(1)
    assert placed(world.rounds()) == ["gang"]
    assert world.placed["gang"] == [("n1", 8)]
    world.assert_sound()


def test_nothing_is_said_twice_and_a_snapshot_has_all_of_it() -> None:
    """A round with nothing new decides nothing, in another process as well."""
    world = running(World({"n1": 8, "n2": 8}))
    lose(world)
    assert not world.round()
    loaded = load(dump(world.cluster), log_id="test")
    assert loaded is not None
    assert loaded.earmarks == world.cluster.earmarks
    assert list(loaded.recovering) == list(world.cluster.recovering) == ["gang-1"]
    world.cluster = loaded
    assert not world.round()
