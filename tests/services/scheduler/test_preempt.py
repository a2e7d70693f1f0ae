"""Who is stopped within a team, who is left alone, and what is lost least."""

from collections.abc import Callable

import pytest

from events.base import JobId
from events.job import GpusEarmarked, Priority, RunStopping, StopCause
from events.node import EndReason
from tests.clusters import names
from tests.services.scheduler.evicting import HIGH, LOW, Stage, destination, stage, team

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
    made.start(new)
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
