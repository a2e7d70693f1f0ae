"""Promises, one rule after the other: who gets one, who respects it, and when it moves or goes."""

from datetime import timedelta
from typing import Any

import pytest

from events.base import Event, JobId, NodeId, TeamId
from events.job import (
    HoldCode,
    JobPlaced,
    Priority,
    PromiseCause,
    PromiseDropped,
    PromiseMoved,
    StartPromised,
)
from events.node import NodeDescribed
from events.operator import NodeCordoned
from events.policy import JobOrder
from events.queues import Bounds, Queue
from services.scheduler.promise import PLANS_MAX
from tests.clusters import World, names


def busy(**policy: Any) -> World:
    """Three nodes of 8: on `n1` 8 GPUs until 100 s from now, on `n2` until 300 s, `n3` is free."""
    world = World({"n1": 8, "n2": 8, "n3": 8})
    world.policy(**{"preemption": False, **policy})
    for name, runtime_s in (("one", 100), ("two", 300)):
        world.submit(name, 8, max_runtime_s=runtime_s, stop_grace_s=0)
        world.rounds()
        world.start(JobId(name))
        world.rounds()
    return world


def said(events: list[Event], kind: type, job_id: str) -> list[Any]:
    """What events of one kind say of a job."""
    return [event for event in events if isinstance(event, kind) and getattr(event, "job_id", "") == job_id]


def start_s(world: World, job_id: str) -> float | None:
    """Seconds from now to the promised start."""
    start = world.cluster.promises[JobId(job_id)].start
    return None if start is None else (start - world.at).total_seconds()


def hold(world: World, job_id: str) -> HoldCode:
    """What the log says of a waiting job."""
    return world.cluster.jobs[JobId(job_id)].hold


def test_a_gang_that_cannot_start_is_promised_real_ends_on_any_healthy_node() -> None:
    """A full cluster is no hindrance: the nodes that are free first, when they are."""
    world = busy()
    world.submit("gang", 16)
    world.rounds()

    promise = world.cluster.promises[JobId("gang")]
    assert [share.node_id for share in promise.shares] == ["n1", "n3"]
    assert start_s(world, "gang") == 100
    assert hold(world, "gang") is HoldCode.PROMISED


def two_types(**policy: Any) -> World:
    """Team `t` has 2 of the 4 GPUs of type `a` that it may have, `u` has the other node of that type, and `b`."""
    world = World({})
    for name, gpu_type in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        world.join(name, 4, gpu_type=gpu_type)
    world.policy(preemption=False, **policy)
    world.queues(Queue(name=TeamId("t"), bounds=(Bounds(gpu_type="a", limit=4),)))
    jobs = (("long", 2, "t", "a", 9_000), ("soon", 4, "u", "a", 600), ("late", 4, "u", "b", 7_200))
    for name, gpus, team, gpu_type, runtime_s in jobs:
        world.submit(name, gpus, team=team, gpu_types=(gpu_type,), max_runtime_s=runtime_s, stop_grace_s=0)
    world.rounds()
    for name, *_ in jobs:
        world.start(JobId(name))
    world.rounds()
    return world


def test_nothing_is_promised_of_a_type_that_a_limit_closes() -> None:
    """Though that is free sooner: it could not be had then."""
    world = two_types()
    world.submit("gang", 4, gpu_types=("a", "b"))
    world.rounds()
    assert [share.node_id for share in world.cluster.promises[JobId("gang")].shares] == ["b1"]

    world.finish(JobId("soon"))
    world.rounds()
    assert "gang" not in world.placed


def test_a_promise_of_a_type_that_is_closed_by_now_becomes_another() -> None:
    """Its GPUs are free, and would put the team above its limit."""
    world = two_types()
    world.queues()
    world.submit("gang", 4, gpu_types=("a", "b"))
    world.rounds()
    assert [share.node_id for share in world.cluster.promises[JobId("gang")].shares] == ["a2"]
    world.queues(Queue(name=TeamId("t"), bounds=(Bounds(gpu_type="a", limit=4),)))
    world.finish(JobId("soon"))
    world.rounds()

    assert "gang" not in world.placed
    assert [share.node_id for share in world.cluster.promises[JobId("gang")].shares] == ["b1"]


