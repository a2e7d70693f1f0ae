"""Lives of those who end for others, and of those for whom: in every race that agents, users and nodes can win."""

from typing import Any, Final

import pytest

from events.base import Event, JobId, NodeId
from events.job import (
    Checkpoint,
    EarmarkDropped,
    GpusEarmarked,
    JobFailed,
    JobPlaced,
    JobRequeued,
    JobSucceeded,
    JobTimedOut,
    Priority,
    RunStopping,
    StopCause,
)
from events.node import EndReason
from events.policy import Consolidation
from events.queues import Queue, QueueStop
from projections.cluster.job import JobState
from tests.clusters import names
from tests.services.scheduler.evicting import Stage

OLD: Final = JobId("old")
NEW: Final = JobId("new")
LOW: Final[dict[str, Any]] = {"priority": Priority.LOW}
HIGH: Final[dict[str, Any]] = {"priority": Priority.HIGH}


def evicting(**old: Any) -> Stage:
    """`old` runs on all GPUs of two nodes, and was told to end for `new`."""
    made = Stage({"n1": 8, "n2": 8})
    made.policy(min_runtime_s=0)
    made.running(OLD, {"n1": 8, "n2": 8}, **(LOW | old))
    made.hour()
    made.submit(NEW, 16, **HIGH)
    made.rounds()
    run = made.run(OLD)
    assert run is not None
    assert run.stopping is StopCause.PREEMPTED
    return made


def give_back(made: Stage, job_id: JobId, *nodes: str, reason: EndReason = EndReason.STOPPED) -> list[Event]:
    """The job's ranks ended there, their GPUs are back, and rounds say what follows."""
    made.end(job_id, *nodes, reason=reason)
    made.release(job_id, *nodes)
    return made.rounds()


def assert_no_trace(made: Stage) -> None:
    """Nothing is set aside or promised, and the auditor has nothing to say."""
    assert not made.cluster.earmarks
    assert all(not node.marked for node in made.cluster.nodes.values())
    made.assert_sound()


def test_a_victim_waits_again_at_its_old_age_without_blame() -> None:
    """No back-off, no retry used up; the eviction is counted; and it is not put back where it was."""
    made = evicting()
    age = made.job(OLD).submitted
    said = give_back(made, OLD)

    requeued = next(event for event in said if isinstance(event, JobRequeued))
    assert (requeued.cause, requeued.not_before) == (StopCause.PREEMPTED, made.at)
    old = made.job(OLD)
    assert (old.submitted, old.not_before, old.evictions, old.evicted_for) == (age, None, 1, (NEW,))
    assert (old.failures_application, old.failures_infrastructure) == (0, 0)
    assert [event.job_id for event in said if isinstance(event, JobPlaced)] == [NEW]
    assert_no_trace(made)


def test_what_comes_back_early_is_kept_until_the_set_is_complete() -> None:
    """A small job that would fit does not get in between, and the gang starts whole."""
    made = evicting()
    made.submit("small", 1, **HIGH)
    said = give_back(made, OLD, "n1")
    assert not [event for event in said if isinstance(event, JobPlaced)]
    assert made.run(NEW) is None

    said = give_back(made, OLD, "n2")

    assert [event.job_id for event in said if isinstance(event, JobPlaced)] == [NEW]
    assert_no_trace(made)


def test_a_victim_that_ended_well_before_the_word_reached_it_has_ended_well() -> None:
    """Told or not: its work is done."""
    made = evicting()
    said = give_back(made, OLD, reason=EndReason.EXITED)

    assert names(said)[0] == JobSucceeded.__name__
    assert made.run(NEW) is not None
    assert_no_trace(made)


def test_a_victim_that_reached_its_limit_meanwhile_timed_out() -> None:
    """It would have without us."""
    made = evicting(max_runtime_s=7200)
    said = give_back(made, OLD, reason=EndReason.TIME_LIMIT)

    assert names(said)[0] == JobTimedOut.__name__


def test_a_run_that_failed_before_it_was_told_failed() -> None:
    """A decision and a report cross: what the run did itself counts."""
    made = Stage({"n1": 8})
    made.policy(min_runtime_s=0)
    made.running(OLD, {"n1": 8}, **LOW)
    made.hour()
    new = made.waiting(NEW, 8, **HIGH)
    found = made.ask(new)
    assert found is not None
    made.end(OLD, code=3)
    made.stop_for(new, found)
    stopping = next(event for event in made.rounds() if isinstance(event, RunStopping))
    made.release(OLD)
    said = made.rounds()

    assert stopping.cause is StopCause.RANK_FAILED
    assert isinstance(said[0], JobFailed)
    assert made.run(new) is not None
    assert_no_trace(made)


def test_a_victim_that_is_gone_when_the_decision_lands_counts_as_stopped() -> None:
    """Its GPUs came back between the decision and its commit: nobody waits for what has happened."""
    made = Stage({"n1": 8})
    made.policy(min_runtime_s=0)
    made.running(OLD, {"n1": 8}, **LOW)
    made.hour()
    new = made.waiting(NEW, 8, **HIGH)
    found = made.ask(new)
    assert found is not None
    made.end(OLD)
    made.release(OLD)
    made.stop_for(new, found)
    made.rounds()

    assert made.run(new) is not None
    assert OLD not in made.cluster.jobs
    assert_no_trace(made)


