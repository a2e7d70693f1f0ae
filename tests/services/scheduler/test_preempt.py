"""Who is stopped for whom: each rule, the least lost, whole gangs, and every kind of shape."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.base import JobId, NodeId, RunId
from events.codec import Codec, Stamp
from events.job import Checkpoint, Domain, GpusEarmarked, Priority, RunStopping, StopCause, Topology
from events.node import EndReason
from services.scheduler.preempt import Preemption
from tests.clusters import names
from tests.services.scheduler.evicting import Stage, destination, team

LOW: Final[dict[str, Any]] = {"priority": Priority.LOW}
HIGH: Final[dict[str, Any]] = {"priority": Priority.HIGH}


def stage(nodes: dict[str, int] | None = None, **policy: Any) -> Stage:
    """Nodes, and a policy under which everything may be tried."""
    made = Stage(nodes or {"n1": 8})
    made.policy(**({"min_runtime_s": 0, "cool_down_s": 0} | policy))
    return made


# Within a team


@pytest.mark.parametrize(
    ("victim", "asker", "stopped"),
    [
        (Priority.LOW, Priority.NORMAL, True),
        (Priority.LOW, Priority.URGENT, True),
        (Priority.NORMAL, Priority.NORMAL, False),
        (Priority.HIGH, Priority.NORMAL, False),
    ],
)
def test_only_a_lower_class_of_its_own_team_is_stopped(victim: Priority, asker: Priority, stopped: bool) -> None:
    """Equals and betters are left alone."""
    made = stage()
    made.running("old", {"n1": 8}, priority=victim)
    made.hour()

    assert made.victims(made.waiting("new", 8, priority=asker)) == (["old"] if stopped else [])


def test_equals_are_left_alone_though_lower_ones_run_beside_them() -> None:
    """One that could be stopped makes no other fair game."""
    made = stage({"n1": 8, "n2": 8})
    made.running("equal", {"n1": 8})
    made.running("low", {"n2": 8}, **LOW)
    made.hour()

    assert made.victims(made.waiting("one", 8)) == ["low"]
    assert made.ask(made.waiting("two", 16)) is None


def _not_preemptible(made: Stage) -> None:
    made.running("old", {"n1": 8}, preemptible=False, **LOW)
    made.hour()


def _too_young(made: Stage) -> None:
    made.policy(min_runtime_s=600, cool_down_s=0)
    made.running("old", {"n1": 8}, **LOW)
    made.wait(599)


def _at_its_cap(made: Stage) -> None:
    made.policy(min_runtime_s=0, cool_down_s=0, evictions_max=0)
    made.running("old", {"n1": 8}, **LOW)
    made.hour()


def _without_preemption(made: Stage) -> None:
    made.policy(min_runtime_s=0, preemption=False)
    made.running("old", {"n1": 8}, **LOW)
    made.hour()


def _about_to_end_for_another(made: Stage) -> None:
    made.running("old", {"n1": 8}, **LOW)
    made.hour()
    other = made.waiting("other", 8, **HIGH)
    found = made.ask(other)
    assert found is not None
    made.stop_for(other, found)


@pytest.mark.parametrize(
    "prepare",
    [_not_preemptible, _too_young, _at_its_cap, _without_preemption, _about_to_end_for_another],
    ids=lambda prepare: prepare.__name__.strip("_"),
)
def test_some_runs_are_left_alone(prepare: Callable[[Stage], None]) -> None:
    """Whatever waits."""
    made = stage()
    prepare(made)

    assert made.ask(made.waiting("new", 8, priority=Priority.URGENT)) is None


def test_a_run_is_left_alone_for_its_minimum_runtime_and_not_longer() -> None:
    """Counted from the start of its ranks."""
    made = stage(min_runtime_s=600)
    made.running("old", {"n1": 8}, **LOW)
    job = made.waiting("new", 8, **HIGH)
    made.wait(600)

    assert made.victims(job) == ["old"]


def evicted(made: Stage) -> None:
    """`old` was stopped for `first`, which ended; it runs again."""
    old, first = made.running("old", {"n1": 8}, **LOW), made.waiting("first", 8, **HIGH)
    made.hour()
    found = made.ask(first)
    assert found is not None
    made.stop_for(first, found)
    made.cancel(first)
    made.add(RunStopping(**made.tick().of_run(made.cluster.runs[old], made.job("old")), cause=StopCause.PREEMPTED))
    made.end(JobId("old"), reason=EndReason.STOPPED)
    made.release(JobId("old"))
    made.rounds()
    assert made.job("old").evictions == 1
    assert made.run(JobId("old")) is not None, "it is back"


@pytest.mark.parametrize(
    ("policy", "after_s", "stopped"),
    [
        ({"cool_down_s": 7200}, 3600, False),
        ({"cool_down_s": 3600}, 3600, True),
        ({"cool_down_s": 0, "evictions_max": 1}, 3600, False),
        ({"cool_down_s": 0, "evictions_max": 2}, 3600, True),
    ],
)
def test_a_job_is_stopped_again_neither_too_soon_nor_too_often(
    policy: dict[str, int], after_s: int, stopped: bool
) -> None:
    """Cool-down and cap are the job's, not the run's."""
    made = stage()
    evicted(made)
    made.policy(min_runtime_s=0, **policy)
    made.wait(after_s)

    assert made.victims(made.waiting("new", 8, **HIGH)) == (["old"] if stopped else [])


def test_a_job_takes_nothing_from_one_that_it_was_stopped_for() -> None:
    """For every two jobs, evictions go one way for ever, though an operator turns the shares round; another job may."""
    made = stage()
    made.queues(team("a", weight=0), team("b"))
    made.running("old", {"n1": 8}, team="a")
    made.hour()
    new = made.waiting("new", 8, team="b")
    assert set(names(made.rounds())) >= {"GpusEarmarked", "RunStopping"}
    made.end(JobId("old"), reason=EndReason.STOPPED)
    made.release(JobId("old"))
    made.queues(team("a"), team("b", weight=0))
    made.rounds()
    made.hour()

    assert made.job("old").evicted_for == (new,)
    assert made.run(new) is not None
    assert made.ask(JobId("old")) is None
    assert made.victims(made.waiting("other", 8, team="a")) == ["new"]

    made.policy(preemption=False, promises=0)
    made.rounds()
    assert len(made.cluster.admitted.groups()) == 1, "they stand in one line"
    made.policy(min_runtime_s=0, promises=0)
    (earmarked,) = [event for event in made.rounds() if isinstance(event, GpusEarmarked)]
    assert (earmarked.job_id, earmarked.victims) == ("other", ("new-1",)), (
        "it does not wait behind the one that may not"
    )


# Across teams


def shared(made: Stage) -> None:
    """Two teams of equal weight."""
    made.queues(team("a"), team("b"))


def test_a_team_takes_back_its_share_from_one_that_is_above_its_own() -> None:
    """Whatever the classes: a share is a share."""
    made = stage({"n1": 8, "n2": 8})
    shared(made)
    made.running("one", {"n1": 8}, team="a", **HIGH)
    made.running("two", {"n2": 8}, team="a", **HIGH)
    made.hour()
    made.save("two")
    made.wait(60)

    assert made.victims(made.waiting("mine", 8, team="b", **LOW)) == ["two"]


def test_nothing_is_taken_from_a_team_within_its_share() -> None:
    """The other has just what it is entitled to."""
    made = stage({"n1": 8, "n2": 8})
    shared(made)
    made.running("one", {"n1": 8}, team="a")
    made.running("two", {"n2": 8}, team="b")
    made.hour()

    assert made.ask(made.waiting("more", 8, team="b")) is None


def test_a_team_beyond_its_share_takes_nothing() -> None:
    """Borrowing never goes by force."""
    made = stage({"n1": 8, "n2": 8, "n3": 8, "n4": 8})
    made.queues(team("a"), team("b"), team("c", weight=2))
    made.running("a1", {"n1": 8, "n2": 8}, team="a")
    made.running("b1", {"n3": 8, "n4": 8}, team="b")
    made.hour()

    assert made.ask(made.waiting("b2", 8, team="b")) is None


def test_only_so_much_is_taken_as_a_team_has_too_much() -> None:
    """Victims count as they are chosen: the third would leave its team with less than its share."""
    made = stage({"n1": 4, "n2": 4, "n3": 4, "n4": 4})
    shared(made)
    for number in range(1, 4):
        made.running(f"a{number}", {f"n{number}": 4}, team="a")
    made.running("b1", {"n4": 4}, team="b")
    made.hour()

    assert len(made.victims(made.waiting("b2", 4, team="b"))) == 1
    assert made.ask(made.waiting("b3", 8, team="b", nodes=2, gpus_per_node=4)) is None


def test_what_is_given_back_never_makes_the_rest_illegal() -> None:
    """The cheapest victims would leave the team above its share, its own lower class still running: its own go first."""
    made = stage({"n1": 8, "n2": 8})
    shared(made)
    made.running("mine", {"n1": 4}, team="b", **LOW)
    made.running("theirs", {"n1": 4}, team="a")
    made.running("cheap", {"n2": 8}, team="a")
    made.hour()
    made.save("cheap")
    made.wait(60)

    assert made.victims(made.waiting("new", 8, team="b", **HIGH)) == ["mine", "theirs"]


def test_in_a_tree_the_queue_above_must_have_too_much_as_well() -> None:
    """A team that borrows from its sibling, inside a queue that has its share, is nobody else's to take from."""
    made = stage({"n1": 8, "n2": 8, "n3": 8, "n4": 8})
    made.queues(team("org"), team("a", parent="org"), team("b", parent="org"), team("c"))
    made.running("a1", {"n1": 8, "n2": 8}, team="a")
    made.running("c1", {"n3": 8}, team="c")
    made.running("c2", {"n4": 8}, team="c")
    made.hour()

    assert made.ask(made.waiting("c3", 8, team="c")) is None
    assert made.victims(made.waiting("b1", 8, team="b")) == ["a1"]


