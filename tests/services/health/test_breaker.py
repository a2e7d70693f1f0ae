"""The breaker: what health takes out by itself has a limit, beyond which it calls a person."""

from events.alarm import AlarmCleared, AlarmCode, AlarmRaised
from events.base import NodeId
from events.fleet import DrainCause, NodeDrainBegun, NodeRetired
from events.gpu import GpuJudged, Recovery
from events.operator import NodeDrainAsked, NodeUndrainAsked
from projections.cluster.fitness import PENDING_MAX
from services.health.breaker import Breaker, out_of
from tests.clusters import names
from tests.services.health.ward import N1, Ward


def ward(nodes: int = 5, gpus: int = 4, percent: int = 20) -> Ward:
    """Twenty GPUs, of which four may be out."""
    made = Ward({f"n{number + 1}": gpus for number in range(nodes)})
    made.policy(breaker_percent=percent)
    return made


def test_as_many_as_the_policy_allows_go_and_the_rest_waits_for_a_person() -> None:
    """The alarm is raised once, and says the numbers; nothing is said again while nothing changes."""
    world = ward()
    for number in (1, 2, 3, 4, 5):
        world.signal(95, f"n{number}-0")
    said = world.judge()

    assert names(said) == ["GpuJudged"] * 5 + ["AlarmRaised"]
    assert [event.held_back for event in said if isinstance(event, GpuJudged)] == [False] * 4 + [True]
    alarm = said[-1]
    assert isinstance(alarm, AlarmRaised)
    assert (alarm.code, alarm.node_ids, alarm.count) == (AlarmCode.BREAKER, ("n5",), 1)
    assert alarm.message.startswith(
        "4 of 20 GPUs are out by verdicts and automatic drains, and 20 % is the most: 1 more"
    )
    assert world.sick("n5") == 0
    assert world.judge() == []


def test_what_was_held_back_goes_when_something_has_come_back_and_the_alarm_is_over() -> None:
    """In one round; the sign has waited."""
    world = ward()
    for number in (1, 2, 3, 4, 5):
        world.signal(95, f"n{number}-0")
    world.judge()
    world.recover(Recovery.RESET, "n1-0")

    assert names(world.judge()) == ["GpuReturned", "GpuJudged", "AlarmCleared"]
    assert (world.sick("n1"), world.sick("n5")) == (0, 1)
    assert world.fitness("n5").pending == ()


def test_what_was_held_back_stops_its_run_all_the_same() -> None:
    """And it is found sound by an operator's word as any other."""
    world = ward(percent=0)
    job = world.put(world.submit("job", 1), n1=1)
    world.signal(95)
    assert names(world.judge()) == ["GpuJudged", "AlarmRaised"]
    run = world.run(job)
    assert run is not None
    assert run.hurt
    world.recover(Recovery.DRIVER)
    assert [type(e) for e in world.judge()] == [GpuJudged, AlarmCleared]
    assert (world.fitness().pending, world.sick()) == ((), 0)


def test_one_gpu_and_one_node_may_always_go() -> None:
    """Else a small cluster would run on broken ones."""
    world = ward(nodes=2)
    world.signal(79)
    assert names(world.judge()) == ["GpuJudged", "NodeDrainBegun"]
    world.signal(95, "n2-0")
    assert names(world.judge()) == ["GpuJudged", "AlarmRaised"]
    assert world.sick("n2") == 0


def test_a_node_that_may_not_go_keeps_its_other_gpus_in_use() -> None:
    """The GPU may, its node not: the drain comes when there is room for it."""
    world = ward()
    world.signal(95)
    world.signal(79, "n2-0")
    assert names(world.judge()) == ["GpuJudged", "GpuJudged", "AlarmRaised"]
    assert world.cluster.nodes[NodeId("n2")].spare == 0b1110
    assert not world.cluster.nodes[NodeId("n2")].closed
    world.recover()
    assert names(world.judge()) == ["GpuReturned", "NodeDrainBegun", "AlarmCleared"]


def test_what_an_operator_drained_does_not_count() -> None:
    """That is no fault of a table; a GPU that is out there does, and so does all of an automatic drain."""
    world = ward()
    for number in (1, 2, 3):
        world.add(NodeDrainAsked(at=world.at, node_id=world.of(f"n{number}")["node_id"], reason="fans"))
    assert Breaker(world.cluster).out == 0
    world.signal(95)
    world.judge()
    assert out_of(world.cluster.nodes[N1]) == 1
    world.add(NodeUndrainAsked(at=world.at, node_id=N1), NodeDrainBegun(**world.of("n1"), cause=DrainCause.LEMON))
    assert Breaker(world.cluster).out == 4


def test_what_is_out_already_takes_no_room() -> None:
    """A graver verdict on it is not held back, whatever the policy says by then."""
    world = ward()
    world.signal(95)
    world.judge()
    world.policy(breaker_percent=0)
    world.signal(79)
    assert names(world.judge()) == ["GpuJudged", "AlarmRaised"]  # its node would be more
    assert [ailment.rule for ailment in world.fitness().ailments.values()] == ["xid 79"]


def test_a_retired_node_is_none_of_the_cluster() -> None:
    """Neither its GPUs nor those of them that are out are counted."""
    world = ward()
    world.signal(95, "n2-0")
    world.judge()
    before = Breaker(world.cluster)
    assert (before.gpus, before.out) == (20, 1)
    world.add(NodeRetired(**world.of("n2")))
    after = Breaker(world.cluster)
    assert (after.gpus, after.out) == (16, 0)


def test_a_person_is_told_anew_when_something_else_is_held_back() -> None:
    """Of which nodes, and how much; and at which percentage."""
    world = ward(percent=5)
    for number in (1, 2, 3):
        world.signal(95, f"n{number}-0")
        world.judge()
    alarm = world.cluster.alarms[AlarmCode.BREAKER]
    assert (alarm.node_ids, alarm.count) == (("n2", "n3"), 2)
    assert alarm.message.endswith("2 more would be taken out, on 2 nodes")
    assert world.judge() == []
    world.policy(breaker_percent=0)
    world.judge()
    assert "0 % is the most" in world.cluster.alarms[AlarmCode.BREAKER].message
    assert world.judge() == []


def test_a_sign_that_comes_again_and_again_waits_once() -> None:
    """Else what one GPU says would leave no room for what the others of its node have to say."""
    world = ward(percent=0)
    for _ in range(PENDING_MAX + 1):
        world.signal(95)
        world.judge()
    assert len(world.fitness().pending) == 1
    assert world.verdict(94, "n1-1").rule == "xid 94"