@pytest.mark.parametrize("now", [{"taints": ("odd",)}, {"labels": {"disk": "slow"}}])
def test_a_promise_of_a_node_that_no_longer_suits_becomes_another(now: dict[str, Any]) -> None:
    """Described anew, it is no place for the job, however free."""
    world = World({})
    for name in ("n1", "n2"):
        world.join(name, 4, labels={"disk": "fast"})
    world.policy(preemption=False)
    for name, runtime_s in (("one", 100), ("two", 300)):
        world.submit(name, 4, max_runtime_s=runtime_s, stop_grace_s=0)
        world.rounds()
    world.submit("gang", 4, labels={"disk": "fast"})
    world.rounds()
    (share,) = world.cluster.promises[JobId("gang")].shares
    assert share.node_id == "n1"
    world.add(NodeDescribed(at=world.at, node_id=share.node_id, node_epoch=share.node_epoch, **now))
    world.finish(JobId("one"))
    world.rounds()

    assert "gang" not in world.placed
    assert [share.node_id for share in world.cluster.promises[JobId("gang")].shares] == ["n2"]


def test_only_what_is_gone_in_time_is_backfilled_onto_promised_nodes() -> None:
    """With its graces; what declares nothing never is. It is told that what is free is reserved."""
    world = busy()
    world.submit("gang", 16)
    world.submit("silent", 1)
    world.submit("long", 1, max_runtime_s=101, stop_grace_s=0)
    world.submit("grace", 1, max_runtime_s=99, stop_grace_s=2)
    world.submit("short", 1, max_runtime_s=100, stop_grace_s=0)
    world.rounds()

    assert set(world.placed) == {"one", "two", "short"}
    assert world.placed["short"] == [("n3", 1)]
    assert [hold(world, name) for name in ("silent", "long", "grace")] == [HoldCode.RESERVED] * 3


def test_nodes_drain_towards_a_gang_where_no_end_is_known() -> None:
    """No start is made up, nothing starts there, and it starts when they are free."""
    world = World({"n1": 8, "n2": 8})
    world.policy(preemption=False)
    world.submit("endless", 4)
    world.rounds()
    world.submit("gang", 16)
    world.submit("short", 1, max_runtime_s=1)
    world.rounds()
    assert start_s(world, "gang") is None
    assert "short" not in world.placed

    world.finish(JobId("endless"))
    world.rounds()
    assert "gang" in world.placed


def test_a_promise_that_still_holds_is_no_event() -> None:
    """Rounds that find nothing new say nothing of it, however many."""
    world = busy()
    world.submit("gang", 16)
    world.rounds()
    for _ in range(5):
        world.wait(10)
        assert world.rounds() == []


def test_a_gang_starts_on_time_and_its_promise_goes_with_it() -> None:
    """Exactly when the last of its nodes is free."""
    world = busy()
    world.submit("gang", 16)
    world.rounds()
    world.wait(100)
    world.end(JobId("one"))
    world.release(JobId("one"))
    decided = world.rounds()

    assert said(decided, JobPlaced, "gang")
    assert not world.cluster.promises
    assert not said(decided, PromiseDropped, "gang")


def test_an_early_end_brings_a_promise_forward_at_most_once_in_half_a_minute() -> None:
    """On other nodes too; its first start is remembered."""
    world = busy()
    world.submit("gang", 24)
    world.rounds()
    assert start_s(world, "gang") == 300
    world.wait(31)
    world.finish(JobId("two"))
    (moved,) = said([record.event for record in world.records], PromiseMoved, "gang")
    assert moved.cause is PromiseCause.EARLIER
    assert start_s(world, "gang") == 69
    assert world.cluster.promises[JobId("gang")].first == moved.start + timedelta(seconds=200)


def test_a_run_that_goes_on_beyond_its_end_moves_a_promise_with_that_cause() -> None:
    """To a quarter more than it has had, and not in each round."""
    world = busy()
    world.submit("gang", 16)
    world.rounds()
    world.wait(101)
    (moved,) = said(world.rounds(), PromiseMoved, "gang")
    assert moved.cause is PromiseCause.OVERRUN
    assert moved.start == world.at + timedelta(seconds=60)
    world.wait(5)
    assert world.rounds() == []


def test_a_more_urgent_job_takes_what_was_promised_and_the_log_says_so() -> None:
    """A promise binds only those behind it in the order."""
    world = busy()
    world.submit("gang", 16)
    world.rounds()
    world.submit("urgent", 8, priority=Priority.URGENT, max_runtime_s=500, stop_grace_s=0)
    decided = world.rounds()

    assert said(decided, JobPlaced, "urgent")
    (moved,) = said(decided, PromiseMoved, "gang")
    assert moved.cause is PromiseCause.OVERTAKEN
    assert start_s(world, "gang") == 300


