"""When a silent node is given up, when the network is suspected instead, and what both say of it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.alarm import AlarmCleared, AlarmCode, AlarmRaised
from events.base import Event, JobId, NodeId
from events.fleet import NodeLost, NodeSuspected, Patience
from events.job import OnLost
from projections.cluster.tick import Tick
from services.health.decide import decide
from tests.clusters import World, names

N1 = NodeId("n1")


def running(**spec: Any) -> World:
    """One node whose 8 GPUs a job has used for 300 s; it was heard last now."""
    world = World({"n1": 8, "n2": 8, "n3": 8, "n4": 8})
    world.start(world.put(world.submit("job", 8, **spec), n1=8))
    world.round()
    world.wait(300)
    return world


def silent_for(world: World, seconds: float, *nodes: str) -> dict[NodeId, float]:
    """Time has passed since these nodes were heard last."""
    world.wait(seconds)
    return dict.fromkeys(map(NodeId, nodes), seconds)


def said(world: World, silent: Mapping[NodeId, float], promised: Mapping[NodeId, float] | None = None) -> list[Event]:
    """What health says now, and is in the log from now on."""
    tick = Tick(at=world.at, position=world.tick().position, silent=silent, promised=promised or {})
    events = decide(world.cluster, tick)
    world.add(*events)
    return events


def test_a_node_is_given_up_once_waiting_has_cost_what_a_restart_costs() -> None:
    """8 GPUs x (300 + 120) s, and the record says all of it."""
    world = running()
    assert names(said(world, silent_for(world, 419.9, "n1"))) == ["NodeSuspected"]
    world.wait(0.1)

    (lost,) = said(world, {N1: 420.0})

    assert isinstance(lost, NodeLost)
    assert (lost.patience, lost.patience_s, lost.silent_s) == (Patience.COST, 420.0, 420.0)
    assert (lost.waiting_gpu_s, lost.restart_gpu_s) == (3_360.0, 3_360.0)


def test_a_suspect_is_judged_by_when_the_log_heard_it_last() -> None:
    """A new leader has waited for it since it began to lead; it worked until it fell silent, and no longer."""
    world = running()
    said(world, silent_for(world, 30, "n1"))
    world.wait(1_000)
    assert said(world, {N1: 419.0}) == []
    (lost,) = said(world, {N1: 420.0})
    assert isinstance(lost, NodeLost)
    assert lost.restart_gpu_s == 3_360.0


def test_what_its_agent_promised_is_waited_for() -> None:
    """It was told of a longer wait before a checkpoint made it shorter, and may not have heard of that."""
    world = running()
    silent = silent_for(world, 500, "n1")
    assert names(said(world, silent, {N1: 500.1})) == ["NodeSuspected"]
    (lost,) = said(world, silent, {N1: 500.0})
    assert isinstance(lost, NodeLost)
    assert (lost.patience, lost.patience_s) == (Patience.PROMISED, 500.0)


@pytest.mark.parametrize("on_lost", [OnLost.WAIT, None])
def test_a_promise_binds_only_where_something_may_start_elsewhere(on_lost: OnLost | None) -> None:
    """Nothing runs there, or it waits for its node anyway."""
    world = running(on_lost=on_lost) if on_lost else World({"n1": 8})
    (lost,) = said(world, silent_for(world, 420, "n1"), {N1: 900.0})
    assert isinstance(lost, NodeLost)


def test_returning_before_it_is_lost_costs_nothing() -> None:
    """Two words of the node, and none of its job: the attempt, its GPUs and its ranks are as they were."""
    world = running()
    before = world.run(JobId("job"))
    events = said(world, silent_for(world, 400, "n1")) + said(world, {})
    assert names(events) == ["NodeSuspected", "NodeRecovered"]
    assert world.run(JobId("job")) == before
    assert world.round() == []


# The network


def crowd(nodes: int, **policy: Any) -> World:
    """Idle nodes."""
    world = World({f"n{n}": 1 for n in range(nodes)})
    world.policy(**policy)
    return world


def test_many_silent_at_once_make_the_network_suspect_and_nobody_lost() -> None:
    """They are suspects, an alarm names some of them, and it is said once."""
    world = crowd(12)
    silent = silent_for(world, 1_000, "n1", "n2", "n3", "n4")

    alarm, *suspected = said(world, silent)

    assert isinstance(alarm, AlarmRaised)
    assert (alarm.code, alarm.count) == (AlarmCode.NETWORK_SUSPECTED, 4)
    assert alarm.node_ids == ("n1", "n2", "n3", "n4")
    assert alarm.message == "4 of 12 nodes are silent at once: none of them is given up."
    assert [type(event) for event in suspected] == [NodeSuspected] * 4
    assert said(world, silent) == []
    assert (world.free, len(world.cluster.suspects)) == (12, 4)


def test_when_fewer_are_silent_the_alarm_is_over_and_the_rest_is_lost_in_a_later_round() -> None:
    """In the round that ends it nobody is: the way has just become open again."""
    world = crowd(12)
    said(world, silent_for(world, 1_000, "n1", "n2", "n3", "n4"))
    rest = silent_for(world, 1_000, "n1", "n2", "n3")

    assert names(said(world, rest)) == ["AlarmCleared", "NodeRecovered"]
    assert names(said(world, rest)) == ["NodeLost"] * 3
    assert world.cluster.alarms == {}


@pytest.mark.parametrize(
    ("nodes", "silent", "percent", "lost"),
    [(12, 3, 25, 3), (12, 4, 25, 0), (2, 2, 25, 2), (3, 3, 25, 0), (4, 2, 1, 2), (12, 12, 0, 12), (12, 12, 100, 12)],
)
def test_as_many_as_the_policy_says_and_never_fewer_than_three(
    nodes: int, silent: int, percent: int, lost: int
) -> None:
    """A quarter is not more than a quarter; a cluster of two has no network to suspect; 0 never suspects it."""
    world = crowd(nodes, silent_percent=percent)
    events = said(world, silent_for(world, 1_000, *(f"n{n}" for n in range(silent))))
    assert names(events).count("NodeLost") == lost


def test_nodes_that_are_gone_or_emptied_on_purpose_do_not_count() -> None:
    """Neither as silent, nor as nodes: a rack that was drained and switched off says nothing of the network."""
    world = crowd(12)
    for name in ("n1", "n2"):
        node = world.cluster.nodes[NodeId(name)]
        world.add(NodeLost(at=world.at, node_id=node.node_id, node_epoch=node.epoch, silent_s=90.0))
    silent = silent_for(world, 1_000, "n1", "n2", "n3", "n4")
    assert names(said(world, silent)) == ["NodeLost"] * 2


@settings(max_examples=60)
@given(st.data())
def test_no_node_is_lost_while_more_are_silent_than_the_policy_allows(data: st.DataObject) -> None:
    """Whatever else: a law over clusters, silences and percentages, counted here."""
    nodes = data.draw(st.integers(1, 14))
    percent = data.draw(st.integers(0, 100))
    world = crowd(nodes, silent_percent=percent)
    world.wait(3_600)
    for _ in range(4):
        names_silent = data.draw(st.sets(st.integers(0, nodes - 1)))
        silent = {NodeId(f"n{n}"): data.draw(st.sampled_from([31.0, 89.0, 90.0, 2_000.0])) for n in names_silent}
        alive = {n for n, node in world.cluster.nodes.items() if node.state != "lost"}
        raised = bool(world.cluster.alarms)
        counted = len(silent.keys() & alive)
        suspected = percent > 0 and counted >= 3 and counted * 100 > percent * len(alive)
        events = said(world, silent)
        lost = {event.node_id for event in events if isinstance(event, NodeLost)}
        assert bool(world.cluster.alarms) == suspected
        due = {n for n, silent_s in silent.items() if n in alive and silent_s >= 90.0}
        assert lost == (set() if suspected or raised else due)
        assert [type(e) for e in events if isinstance(e, AlarmRaised | AlarmCleared)] == (
            [] if raised == suspected else [AlarmCleared if raised else AlarmRaised]
        )
        world.at += timedelta(seconds=1)
