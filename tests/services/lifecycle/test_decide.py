"""What becomes of runs, in every race that an agent and a user can win."""

from datetime import timedelta

import msgspec
import pytest

from events.base import JobId, NodeId, TeamId
from events.job import (
    JobCancelled,
    JobFailed,
    JobRequeued,
    JobSucceeded,
    NodeShare,
    OnLost,
    RunStopping,
    StopCause,
)
from events.node import EndReason, GpusReleased
from events.queues import Queue, QueueStop
from projections.cluster.job import JobState
from services.control.round import decide_all
from tests.clusters import World, names


def placed(world: World, gpus: int = 8, **spec: object) -> JobId:
    """A job that has its GPUs."""
    job = world.submit("a", gpus, **spec)
    world.rounds()
    assert job in world.placed
    return job


def test_a_gang_has_started_when_all_its_shares_have() -> None:
    """Not before."""
    world = World({"n1": 4, "n2": 4})
    job = placed(world)
    world.start(job, "n1")
    assert world.rounds() == []

    world.start(job, "n2")

    assert names(world.rounds()) == ["RunStarted"]


def test_it_succeeds_when_every_share_ended_well_and_every_gpu_is_back() -> None:
    """One release is missing: nothing is said yet."""
    world = World({"n1": 4, "n2": 4})
    job = placed(world)
    world.start(job)
    world.end(job)
    world.release(job, "n1")
    assert "JobSucceeded" not in names(world.rounds())

    world.release(job, "n2")

    assert names(world.rounds()) == ["JobSucceeded"]
    assert world.free == 8
    world.assert_sound()


def test_one_failed_rank_stops_the_gang_and_the_job_fails_with_its_code() -> None:
    """The other shares are told to stop; the failure names the node and the code."""
    world = World({"n1": 4, "n2": 4})
    job = placed(world)
    world.start(job)
    world.end(job, "n2", code=3)
    stopping = world.rounds()[-1]
    assert isinstance(stopping, RunStopping)
    assert (stopping.cause, stopping.node_id, stopping.exit_code) == (StopCause.RANK_FAILED, "n2", 3)

    world.end(job, "n1", reason=EndReason.STOPPED, code=143)
    world.release(job)
    (failed,) = world.rounds()

    assert isinstance(failed, JobFailed)
    assert (failed.cause, failed.exit_code, failed.node_id) == (StopCause.RANK_FAILED, 3, "n2")
    world.assert_sound()


def test_retries_of_application_and_infrastructure_are_counted_apart() -> None:
    """A lost node does not use up what the user allowed for his own failures."""
    world = World({"n1": 8, "n2": 8})
    job = placed(world, retries_application=1, retries_infrastructure=1)
    world.round({NodeId("n1"): 1_000.0})
    world.rounds()
    world.wait(10)
    world.rounds()
    run = world.run(job)
    assert run is not None
    assert run.attempt == 2

    for attempt in (2, 3):
        world.end(job, code=1)
        world.release(job)
        last = world.rounds()
        world.wait(400)
        last += world.rounds()
        assert ("JobRequeued" in names(last)) == (attempt == 2)

    assert names(last)[-1] == "JobFailed"
    world.assert_sound()


def test_requeued_it_keeps_its_age_and_waits_for_its_back_off() -> None:
    """Then it goes before a job that was submitted while it ran."""
    world = World({"n1": 8})
    job = placed(world, retries_application=1)
    later = world.submit("later", 8)
    world.end(job, code=1)
    world.release(job)
    (requeued, *_) = [e for e in world.round() if isinstance(e, JobRequeued)]
    assert requeued.not_before > world.at
    assert world.cluster.jobs[job].state is JobState.QUEUED

    world.end(later)
    world.release(later)
    world.wait(2)
    world.rounds()

    assert world.run(job) is not None


@pytest.mark.parametrize("moment", ["queued", "admitted", "placed", "running"])
def test_cancelled_at_any_moment_it_ends_and_frees_its_gpus(moment: str) -> None:
    """Without GPUs at once; with GPUs when its agents have given them back."""
    world = World({"n1": 8})
    if moment == "admitted":
        world.submit("before", 8)
    job = world.submit("a", 8)
    if moment != "queued":
        world.rounds()
    if moment == "running":
        world.start(job)
        world.rounds()

    world.cancel(job)
    said = world.rounds()

    if moment in ("queued", "admitted"):
        assert "JobCancelled" in names(said)
    else:
        assert isinstance(said[-1], RunStopping)
        assert world.free == 0
        world.end(job, reason=EndReason.STOPPED)
        world.release(job)
        assert isinstance(world.rounds()[-1], JobCancelled)
        assert world.free == 8
    world.assert_sound()


