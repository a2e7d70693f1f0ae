"""Drains: nothing new, what runs finishes or leaves at the deadline, and then it is said; maintenance comes and goes."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.base import JobId, NodeId
from events.fleet import DrainCause, NodeDrainBegun, NodeDrained, NodeDrainEnded, NodeRetired
from events.gpu import GpuSignal, GpuSignalled
from events.job import HoldCode, JobCancelRequested, OnLost, RunStopping, StopCause
from events.operator import MaintenanceCancelled, MaintenancePlanned, NodeDrainAsked, NodeUndrainAsked
from projections.cluster.fitness import LEAD, Fitness
from projections.cluster.snapshot import dump, load
from projections.cluster.state import Cluster
from services.health import drains
from services.health.drains import DECIDED_MAX
from tests.clusters import World, names

N1, N2 = NodeId("n1"), NodeId("n2")
HOUR = timedelta(hours=1)


def drain(world: World, node_id: NodeId = N1, *, after_s: float | None = None, **said: Any) -> None:
    """An operator drains the node."""
    deadline = world.at + timedelta(seconds=after_s) if after_s is not None else None
    world.add(NodeDrainAsked(at=world.at, node_id=node_id, reason="fan", deadline=deadline, **said))


def running(world: World, gpus: int, **spec: Any) -> JobId:
    """A job that runs: on `n1`, which is the first that it fits on."""
    job_id = world.submit("a", gpus, **spec)
    world.rounds()
    world.start(job_id)
    world.rounds()
    return job_id


def plan(world: World, starts: timedelta, ends: timedelta, name: str = "w", node_id: NodeId = N1) -> None:
    """An operator plans maintenance, so long from now."""
    at = world.at
    world.add(MaintenancePlanned(at=at, node_id=node_id, window=name, starts=at + starts, ends=at + ends))


def fitness(world: World, node_id: NodeId = N1) -> Fitness:
    """What keeps the node from use."""
    return world.cluster.nodes[node_id].fitness


def drained(world: World, node_id: NodeId = N1) -> bool:
    """Whether it was said that the node is empty."""
    found = fitness(world, node_id).drain
    return found is not None and found.done


def test_an_empty_node_is_drained_at_once_and_takes_nothing() -> None:
    """It is said once; who waits gets it when the drain has ended."""
    world = World({"n1": 8})
    drain(world)

    assert names(world.rounds()) == ["NodeDrained"]
    world.submit("a", 8)
    world.rounds()
    assert world.placed == {}
    world.add(NodeUndrainAsked(at=world.at, node_id=N1))
    world.rounds()
    assert world.placed == {"a": [("n1", 8)]}


def test_what_runs_finishes_and_only_then_is_the_node_drained() -> None:
    """A run that has ended, and whose GPUs are not given back, holds it still."""
    world = World({"n1": 8})
    job = running(world, 4)
    drain(world)
    assert "NodeDrained" not in names(world.rounds())
    world.end(job)
    assert "NodeDrained" not in names(world.rounds())
    world.wait(90.4)
    world.release(job)

    said = world.rounds()

    assert [e.drain_s for e in said if isinstance(e, NodeDrained)] == [90]
    assert "JobSucceeded" in names(said)
    world.assert_sound()


def test_at_the_deadline_what_runs_is_stopped_and_moved() -> None:
    """Blamed on nobody, and told once."""
    world = World({"n1": 8, "n2": 8})
    job = running(world, 8)
    drain(world, after_s=600)
    world.rounds()
    world.wait(599)
    assert world.rounds() == []
    world.wait(1)

    assert [e.cause for e in world.rounds() if isinstance(e, RunStopping)] == [StopCause.DRAIN]
    assert world.rounds() == []
    world.end(job, code=137)
    world.release(job)
    assert {"JobRequeued", "NodeDrained", "JobPlaced"} <= set(names(world.rounds()))
    assert world.placed["a"] == [("n2", 8)]
    world.assert_sound()


def test_a_lost_node_holds_nothing_and_a_new_life_has_to_be_clean_again() -> None:
    """What was there may run still: only what its agent finds clean counts as gone."""
    world = World({"n1": 8})
    running(world, 4)
    drain(world)
    assert "NodeDrained" in names([*world.round({N1: 10_000.0}), *world.rounds()])
    world.join("n1", 8, clean=False)
    assert "NodeDrained" not in names(world.rounds())
    assert not drained(world)
    world.join("n1", 8)

    assert "NodeDrained" in names(world.rounds())
    assert drained(world)
    assert world.placed["a"] == [("n1", 4)]  # the first time: it takes nothing new
    world.assert_sound()


@pytest.mark.parametrize("lost", [False, True])
def test_a_node_is_retired_once_it_is_empty_for_good(lost: bool) -> None:
    """It counts no more, and no word brings it back."""
    world = World({"n1": 8, "n2": 4})
    if lost:
        world.round({N1: 10_000.0})
    plan(world, 5 * HOUR, 6 * HOUR)
    drain(world, cause=DrainCause.RETIRE)

    assert [type(e) for e in world.rounds()] == [NodeDrained, NodeRetired]
    world.add(NodeUndrainAsked(at=world.at, node_id=N1))
    world.join("n1", 8)
    world.wait(7 * 3_600)
    assert world.rounds() == []
    assert fitness(world).retired
    world.submit("a", 8)
    world.rounds()
    assert world.cluster.jobs[JobId("a")].hold is HoldCode.EXCEEDS_CLUSTER
    assert world.placed == {}


@pytest.mark.parametrize("cancelled", [False, True])
def test_what_waits_for_a_lost_node_goes_on_once_that_is_retired(cancelled: bool) -> None:
    """It is never found clean: whoever retires it answers for that nothing runs there."""
    world = World({"n1": 4, "n2": 4})
    job = running(world, 4, on_lost=OnLost.WAIT)
    world.lose("n1")
    if cancelled:
        world.add(JobCancelRequested(at=world.at, team=world.cluster.jobs[job].team, job_id=job))
    world.rounds()
    assert world.run(job) is not None
    drain(world, cause=DrainCause.RETIRE)

    said = names(world.rounds())
    assert ("JobCancelled" if cancelled else "JobRequeued") in said
    world.wait(10)
    world.rounds()
    assert world.placed[job] == [("n1" if cancelled else "n2", 4)]
    world.assert_sound()


def test_a_drained_node_is_retired_when_that_is_asked() -> None:
    """Without being drained anew."""
    world = World({"n1": 8})
    drain(world)
    world.rounds()
    drain(world, cause=DrainCause.RETIRE)

    assert names(world.rounds()) == ["NodeRetired"]


def test_maintenance_begins_a_lead_before_its_start_and_ends_when_it_is_over() -> None:
    """Until the lead the node takes work; it is empty from start to end."""
    world = World({"n1": 8, "n2": 8})
    job = running(world, 8, stop_grace_s=30)
    plan(world, 5 * HOUR, 6 * HOUR)
    assert world.rounds() == []
    world.wait((4 * HOUR).total_seconds())

    (begun,) = world.rounds()

    assert isinstance(begun, NodeDrainBegun)
    assert (begun.cause, begun.window, begun.deadline) == (DrainCause.MAINTENANCE, "w", world.at + LEAD)
    world.wait((LEAD - timedelta(seconds=31)).total_seconds())
    assert world.rounds() == []
    world.wait(1)
    assert names(world.rounds()) == ["RunStopping"]  # with its grace it is gone when the window starts
    world.end(job, code=143)
    world.release(job)
    assert {"NodeDrained", "JobPlaced"} <= set(names(world.rounds()))
    world.start(job)
    world.rounds()
    world.wait((HOUR + timedelta(seconds=29)).total_seconds())
    assert world.rounds() == []
    world.wait(1)
    (ended,) = world.rounds()
    assert isinstance(ended, NodeDrainEnded)
    assert fitness(world) == Fitness()
    world.assert_sound()


def test_a_window_that_is_past_is_only_ended() -> None:
    """As where no control plane ran for a day."""
    world = World({"n1": 8})
    plan(world, 2 * HOUR, 3 * HOUR)
    world.wait(86_400)

    assert names(world.rounds()) == ["NodeDrainEnded"]
    assert fitness(world).windows == ()


def test_windows_that_overlap_leave_no_gap() -> None:
    """The next one begins in the round in which the one before ends."""
    world = World({"n1": 8})
    plan(world, HOUR, 3 * HOUR, "first")
    plan(world, 2 * HOUR, 4 * HOUR, "second")
    world.rounds()
    world.submit("a", 8)
    world.wait((3 * HOUR).total_seconds())

    said = world.round()

    assert [type(e) for e in said[:2]] == [NodeDrainEnded, NodeDrainBegun]
    assert names(world.rounds()) == ["NodeDrained"]
    assert world.placed == {}
    world.wait((HOUR).total_seconds())
    assert "JobPlaced" in names(world.rounds())


@pytest.mark.parametrize("first", ["drain", "window"])
def test_an_operators_drain_outlives_maintenance(first: str) -> None:
    """Which still has its deadline, whichever came first."""
    world = World({"n1": 8})
    job = running(world, 8, stop_grace_s=0)
    if first == "drain":
        drain(world)
    plan(world, HOUR, 2 * HOUR)
    world.rounds()
    if first == "window":
        drain(world)
    world.rounds()
    world.wait(3_600)
    assert "RunStopping" in names(world.rounds())
    world.end(job, code=143)
    world.release(job)
    world.wait(3_600)

    assert "NodeDrainEnded" in names(world.rounds())

    found = fitness(world).drain
    assert found is not None
    assert (found.cause, found.window, found.done) == (DrainCause.OPERATOR, "", True)


def test_a_window_that_is_cancelled_or_moved_ends_what_it_began() -> None:
    """Moved to a day that is far, the node takes work again; likewise when an operator undrains it."""
    for word in ("cancel", "move", "undrain"):
        world = World({"n1": 8})
        plan(world, HOUR, 2 * HOUR)
        assert "NodeDrainBegun" in names(world.rounds())
        if word == "cancel":
            world.add(MaintenanceCancelled(at=world.at, node_id=N1, window="w"))
        elif word == "move":
            plan(world, 50 * HOUR, 60 * HOUR)
        else:
            world.add(NodeUndrainAsked(at=world.at, node_id=N1))
        world.rounds()
        assert fitness(world).drain is None, word
        assert bool(fitness(world).windows) == (word == "move")


def test_thousands_of_drained_nodes_and_far_windows_are_not_looked_at() -> None:
    """They are in no list of what asks for a word; a bound holds for those that do."""
    world = World()
    for index in range(DECIDED_MAX + 1):
        world.join(f"n{index:05}", 1)
        drain(world, NodeId(f"n{index:05}"))
        plan(world, 100 * HOUR, 101 * HOUR, node_id=NodeId(f"n{index:05}"))

    assert len(drains.decide(world.cluster, world.tick())) == DECIDED_MAX
    world.rounds()

    assert not world.cluster.cases
    assert next(world.cluster.windows.line(None))[0][0] > world.at.timestamp()
    assert drains.decide(world.cluster, world.tick()) == []


WORDS = st.lists(
    st.tuples(
        st.sampled_from(("drain", "undrain", "plan", "cancel", "wait", "submit", "finish", "lose", "join", "round")),
        st.integers(0, 3),
        st.integers(0, 5),
    ),
    max_size=40,
)


@given(WORDS)
def test_whatever_is_said_rounds_come_to_rest_and_windows_find_nodes_empty(words: list[tuple[str, int, int]]) -> None:
    """Laws: no round speaks for ever; nothing is placed on a drained node; during a window nothing new holds it."""
    world = World({"n1": 8})
    for number, (word, one, other) in enumerate(words):
        say(world, word, one, other, number)
        before = fitness(world)
        for _ in range(12):
            if not world.round():
                break
        else:
            raise AssertionError("rounds go on for ever")
        now = fitness(world)
        inside = any(window.starts <= world.at < window.ends for window in now.windows)
        assert not inside or now.closed
        if inside and before.closed and world.cluster.nodes[N1].held:
            assert all(run.stopping is not None for run in world.cluster.runs.values())
        assert not any(window.ends <= world.at for window in now.windows)
        made_anew = load(dump(world.cluster), log_id="test")
        assert made_anew is not None
        assert looked_up(world.cluster) == looked_up(made_anew)
    world.assert_sound()


def looked_up(cluster: Cluster) -> list[object]:
    """What health finds drains through."""
    return [set(cluster.cases), list(cluster.windows.line(None)), list(cluster.deadlines.line(None))]


def say(world: World, word: str, one: int, other: int, number: int) -> None:
    """One thing happens."""
    match word:
        case "drain":
            drain(world, after_s=one * 1_000 if one else None)
        case "undrain":
            world.add(NodeUndrainAsked(at=world.at, node_id=N1))
        case "plan":
            plan(world, one * HOUR, (one + other + 1) * HOUR, f"w{other % 3}")
        case "cancel":
            world.add(MaintenanceCancelled(at=world.at, node_id=N1, window=f"w{one}"))
        case "wait":
            world.wait(1_000 * (one + other))
        case "submit":
            world.submit(f"j{number}", 1 + one * 2)
        case "finish":
            for run in list(world.cluster.runs.values()):
                if not run.dead:
                    world.finish(run.job_id)
        case "lose":
            world.round({N1: 100_000.0})
        case "join":
            world.join("n1", 8)
        case _:
            pass


def test_a_node_that_is_looked_at_for_another_reason_is_not_called_drained() -> None:
    """A sign on a GPU of it waits for its verdict; a run holds it still."""
    world = World({"n1": 8})
    running(world, 4)
    drain(world)
    node = world.cluster.nodes[N1]
    sign: dict[str, Any] = {"gpu_uuid": node.uuids[7], "signal": GpuSignal.XID, "code": 13, "source": "kernel"}
    world.add(GpuSignalled(at=world.at, node_id=N1, node_epoch=node.epoch, **sign))
    assert list(world.cluster.cases) == [N1]
    assert drains.decide(world.cluster, world.tick()) == []
