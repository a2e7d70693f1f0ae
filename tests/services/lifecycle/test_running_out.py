"""Runs whose credits run out are told to stop in time for their grace; they wait for credits then, at their old age."""

from datetime import timedelta
from typing import Any

import pytest

from events.base import JobId
from events.credit import CreditCommitted, CreditEvent, CreditsRunningOut, EndedAs, UsageUncovered
from events.job import Checkpoint, HoldCode, JobRequeued, JobSucceeded, RunStopping, StopCause
from events.node import EndReason
from events.policy import Bearer, Overrun
from projections.cluster.job import Run
from tests.clusters import World, names
from tests.purses import CREDIT, Purse

HOUR_S = 3_600
JOB = JobId("job")


def running(granted: int, *, policy: dict[str, Any] | None = None, **spec: Any) -> Purse:
    """A cluster in which a job runs on 8 GPUs that cost a credit an hour each; an instalment is an hour."""
    world = Purse({"n1": 8}, granted=granted, **(policy or {}))
    world.submit("job", 8, **spec)
    world.round()
    world.start(JOB)
    world.round()
    return world


def run_of(world: Purse) -> Run:
    """The job's run."""
    run = world.run(JOB)
    assert run is not None
    return run


def pass_until_told(world: Purse, *, step_s: float, most_s: float) -> float | None:
    """A round every so often, until the run is told to stop: after how many seconds; None: it is not."""
    began = world.at
    while (world.at - began).total_seconds() < most_s:
        world.wait(step_s)
        world.round()
        if run_of(world).stopping is not None:
            return (world.at - began).total_seconds()
    return None


@pytest.mark.parametrize(
    "spec",
    [
        {"stop_grace_s": 10},
        {"stop_grace_s": 600, "checkpoint": Checkpoint(grace_s=1_200)},
        {"stop_grace_s": 0},
        {"stop_grace_s": 2 * HOUR_S},  # more than is covered: a tenth of that is for its work
    ],
    ids=["short", "long", "none", "too long"],
)
@pytest.mark.parametrize("granted", [8, 12], ids=["an instalment", "a part of another"])
def test_a_run_is_told_to_stop_so_early_that_its_grace_ends_before_what_is_reserved(
    spec: dict[str, Any], granted: int
) -> None:
    """With a cause of its own; and if it keeps its grace, it uses no more than that."""
    world = running(granted, **spec)
    grace_s = spec["stop_grace_s"] + (spec["checkpoint"].grace_s if "checkpoint" in spec else 0)
    covered_s = granted * HOUR_S / 8
    due_s = covered_s - min(grace_s + 2, covered_s - covered_s // 10)
    began = world.at
    assert pass_until_told(world, step_s=30, most_s=due_s - 30) is None
    assert pass_until_told(world, step_s=0.5, most_s=HOUR_S)
    told = (world.at - began).total_seconds()
    assert run_of(world).stopping is StopCause.CREDITS
    assert told == due_s
    world.wait(min(grace_s + 1.0, covered_s - told))
    world.end(JOB, reason=EndReason.STOPPED)
    world.release(JOB)
    said = world.round()
    assert not any(isinstance(event, UsageUncovered) for event in said)
    (committed,) = (event for event in said if isinstance(event, CreditCommitted))
    assert (committed.outcome, committed.amount_micro <= granted * CREDIT) == (EndedAs.CREDITS, True)
    World.assert_sound(world)


def test_it_waits_for_credits_without_blame_and_goes_on_when_there_are_some() -> None:
    """At its old age and with all its retries."""
    world = running(8)
    assert pass_until_told(world, step_s=5, most_s=HOUR_S)
    world.end(JOB, reason=EndReason.STOPPED)
    world.release(JOB)
    said = world.round()
    assert [event.cause for event in said if isinstance(event, JobRequeued)] == [StopCause.CREDITS]
    job = world.cluster.jobs[JOB]
    assert (job.hold, job.not_before, job.failures_application, job.failures_infrastructure) == (
        HoldCode.CREDITS,
        None,
        0,
        0,
    )
    assert job.submitted == min(
        record.position for record in world.records if type(record.event).__name__ == "JobSubmitted"
    )
    world.grant(8 * CREDIT)
    assert names([event for event in world.round() if not isinstance(event, CreditEvent)]) == [
        "JobAdmitted",
        "JobPlaced",
    ]
    assert run_of(world).attempt == 2


def test_credits_that_come_before_its_stop_keep_it_running() -> None:
    """Even in the last moment."""
    world = running(8, stop_grace_s=8)
    assert pass_until_told(world, step_s=10, most_s=HOUR_S - 20) is None
    assert world.bill(JOB).running_out is not None
    world.grant(8 * CREDIT)
    world.wait(9.9)
    world.round()
    assert pass_until_told(world, step_s=10, most_s=HOUR_S - 30) is None
    assert world.bill(JOB).covers_s == 2 * HOUR_S


def test_a_run_that_has_ended_is_not_stopped_for_credits() -> None:
    """It only gives its GPUs back."""
    world = running(8, stop_grace_s=8)
    pass_until_told(world, step_s=10, most_s=HOUR_S - 20)
    world.end(JOB)
    world.wait(60)
    assert not any(isinstance(event, RunStopping) for event in world.round())
    world.release(JOB)
    assert any(isinstance(event, JobSucceeded) for event in world.round())


def test_another_cause_is_graver() -> None:
    """A user who cancels at that moment is not told of credits; and the run is told once."""
    world = running(8, stop_grace_s=8)
    pass_until_told(world, step_s=10, most_s=HOUR_S - 20)
    world.cancel(JOB)
    world.wait(60)
    assert [event.cause for event in world.round() if isinstance(event, RunStopping)] == [StopCause.CANCEL]
    assert not any(isinstance(event, RunStopping) for event in world.round())


def test_a_run_beyond_its_declared_runtime_goes_on_while_it_is_paid_for() -> None:
    """Where policy lets it; then it is told, and stopped."""
    world = running(12, policy={"overrun": Overrun.EXTEND}, max_runtime_s=HOUR_S, stop_grace_s=8)
    told = pass_until_told(world, step_s=10, most_s=3 * HOUR_S)
    assert told == HOUR_S * 3 / 2 - 10
    assert [type(r.event) for r in world.records].count(CreditsRunningOut) == 1


@pytest.mark.parametrize("bearer", list(Bearer))
def test_what_a_run_uses_beyond_is_borne_by_whom_the_policy_says(bearer: Bearer) -> None:
    """Its agent took ten minutes more than its grace."""
    world = running(8, policy={"uncovered": bearer}, stop_grace_s=8)
    pass_until_told(world, step_s=10, most_s=HOUR_S)
    world.at = run_of(world).placed_at + timedelta(seconds=HOUR_S + 600)
    world.end(JOB, reason=EndReason.STOPPED)
    world.release(JOB)
    said = world.round()
    (uncovered,) = (event for event in said if isinstance(event, UsageUncovered))
    assert uncovered.bearer is bearer
    assert (world.book().balance, sum(world.cluster.credits.debts.values())) == (
        0,
        uncovered.amount_micro if bearer is Bearer.ACCOUNT else 0,
    )