def test_a_cancel_that_lands_between_decision_and_placement_stops_the_run() -> None:
    """The placement is in the log: its GPUs are released by its agent, not forgotten."""
    world = World({"n1": 8})
    job = world.submit("a", 8)
    decided = decide_all(world.cluster, world.tick())
    world.cancel(job)
    world.add(*decided)

    assert [type(e) for e in world.rounds()] == [RunStopping]
    world.end(job, reason=EndReason.NEVER_STARTED)
    world.release(job)
    assert names(world.rounds()) == ["JobCancelled"]
    world.assert_sound()


def test_a_node_lost_between_decision_and_placement_ends_the_run() -> None:
    """Its share is dead on arrival; no GPU is owed to anyone."""
    world = World({"n1": 8, "n2": 8})
    job = world.submit("a", 8)
    decided = decide_all(world.cluster, world.tick())
    world.join("n1", 8)
    world.add(*decided)

    assert names(world.rounds()) == ["JobRequeued"]
    world.wait(2)
    world.rounds()
    assert job in world.placed
    world.assert_sound()


def test_a_success_is_not_undone_by_a_late_cancel_or_a_lost_node() -> None:
    """All ranks ended well: what comes before the release changes nothing."""
    world = World({"n1": 8})
    job = placed(world)
    world.end(job)
    world.cancel(job)
    assert world.rounds() == []

    world.round({NodeId("n1"): 1_000.0})

    world.rounds()
    assert [r.event.job_id for r in world.records if isinstance(r.event, JobSucceeded)] == [job]
    world.assert_sound()


def test_ranks_that_fail_because_a_node_went_are_not_the_users_fault() -> None:
    """The exit codes came first, the loss after: it is requeued as a failure of ours."""
    world = World({"n1": 4, "n2": 4, "n3": 4})
    job = placed(world, retries_application=0)
    world.start(job)
    world.rounds()
    world.end(job, "n2", code=1)
    world.rounds()
    world.release(job, "n2")
    said = world.round({NodeId("n1"): 1_000.0})
    said += world.rounds()

    (requeued,) = [e for e in said if isinstance(e, JobRequeued)]
    assert requeued.cause is StopCause.NODE_LOST
    world.assert_sound()


def test_a_gang_of_which_a_part_had_ended_well_starts_whole_again() -> None:
    """One node is lost when the other's ranks have ended well: the next attempt counts nothing of the first as done."""
    world = World({"n1": 4, "n2": 4, "n3": 4})
    job = placed(world)
    world.start(job)
    world.end(job, "n1")
    world.release(job, "n1")
    world.rounds()
    world.round({NodeId("n2"): 1_000.0})
    world.rounds()
    world.wait(400)
    world.rounds()

    assert world.placed[job] == [("n1", 4), ("n3", 4)]
    world.start(job)
    world.end(job, "n1")
    world.release(job, "n1")
    assert "JobSucceeded" not in names(world.rounds())
    world.end(job, "n3")
    world.release(job, "n3")
    assert "JobSucceeded" in names(world.rounds())
    world.assert_sound()


def test_gangs_that_lose_nodes_one_after_the_other_start_whole_or_wait_holding_nothing() -> None:
    """Two gangs of two nodes each lose three of four: of the three that are left one gang gets two, the other none."""
    world = World({f"n{number}": 4 for number in range(1, 5)})
    jobs = [world.submit(name, 8) for name in "ab"]
    world.rounds()
    world.join("n5", 4)
    world.join("n6", 4)
    for lost in ("n1", "n3", "n5"):  # the last of them while the others are being replaced
        world.round({NodeId(lost): 1_000.0})
        world.rounds()
    for job in jobs:
        run = world.run(job)
        if run is not None and run.stopping is not None:
            world.end(job, *(share.node_id for share in run.shares if share.node_id in ("n2", "n4")))
            world.release(job, *(share.node_id for share in run.shares if share.node_id in ("n2", "n4")))
    world.rounds()
    world.wait(400)
    world.rounds()

    assert [run.gpus for run in world.cluster.runs.values()] == [8]
    assert world.free == 4
    world.assert_sound()