def test_a_team_has_its_own_from_a_sibling_though_their_organisation_has_too_much() -> None:
    """It has no more by it than before: what it has too much is for those outside to take."""
    made = stage({"n1": 8, "n2": 8})
    made.queues(team("org"), team("a", parent="org"), team("b", parent="org"), team("c"))
    for number, node in enumerate(("n1", "n1", "n2")):
        made.running(f"a{number}", {node: 4}, team="a")
    made.running("c1", {"n2": 4}, team="c")
    made.hour()
    made.waiting("c2", 4, team="c")

    (victim,) = made.victims(made.waiting("b1", 4, team="b"))
    assert victim.startswith("a")


def test_where_an_organisation_has_its_share_a_team_takes_from_a_sibling_and_not_from_who_is_cheapest() -> None:
    """Others have too much as well and lose less; with what they have the organisation would be beyond its share."""
    made = stage({"n1": 8, "n2": 8})
    made.queues(team("org", weight=2), team("a", parent="org"), team("b", parent="org"), team("c"), team("d"))
    for name, node in (("a1", "n1"), ("a2", "n1"), ("c1", "n2"), ("c2", "n2")):
        made.running(name, {node: 4}, team=name[0])
    made.hour()
    for name in ("c1", "c2"):
        made.save(name)
    made.wait(60)
    made.waiting("d1", 4, team="d")

    assert made.victims(JobId("d1")) == ["c1"]
    assert made.victims(made.waiting("b1", 4, team="b")) == ["a1"]