def test_a_cancelled_preemptor_leaves_no_trace() -> None:
    """What was set aside is anyone's; the victim, which was told to stop, does so and starts again."""
    made = evicting()
    give_back(made, OLD, "n1")
    made.cancel(NEW)
    made.rounds()
    assert_no_trace(made)

    give_back(made, OLD, "n2")

    assert NEW not in made.cluster.jobs
    assert made.run(OLD) is not None
    assert made.job(OLD).evictions == 1
    assert_no_trace(made)


def test_a_cancelled_victim_is_cancelled_and_its_gpus_go_where_they_were_to_go() -> None:
    """It does not wait again."""
    made = evicting()
    made.cancel(OLD)
    give_back(made, OLD)

    assert OLD not in made.cluster.jobs
    assert made.run(NEW) is not None
    assert_no_trace(made)


def test_a_lost_node_of_the_set_ends_the_earmark_and_another_set_is_looked_for() -> None:
    """The rest is free at once; the job is not stuck with a set that never completes."""
    made = evicting()
    made.join("n3", 8)
    said = [*made.round({NodeId("n2"): 40.0}), *made.round({NodeId("n2"): 1_000.0})]
    said += made.rounds()
    said += give_back(made, OLD, "n1")

    assert any(isinstance(event, EarmarkDropped) for event in said)
    placed = [event for event in said if isinstance(event, JobPlaced) and event.job_id == NEW]
    assert [share.node_id for share in placed[0].shares] == ["n1", "n3"]
    assert_no_trace(made)


def test_a_victim_whose_queue_is_held_stops_once_and_waits_there() -> None:
    """Two reasons to stop are one stop."""
    made = evicting()
    made.queues(Queue(name=made.job(OLD).team, stop=QueueStop.HOLD))
    said = [*made.rounds(), *give_back(made, OLD)]

    assert not [event for event in said if isinstance(event, RunStopping)]
    assert made.job(OLD).state is JobState.QUEUED
    assert_no_trace(made)


def test_several_wait_for_their_victims_at_once_and_a_slow_one_holds_up_nobody_else() -> None:
    """Each owns its victims."""
    made = Stage({"n1": 8, "n2": 8})
    made.policy(min_runtime_s=0)
    made.running("slow", {"n1": 8}, **LOW)
    made.running("fast", {"n2": 8}, **LOW)
    made.hour()
    for name in ("a", "b"):
        made.submit(name, 8, **HIGH)
    said = made.rounds()
    assert len([event for event in said if isinstance(event, GpusEarmarked)]) == 2

    give_back(made, JobId("fast"))

    assert len(made.cluster.earmarks) == 1
    assert [made.run(JobId(name)) is not None for name in ("a", "b")].count(True) == 1


def test_a_job_that_is_stopped_again_and_again_runs_to_its_end_at_last() -> None:
    """A stream of urgent jobs stops it as often as the cap says, and not once more."""
    made = Stage({"n1": 8})
    made.policy(min_runtime_s=0, cool_down_s=0, evictions_max=2)
    made.running(OLD, {"n1": 8}, **LOW)
    made.hour()
    for number in range(5):
        urgent = made.submit(f"urgent{number}", 8, **HIGH)
        made.rounds()
        if made.run(OLD) is not None and OLD in {r.job_id for r in made.cluster.runs.values() if r.stopping}:
            give_back(made, OLD)
            made.finish(urgent)
            made.rounds()
            made.start(OLD)
            made.hour()

    assert made.job(OLD).evictions == 2
    run = made.run(OLD)
    assert run is not None
    assert run.stopping is None
    made.finish(OLD)
    assert OLD not in made.cluster.jobs


# Moved


def moving() -> Stage:
    """Two small runs stand in the way of a gang, and one of them was told to move."""
    made = Stage({"n1": 8, "n2": 8})
    made.policy(min_runtime_s=0, consolidation=Consolidation.DO, preemption=False)
    made.running("stays", {"n1": 4})
    made.running(OLD, {"n2": 4}, checkpoint=Checkpoint())
    made.hour()
    made.submit(NEW, 8, **HIGH)
    made.rounds()
    run = made.run(OLD)
    assert run is not None
    assert run.stopping is StopCause.CONSOLIDATED
    return made


def test_a_moved_job_goes_to_the_place_that_was_set_aside_for_it() -> None:
    """And the gang to that which it left; nobody else gets either."""
    made = moving()
    made.submit("small", 2, priority=Priority.URGENT)
    assert not [event for event in made.rounds() if isinstance(event, JobPlaced)]
    give_back(made, OLD)

    assert made.placed[NEW] == [("n2", 8)]
    assert made.placed[OLD] == [("n1", 4)]
    assert made.job(OLD).evictions == 1
    assert_no_trace(made)


@pytest.mark.parametrize("cancelled", [OLD, NEW])
def test_a_cancelled_move_leaves_no_trace(cancelled: JobId) -> None:
    """Of the mover or of the gang."""
    made = moving()
    made.cancel(cancelled)
    made.rounds()
    give_back(made, OLD)

    assert cancelled not in made.cluster.jobs
    assert made.run(NEW if cancelled == OLD else OLD) is not None
    assert_no_trace(made)


def test_a_move_whose_new_place_is_lost_is_a_requeue_like_any_other() -> None:
    """It waits for a place; the gang has its own."""
    made = moving()
    made.round({NodeId("n1"): 40.0})
    made.round({NodeId("n1"): 1_000.0})
    give_back(made, OLD)

    assert made.run(NEW) is not None
    assert made.job(OLD).state is not JobState.PLACED
    assert_no_trace(made)