def test_on_lost_wait_starts_nothing_elsewhere_until_the_node_is_clean() -> None:
    """The node may live on, out of reach."""
    world = World({"n1": 8, "n2": 8})
    job = placed(world, on_lost=OnLost.WAIT)
    assert "RunStopping" in names(world.round({NodeId("n1"): 1_000.0}) + world.rounds())
    world.wait(1_000)
    assert world.rounds() == []

    world.join("n1", 8)
    world.wait(10)
    world.rounds()
    world.wait(10)
    world.rounds()

    assert world.placed[job]
    assert world.cluster.jobs[job].attempt == 2
    world.assert_sound()


def test_a_late_or_doubled_release_frees_nothing_of_another_run() -> None:
    """The slots belong to the next run by now."""
    world = World({"n1": 4})
    first = placed(world, 4)
    run = world.run(first)
    assert run is not None
    share: NodeShare = run.shares[0]
    world.end(first)
    world.release(first)
    world.rounds()
    second = world.submit("b", 4)
    world.rounds()
    assert world.free == 0

    late = GpusReleased(
        at=world.at, node_id=share.node_id, node_epoch=share.node_epoch, run_id=run.run_id, slots=share.slots
    )
    world.add(late, late)

    assert world.free == 0
    assert world.run(second) is not None
    assert world.rounds() == []


def test_a_time_limit_reported_by_the_node_ends_the_job_as_timed_out() -> None:
    """Enforced where the ranks are, judged here."""
    world = World({"n1": 8})
    job = placed(world)
    world.end(job, reason=EndReason.TIME_LIMIT, code=143)
    assert names(world.rounds()) == ["RunStopping"]

    world.release(job)

    assert names(world.rounds()) == ["JobTimedOut"]
    assert TeamId("t") == world.records[-1].event.team  # type: ignore[attr-defined]


def test_a_leader_whose_clock_is_years_ahead_delays_no_retry_for_long() -> None:
    """What is waited for is bounded by the server's time."""
    world = World({"n1": 8})
    job = placed(world, retries_application=1)
    world.end(job, code=1)
    world.release(job)
    ahead = msgspec.structs.replace(world.tick(), at=world.at + timedelta(days=3_000))
    world.add(*decide_all(world.cluster, ahead))
    world.wait(301)
    world.rounds()

    assert world.cluster.jobs[job].attempt == 2


def test_runs_of_a_queue_on_hold_are_stopped_and_their_jobs_wait_again_without_blame() -> None:
    """Also where the hold is said of a queue above; a pause stops nothing."""
    world = World({"n1": 8})
    job = world.submit("a", 8)
    world.rounds()
    team = Queue(name=TeamId("t"), parent="org")
    world.queues(Queue(name=TeamId("org"), stop=QueueStop.PAUSE), team)
    assert names(world.rounds()) == []

    world.queues(Queue(name=TeamId("org"), stop=QueueStop.HOLD), team)

    (stopping,) = world.rounds()
    assert isinstance(stopping, RunStopping)
    assert stopping.cause is StopCause.QUEUE_HELD
    world.end(job, reason=EndReason.STOPPED)
    world.release(job)
    assert names(world.rounds()) == ["JobRequeued", "JobHeld"]
    after = world.cluster.jobs[job]
    assert (after.not_before, after.failures_application, after.failures_infrastructure) == (None, 0, 0)
    world.assert_sound()

    world.queues(team)
    assert names(world.rounds()) == ["JobAdmitted", "JobPlaced"]


def test_a_hold_that_is_lifted_before_a_round_saw_it_stops_nothing() -> None:
    """States are compared, not changes."""
    world = World({"n1": 8})
    world.submit("a", 8)
    world.rounds()
    world.queues(Queue(name=TeamId("t"), stop=QueueStop.HOLD))
    assert world.cluster.attention

    world.queues()

    assert world.rounds() == []


def test_a_run_that_ended_well_is_not_stopped_for_a_hold() -> None:
    """All its ranks have ended: it succeeds."""
    world = World({"n1": 8})
    job = world.submit("a", 8)
    world.rounds()
    world.start(job)
    world.end(job)
    world.queues(Queue(name=TeamId("t"), stop=QueueStop.HOLD))
    world.release(job)

    assert "JobSucceeded" in names(world.rounds())