@given(st.data())
def test_without_a_change_from_outside_evictions_come_to_rest(data: st.DataObject) -> None:
    """No cap, no cool-down, no minimum: teams ask for more than there is, runs never end by themselves, and it settles.

    Nobody is stopped twice: who was stopped had too much, or was the least urgent, and still is.
    """
    made = stage({f"n{number}": 4 for number in range(4)}, evictions_max=99)
    made.queues(*(team(name, weight=data.draw(st.integers(1, 3))) for name in "abc"))
    for number in range(data.draw(st.integers(1, 12))):
        made.submit(
            f"j{number:02d}",
            data.draw(st.sampled_from((1, 2, 4, 8))),
            team=data.draw(st.sampled_from("abc")),
            priority=data.draw(st.sampled_from((Priority.LOW, Priority.NORMAL, Priority.HIGH))),
            min_gpus=data.draw(st.sampled_from((0, 0, 1))),  # elastic gangs too take from each other only so often
        )
        if data.draw(st.booleans()):
            obey(made)
    for _ in range(30):
        if not obey(made):
            break
    else:
        raise AssertionError(f"never at rest: {made.cluster.runs}")

    assert all(job.evictions <= len(made.cluster.jobs) for job in made.cluster.jobs.values())
    made.assert_sound()


def obey(made: Stage) -> int:
    """Rounds decide, and agents stop at once what was told to: so many victims were named."""
    named = sum(len(event.victims) for event in made.rounds() if isinstance(event, GpusEarmarked))
    for run in sorted(made.cluster.runs.values(), key=lambda run: run.run_id):
        if run.stopping is not None:
            made.end(run.job_id, reason=EndReason.STOPPED)
            made.release(run.job_id)
    made.hour()
    return named