def test_what_is_urgent_takes_unpromised_gpus_first() -> None:
    """No promise is broken without need."""
    world = busy()
    world.submit("gang", 16)
    world.rounds()
    world.join("n4", 8)
    world.submit("urgent", 8, priority=Priority.URGENT)
    world.submit("gang2", 8)
    decided = world.rounds()

    assert not said(decided, PromiseMoved, "gang")
    assert "gang" in world.placed or "urgent" in world.placed


def test_a_promise_leaves_a_node_that_is_cordoned_silent_or_gone() -> None:
    """And a node that is not well stalls nobody: it is no destination to begin with."""
    world = busy()
    world.join("n4", 8)
    world.add(NodeCordoned(at=world.at, node_id=NodeId("n4")))
    world.submit("gang", 16)
    world.rounds()
    assert "n4" not in [share.node_id for share in world.cluster.promises[JobId("gang")].shares]
    world.add(NodeCordoned(at=world.at, node_id=NodeId("n3")))
    (moved,) = said(world.rounds(), PromiseMoved, "gang")

    assert moved.cause is PromiseCause.NODE
    assert [share.node_id for share in moved.shares] == ["n1", "n2"]


def test_what_can_never_be_held_uses_up_no_depth() -> None:
    """A thousand jobs for a machine that nobody has, and one for nodes that are unwell, hold up no promise."""
    world = busy()
    for number in range(20):
        world.submit(f"huge{number:02d}", 99)
    world.submit("gang", 16)
    world.rounds()

    assert list(world.cluster.promises) == ["gang"]


def test_depth_says_how_many_gangs_hold_promises() -> None:
    """0 none, 1 the first, more in order; when there are to be fewer, the last ones lose theirs."""
    world = busy(promises=0)
    for name in ("a", "b", "c"):
        world.submit(name, 16)
    world.rounds()
    assert not world.cluster.promises
    world.policy(preemption=False, promises=1)
    world.rounds()
    assert list(world.cluster.promises) == ["a"]
    world.policy(preemption=False, promises=3)
    for name in ("a", "b", "c"):
        world.cancel(JobId(name))
    for name in ("d", "e", "f"):
        world.submit(name, 16, max_runtime_s=50, stop_grace_s=0)
    world.rounds()
    assert [start_s(world, name) for name in ("d", "e", "f")] == [100, 150, 200]

    world.policy(preemption=False, promises=2)
    (dropped,) = [event for event in world.rounds() if isinstance(event, PromiseDropped)]
    assert (dropped.job_id, dropped.cause) == ("f", PromiseCause.POLICY)


def test_a_shorter_gang_is_promised_the_hole_before_a_longer_ones_start() -> None:
    """Later promises are planned around earlier ones, and may come before them in time."""
    world = busy(promises=2)
    world.submit("large", 24, max_runtime_s=50, stop_grace_s=0)
    world.submit("hole", 16, max_runtime_s=200, stop_grace_s=0)
    world.rounds()

    assert (start_s(world, "large"), start_s(world, "hole")) == (300, 100)


def test_the_more_urgent_class_has_the_promise_where_depth_is_short() -> None:
    """One that comes later, of the same class, has not, whoever has less by then."""
    world = busy()
    world.submit("gang", 16)
    world.rounds()
    world.submit("later", 16, team="u")
    world.rounds()
    assert list(world.cluster.promises) == ["gang"]

    world.submit("urgent", 24, priority=Priority.URGENT)
    decided = world.rounds()
    assert said(decided, PromiseDropped, "gang")[0].cause is PromiseCause.POLICY
    assert said(decided, StartPromised, "urgent")


def test_a_cancelled_or_withdrawn_job_keeps_no_promise() -> None:
    """The nodes are anyone's in the same round."""
    world = busy()
    world.submit("gang", 16)
    world.submit("silent", 8)
    world.rounds()
    assert "silent" not in world.placed
    world.cancel(JobId("gang"))
    world.rounds()

    assert not world.cluster.promises
    assert "silent" in world.placed