def test_two_preemptors_of_one_round_never_count_on_the_same_victim() -> None:
    """Each run ends for one job: the second finds another, or none."""
    made = stage({"n1": 8, "n2": 8})
    made.running("one", {"n1": 8}, **LOW)
    made.running("two", {"n2": 8}, **LOW)
    made.hour()
    jobs = [made.waiting(f"new{number}", 8, **HIGH) for number in range(3)]
    scene = made.scene()
    chosen: list[Preemption | None] = []
    for job in jobs:
        if (found := made.ask(job, scene)) is not None:
            scene.evicted.update(found.victims)
            scene.room.reserve(found.shares)
        chosen.append(found)

    assert chosen[2] is None
    taken = [run_id for found in chosen[:2] if found is not None for run_id in found.victims]
    assert sorted(taken) == ["one-1", "two-1"]


# The least lost


def test_those_are_stopped_that_lose_least_since_they_last_saved() -> None:
    """GPU-seconds: a run that has just saved loses little, however long it has run."""
    made = stage({"n1": 8, "n2": 8, "n3": 8})
    made.running("long", {"n1": 8}, **LOW)
    made.running("saved", {"n2": 8}, **LOW)
    made.hour()
    made.running("young", {"n3": 8}, **LOW)
    made.wait(600)
    made.save("saved")
    made.wait(60)

    assert made.victims(made.waiting("new", 8, **HIGH)) == ["saved"]


def test_a_gang_counts_whole_and_one_that_is_chosen_costs_nothing_more() -> None:
    """Two nodes of one gang lose less than two gangs with one node there and three elsewhere."""
    made = stage({f"n{number}": 8 for number in range(1, 7)})
    made.running("wide", {"n1": 8, "n2": 8, "n3": 8, "n4": 8}, **LOW)
    made.wait(3000)
    made.running("one", {"n5": 8}, **LOW)
    made.running("two", {"n6": 8}, **LOW)
    made.wait(600)

    assert made.victims(made.waiting("small", 16, **HIGH)) == ["one", "two"]
    assert made.victims(made.waiting("large", 24, **HIGH)) == ["wide"]


def test_a_node_is_cheaper_once_the_gang_on_it_is_chosen() -> None:
    """Its other victim alone loses less than the run of another node, with the gang it would have lost more."""
    made = stage({"n1": 8, "n2": 8, "n3": 8})
    made.running("gang", {"n1": 8, "n2": 4}, **LOW)
    made.running("small", {"n2": 4}, **LOW)
    made.running("other", {"n3": 8}, **LOW)
    made.hour()
    made.save("small")
    made.save("other")
    made.wait(10)
    made.save("gang")
    made.wait(10)

    assert made.victims(made.waiting("one", 8, **HIGH)) == ["gang"]
    assert made.victims(made.waiting("two", 16, **HIGH)) == ["gang", "small"]


def test_victims_that_turn_out_not_to_be_needed_are_left_alone() -> None:
    """The cheap ones were chosen first; then a gang was that brings enough alone."""
    made = stage({f"n{number}": 8 for number in range(1, 6)})
    made.running("wide", {"n1": 8, "n2": 8, "n3": 8, "n4": 8}, **LOW)
    made.hour()
    made.running("cheap", {"n5": 8}, **LOW)
    made.wait(60)
    found = made.ask(made.waiting("new", 32, **HIGH))

    assert found is not None
    assert found.victims == ("wide-1",)


def test_what_is_free_and_what_ends_anyway_is_used_first() -> None:
    """Nobody is stopped for GPUs that come back without that."""
    made = stage({"n1": 8, "n2": 8, "n3": 8})
    made.running("ends", {"n1": 8}, **LOW)
    made.running("runs", {"n2": 8}, **LOW)
    made.hour()
    made.end(JobId("ends"))  # and is not released yet
    found = made.ask(made.waiting("new", 24, **HIGH))

    assert found is not None
    assert found.victims == ("runs-1",)
    assert destination(found) == {"n1": 8, "n2": 8, "n3": 8}


def test_of_equals_the_same_is_chosen_always() -> None:
    """By the names of nodes."""
    made = stage({"n3": 8, "n1": 8, "n2": 8})
    for name in ("n2", "n3", "n1"):
        made.running(f"on-{name}", {name: 8}, **LOW)
    made.hour()

    assert made.victims(made.waiting("new", 8, **HIGH)) == ["on-n1"]


# Every kind of shape


def test_a_small_job_takes_part_of_a_node() -> None:
    """As few GPUs as it needs, from those that lose least there; its neighbours run on."""
    made = stage()
    made.running("large", {"n1": 4}, **LOW)
    made.running("small", {"n1": 2}, **LOW)
    made.running("other", {"n1": 2}, preemptible=False, **LOW)
    made.hour()
    found = made.ask(made.waiting("new", 2, **HIGH))

    assert found is not None
    assert found.victims == ("small-1",)
    assert destination(found) == {"n1": 2}


def test_a_gang_stuck_on_one_small_neighbour_has_it_stopped() -> None:
    """Seven of eight GPUs are free: the eighth is looked at too, and counts as one."""
    made = stage({"n1": 8, "n2": 8})
    made.running("tiny", {"n1": 1}, **LOW)
    made.running("big", {"n2": 8}, **LOW)
    made.hour()

    assert made.victims(made.waiting("new", 8, **HIGH)) == ["tiny"]


def test_a_rest_goes_to_part_of_another_node() -> None:
    """Twelve GPUs: a whole node of eight, and four of another."""
    made = stage({"n1": 8, "n2": 8})
    made.running("whole", {"n1": 8}, **LOW)
    made.running("half", {"n2": 4}, **LOW)
    made.running("stays", {"n2": 4}, **HIGH)
    made.hour()
    found = made.ask(made.waiting("new", 12, **HIGH))

    assert destination(found) == {"n1": 8, "n2": 4}
    assert found is not None
    assert sorted(found.victims) == ["half-1", "whole-1"]


def test_nodes_times_gpus_go_to_parts_of_so_many_nodes() -> None:
    """Four nodes x two: what is there beside stays."""
    made = stage({f"n{number}": 8 for number in range(1, 5)})
    for number in range(1, 5):
        made.running(f"stays{number}", {f"n{number}": 6}, **HIGH)
        made.running(f"goes{number}", {f"n{number}": 2}, **LOW)
    made.hour()
    found = made.ask(made.waiting("new", 8, nodes=4, gpus_per_node=2, **HIGH))

    assert destination(found) == {f"n{number}": 2 for number in range(1, 5)}


def test_types_are_tried_in_the_order_of_preference() -> None:
    """The first where it can be; never on two."""
    made = stage({"n1": 8})
    made.join("a1", 8, gpu_type="a100")
    made.running("on-h", {"n1": 8}, **LOW)
    made.running("on-a", {"a1": 8}, **LOW)
    made.hour()

    assert made.victims(made.waiting("a", 8, gpu_types=("a100", "h100"), **HIGH)) == ["on-a"]
    assert made.victims(made.waiting("h", 8, gpu_types=("b200", "h100"), **HIGH)) == ["on-h"]
    assert made.ask(made.waiting("both", 16, **HIGH)) is None