def test_gangs_are_planned_by_the_gpu_and_not_by_the_node() -> None:
    """A promise for four GPUs of a node leaves the others there to all, also to what declares nothing."""
    world = World({"n1": 8})
    world.policy(preemption=False)
    world.submit("six", 6, max_runtime_s=100, stop_grace_s=0)
    world.rounds()
    world.submit("four", 4)
    world.submit("silent", 1)
    world.rounds()

    assert {share.slots.bit_count() for share in world.cluster.promises[JobId("four")].shares} == {4}
    assert world.placed["silent"] == [("n1", 1)]
    assert start_s(world, "four") == 100


def test_strict_first_in_first_out_holds_up_only_those_that_want_the_same_type() -> None:
    """Whatever is small waits behind the first that cannot start; another type has its own line."""
    world = busy(blocking=True, promises=0, order=JobOrder.FIFO)
    world.join("a1", 4, gpu_type="a100")
    world.submit("gang", 16, gpu_types=("h100",))
    world.submit("small", 1, gpu_types=("h100",))
    world.submit("other", 1, gpu_types=("a100",))
    world.rounds()

    assert "other" in world.placed
    assert "small" not in world.placed
    assert (hold(world, "gang"), hold(world, "small")) == (HoldCode.NO_ROOM, HoldCode.BEHIND)


def test_plans_of_a_round_are_bounded_and_all_are_made_in_the_end() -> None:
    """Conservative with many: some a round."""
    world = busy(promises=1_000)
    for number in range(PLANS_MAX + 5):
        world.submit(f"j{number:02d}", 16, max_runtime_s=10, stop_grace_s=0)
    rounds = [names(world.round()).count("StartPromised") for _ in range(4)]

    assert rounds == [PLANS_MAX, 5, 0, 0]


def test_a_gang_does_not_start_early_on_what_another_was_promised() -> None:
    """It has enough in its own promise; the other keeps the hole that it was promised, and so do both starts."""
    world = busy(promises=2)
    world.submit("large", 24, max_runtime_s=50, stop_grace_s=0)
    world.submit("hole", 16, max_runtime_s=200, stop_grace_s=0)
    world.rounds()
    world.wait(60)
    for name in ("one", "two"):
        world.end(JobId(name))
        world.release(JobId(name))
    decided = world.rounds()

    assert said(decided, JobPlaced, "hole")
    assert "large" not in world.placed
    assert start_s(world, "large") == 200  # the hole is over sooner


def test_a_promise_outlasts_what_is_set_aside_in_its_way() -> None:
    """It stands without a start while others are stopped on its GPUs; nobody else has it meanwhile, and then it has one again."""
    world = busy(preemption=True, min_runtime_s=0)
    world.submit("low", 8, priority=Priority.LOW, max_runtime_s=500, stop_grace_s=0)
    world.rounds()
    world.submit("gang", 24, max_runtime_s=50, stop_grace_s=0)
    world.submit("other", 8, max_runtime_s=50, stop_grace_s=0)
    world.rounds()
    assert start_s(world, "gang") == 500
    world.submit("urgent", 8, priority=Priority.URGENT, max_runtime_s=700, stop_grace_s=0)
    decided = world.rounds()

    assert names(decided).count("GpusEarmarked") == 1
    assert [(event.start, event.cause) for event in said(decided, PromiseMoved, "gang")] == [
        (None, PromiseCause.OVERTAKEN)
    ]
    (victim,) = world.cluster.earmarks[JobId("urgent")].victims
    world.end(world.cluster.runs[victim].job_id)
    world.release(world.cluster.runs[victim].job_id)
    decided += world.rounds()
    assert "urgent" in world.placed
    assert start_s(world, "gang") == 700
    assert not {"PromiseDropped", "StartPromised"} & set(names(decided))


def test_a_promise_without_a_time_holds_up_none_before_it() -> None:
    """What was promised to the first comes free early: it starts, though the second, of which nobody knows when, counts on it too."""
    world = World({"n1": 4, "n2": 4})
    world.policy(preemption=False, promises=3)
    timed = world.submit("timed", 4, max_runtime_s=600)
    world.submit("endless", 4)
    world.rounds()
    first = world.submit("first", 4, max_runtime_s=60, priority=Priority.HIGH)
    second = world.submit("second", 8, max_runtime_s=60)
    world.rounds()
    assert (start_s(world, first) or 0) > 500
    assert start_s(world, second) is None
    world.wait(100)
    world.finish(timed)
    world.rounds()

    assert world.run(first) is not None