def test_labels_and_taints_hold_for_destinations() -> None:
    """Nobody is stopped on a node that the job may not use, nor on one that is cordoned."""
    made = stage({})
    made.join("n1", 8)
    made.join("n2", 8, taints=("experimental",))
    made.join("n3", 8, labels={"net": "ib"})
    for name in ("n1", "n2", "n3"):
        made.running(f"on-{name}", {name: 8}, **LOW)
    made.hour()

    assert made.victims(made.waiting("labelled", 8, labels={"net": "ib"}, **HIGH)) == ["on-n3"]
    assert made.ask(made.waiting("two", 24, **HIGH)) is None
    assert made.victims(made.waiting("three", 24, tolerates=("experimental",), **HIGH)) == ["on-n1", "on-n2", "on-n3"]


def racked(spare: str = "") -> Stage:
    """Two racks of two nodes, all taken; that of `spare` has saved just now."""
    made = stage({})
    for number in range(1, 5):
        made.join(f"n{number}", 8, labels={"spine": "s", "rack": f"r{(number + 1) // 2}"})
        made.running(f"on-n{number}", {f"n{number}": 8}, **LOW)
    made.hour()
    for number in (1, 4):
        made.save(f"on-n{number}")
    made.wait(60)
    if spare:
        made.save(f"on-{spare}")
    return made


@pytest.mark.parametrize(("spare", "stopped"), [("n2", ["on-n1", "on-n2"]), ("n3", ["on-n3", "on-n4"])])
def test_a_gang_that_must_stay_in_a_rack_takes_the_rack_that_loses_least(spare: str, stopped: list[str]) -> None:
    """Full racks are looked at too: what could be freed there counts."""
    made = racked(spare)
    near = Topology(within=Domain.RACK)

    assert made.victims(made.waiting("near", 16, topology=near, **HIGH)) == stopped
    assert made.ask(made.waiting("too-large", 24, topology=near, **HIGH)) is None


def test_a_gang_that_would_like_a_rack_gets_one_or_goes_anywhere() -> None:
    """Closeness comes before loss where it can be had."""
    made = racked("n2")
    near = Topology(within=Domain.RACK, required=False)

    assert made.victims(made.waiting("near", 16, topology=near, **HIGH)) == ["on-n1", "on-n2"]
    assert len(made.victims(made.waiting("wide", 24, topology=near, **HIGH))) == 3


def test_an_elastic_gang_has_only_its_least_freed() -> None:
    """It never takes from others what it can do without."""
    made = stage({"n1": 8, "n2": 8})
    made.running("one", {"n1": 8}, **LOW)
    made.running("two", {"n2": 8}, **LOW)
    made.hour()
    found = made.ask(made.waiting("elastic", 16, min_gpus=8, **HIGH))

    assert destination(found) == {"n1": 8}


def test_a_broken_gpu_keeps_a_node_from_being_whole() -> None:
    """One of eight was never found clean."""
    made = stage({})
    made.join("n1", 8, clean=False)
    made.join("n2", 8)
    made.running("two", {"n2": 8}, **LOW)
    made.hour()

    assert made.victims(made.waiting("new", 8, **HIGH)) == ["two"]
    assert made.ask(made.waiting("newer", 16, **HIGH)) is None


def test_what_is_promised_to_a_job_before_it_is_not_its_to_take() -> None:
    """Slots that are reserved in the room, free or not."""
    made = stage({"n1": 8, "n2": 8})
    made.running("one", {"n1": 8}, **LOW)
    made.running("two", {"n2": 8}, **LOW)
    made.hour()
    scene = made.scene()
    scene.room.reserve(made.cluster.runs[RunId("one-1")].shares)
    found = made.ask(made.waiting("new", 8, **HIGH), scene)

    assert found is not None
    assert found.victims == ("two-1",)


def test_the_search_leaves_its_scene_as_it_was() -> None:
    """Found or not."""
    made = stage({"n1": 8, "n2": 8})
    shared(made)
    made.running("one", {"n1": 8}, team="a")
    made.running("two", {"n2": 8}, team="a")
    made.hour()
    new, scene = made.waiting("new", 8, team="b"), made.scene()
    first = made.ask(new, scene)

    assert first is not None
    assert made.ask(new, scene) == first
    assert scene.evicted == set()
    assert scene.standing.used(made.cluster.jobs[new].team, "h100") == 0


def test_two_thousand_victims_fit_into_one_message() -> None:
    """A decision is one event: the limit of a message is 1 MiB."""
    made = stage({f"n{number:04d}": 8 for number in range(250)})
    for number in range(2000):
        made.running(f"job-with-a-name-{number:04d}", {f"n{number // 8:04d}": 1}, **LOW)
    made.hour()
    new = made.waiting("new", 2000, **HIGH)
    found = made.ask(new)
    assert found is not None
    event = GpusEarmarked(**made.tick().of_job(made.cluster.jobs[new]), shares=found.shares, victims=found.victims)

    assert len(found.victims) == 2000
    assert len(Codec().encode(event, Stamp("d"))) < 200_000


@given(st.data())
def test_a_destination_is_found_whenever_there_is_one_and_no_victim_is_idle(data: st.DataObject) -> None:
    """Over random clusters of gangs: enough for the shape, all on free or victims' slots, and none could be spared."""
    made = stage({f"n{number}": 4 for number in range(4)})
    kept = 0
    for number in range(data.draw(st.integers(0, 6))):
        free = [node for node in made.cluster.nodes.values() if node.spare]
        some = (
            data.draw(st.lists(st.sampled_from([node.node_id for node in free]), unique=True, max_size=3))
            if free
            else []
        )
        on = {str(n): data.draw(st.integers(1, made.cluster.nodes[n].spare.bit_count())) for n in some}
        if on:
            low = data.draw(st.booleans())
            made.running(f"r{number}", on, priority=Priority.LOW if low else Priority.URGENT)
            kept += not low
        made.wait(data.draw(st.integers(0, 100)))
    gpus = data.draw(st.sampled_from((1, 2, 3, 4, 8, 10, 16)))
    job = made.waiting("new", gpus, **HIGH)
    found = made.ask(job)

    could = {
        node.node_id: 4 - sum(s.bit_count() for r, s in node.held.items() if made.cluster.runs[r].rank == 0)
        for node in made.cluster.nodes.values()
    }
    nodes, rest = (0, gpus) if gpus < 4 else divmod(gpus, 4)
    whole = sum(gpu == 4 for gpu in could.values())
    fits = whole >= nodes and (not rest or sum(gpu >= rest for gpu in could.values()) > nodes)
    lows = any(run.rank == 3 for run in made.cluster.runs.values())
    assert (found is not None) == (fits and lows)
    if found is not None:
        _assert_lean(made, found, nodes, rest)


def _assert_lean(made: Stage, found: Preemption, nodes: int, rest: int) -> None:
    sizes = sorted((share.slots.bit_count() for share in found.shares), reverse=True)
    assert sizes == [4] * nodes + [rest] * bool(rest)
    for left_out in ("", *found.victims):
        have = {name: node.free for name, node in made.cluster.nodes.items()}
        for run_id in found.victims:
            for share in made.cluster.runs[run_id].shares if run_id != left_out else ():
                have[share.node_id] |= share.slots
        enough = all(not share.slots & ~have[NodeId(share.node_id)] for share in found.shares)
        assert enough == (not left_out)


def test_a_checkpoint_contract_alone_saves_nothing() -> None:
    """What counts is a checkpoint that was saved."""
    made = stage({"n1": 8, "n2": 8})
    made.running("able", {"n1": 8}, checkpoint=Checkpoint(), **LOW)
    made.wait(60)
    made.running("young", {"n2": 8}, **LOW)
    made.hour()

    assert made.victims(made.waiting("new", 8, **HIGH)) == ["young"]


def test_a_whole_node_is_had_by_floor_though_no_node_holds_just_what_others_have_too_much() -> None:
    """Weights 5:3:2 on eight full nodes: of eight that are due, five are too much of one team's, three of another's."""
    stage = Stage({f"n{number}": 8 for number in range(8)})
    stage.policy(min_runtime_s=0)
    stage.queues(team("a", weight=5), team("b", weight=3), team("c", weight=2))
    for number in range(64):
        whose = "a" if number < 40 else "b"
        stage.running(f"{whose}{number}", {f"n{number // 8}": 1}, team=whose)
    due = stage.waiting("due", 8, team="c")
    victims = stage.victims(due)

    assert len(victims) == 8
    assert {name[0] for name in victims} == {"a"}, "down to its floor of 32"
    assert stage.victims(stage.waiting("larger", 16, team="c")) == [], "its floor is 13"
