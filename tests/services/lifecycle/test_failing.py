"""What jobs may do about failures: budgets apart, held when those of others are used up, and a deadline for gangs to start."""

from typing import Any

import pytest

from events.base import Event, GpuUuid, JobId, NodeId, Position
from events.fleet import NodeSuspected
from events.gpu import GpuAction, GpuJudged, GpuSignal, GpuSignalled
from events.job import (
    FailureCategory,
    GpusEarmarked,
    HoldCode,
    JobCancelled,
    JobFailed,
    JobHeld,
    JobPlaced,
    JobRequeued,
    JobResumeAsked,
    JobSucceeded,
    NodeShare,
    Priority,
    RunStopping,
    StopCause,
)
from events.node import EndReason, ShareEnded, ShareStarted
from events.operator import NodeDrainAsked
from events.queues import Queue, QueueStop
from projections.cluster.explain.why import explain
from projections.cluster.job import Job, JobState, Run
from projections.cluster.snapshot import dump, load
from services.control.round import decide_all
from tests.clusters import World, names

JOB = JobId("job")


def job_of(world: World, job_id: JobId = JOB) -> Job:
    """The job."""
    return world.cluster.jobs[job_id]


def run_of(world: World, job_id: JobId = JOB) -> Run:
    """Its run."""
    run = world.run(job_id)
    assert run is not None
    return run


def only(events: list[Event], kind: type[Event]) -> Any:
    """The one event of a kind."""
    (found,) = [event for event in events if isinstance(event, kind)]
    return found


def resume(world: World, job_id: JobId = JOB) -> None:
    """Somebody looked at it."""
    world.add(JobResumeAsked(at=world.at, team=job_of(world, job_id).team, job_id=job_id))


def held(*, retries: int = 1) -> World:
    """A job that nodes have ended once more often than it may be."""
    world = World({"n1": 8})
    world.submit(JOB, 8, retries_infrastructure=retries)
    world.rounds()
    for attempt in range(retries + 1):
        assert run_of(world).attempt == attempt + 1
        world.lose("n1")
        world.rounds()
        world.join("n1", 8)
        world.wait(400)
        world.rounds()
    return world


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_job_that_failures_of_others_ended_too_often_waits_for_a_person(retries: int) -> None:
    """It takes part in nothing: it wants nothing, stands in no line, nothing else is said of it, and others go on."""
    world = held(retries=retries)
    job = job_of(world)
    assert (job.state, job.hold, job.failures_infrastructure) == (
        JobState.QUEUED, HoldCode.FAILED_TOO_OFTEN, retries + 1
    )  # fmt: skip
    last = [r.event for r in world.records if isinstance(r.event, JobRequeued)][-1]
    assert (last.held, last.category, last.avoid) == (True, FailureCategory.NODE, ("n1",))
    assert job.not_before is None, "resumed, it has nothing to wait for"
    assert not world.cluster.wanted
    lines = (world.cluster.queue, world.cluster.later, world.cluster.admitted)
    assert [line.groups() for line in lines] == [[], [], []]
    world.queues(Queue(name=job.team, stop=QueueStop.PAUSE))
    assert world.rounds() == []
    world.queues(Queue(name=job.team))
    world.wait(10_000)
    assert world.rounds() == []
    assert explain(world.cluster, JOB, at=world.at).code == HoldCode.FAILED_TOO_OFTEN

    other = world.submit("other", 8)
    world.rounds()
    assert world.run(other) is not None
    world.assert_sound()


def test_resumed_it_has_its_budgets_as_at_first_and_its_old_age() -> None:
    """Both of them; and what is not held is not changed by a second word."""
    world = held(retries=1)
    age = job_of(world).submitted
    resume(world)
    job = job_of(world)
    assert (job.hold, job.failures_infrastructure, job.failures_application) == (HoldCode.NOT_EVALUATED, 0, 0)
    assert names(world.rounds()) == ["JobAdmitted", "JobPlaced"]
    assert (run_of(world).attempt, job_of(world).submitted) == (3, age)

    world.lose("n1")
    world.rounds()
    resume(world)
    again = job_of(world)
    assert (again.hold is HoldCode.FAILED_TOO_OFTEN, again.failures_infrastructure) == (False, 1)
    world.assert_sound()


def test_a_held_job_can_be_cancelled() -> None:
    """It has no GPUs: at once."""
    world = held()
    world.cancel(JOB)
    assert names(world.rounds()) == ["JobCancelled"]
    resume_late = JobResumeAsked(at=world.at, team=world.records[-1].event.team, job_id=JOB)  # type: ignore[attr-defined]
    world.add(resume_late)
    assert world.rounds() == []


def test_a_held_job_is_held_in_a_snapshot_too() -> None:
    """A new leader finds it as it was, and a resumed one where it belongs."""
    world = held()
    restored = load(dump(world.cluster), log_id="test")
    assert restored is not None
    assert decide_all(restored, world.tick()) == []
    world.cluster = restored
    resume(world)
    assert names(world.rounds()) == ["JobAdmitted", "JobPlaced"]


def test_what_is_set_aside_for_a_moved_job_that_is_held_is_given_back() -> None:
    """Its node was lost while it was to move, and nothing is retried: it is not put where it was to go."""
    world = World({"n1": 8, "n2": 8})
    world.submit(JOB, 8, retries_infrastructure=0)
    gang = world.submit("gang", 16, priority=Priority.HIGH)
    world.put(JOB, n1=8)
    run, n2 = run_of(world), world.cluster.nodes[NodeId("n2")]
    ids: dict[str, Any] = {"at": world.at, "team": job_of(world).team}
    there = (NodeShare(n2.node_id, n2.epoch, run.shares[0].slots),)
    here = tuple(run.shares)
    world.decide(
        GpusEarmarked(**ids, job_id=JOB, shares=there),
        GpusEarmarked(**ids, job_id=gang, shares=here, victims=(run.run_id,), moved=True),
    )
    world.lose("n1")
    said = world.rounds()
    assert only(said, JobRequeued).held
    assert not [event for event in said if isinstance(event, JobPlaced) and event.job_id == JOB]
    assert JOB not in world.cluster.earmarks


@pytest.mark.parametrize("budget", [0, 2])
def test_application_failures_end_a_job_when_their_budget_is_used_up(budget: int) -> None:
    """And take nothing of the other one."""
    world = World({"n1": 8})
    world.submit(JOB, 8, retries_application=budget, retries_infrastructure=0)
    said: list[Event] = []
    for _ in range(budget + 1):
        world.rounds()
        world.end(JOB, code=9)
        world.release(JOB)
        said = world.rounds()
        world.wait(400)
    failed = only(said, JobFailed)
    assert (failed.category, failed.exit_code, failed.node_id) == (FailureCategory.USER, 9, "n1")
    assert JOB not in world.cluster.jobs


def test_a_run_moved_off_a_drained_node_takes_no_budget_and_names_the_node() -> None:
    """At its deadline; nobody failed."""
    world = World({"n1": 8})
    world.submit(JOB, 8, retries_infrastructure=0)
    world.rounds()
    world.start(JOB)
    world.rounds()
    world.add(NodeDrainAsked(at=world.at, node_id=NodeId("n1"), reason="fans", deadline=world.at))
    stopping = only(world.rounds(), RunStopping)
    assert (stopping.cause, stopping.node_id) == (StopCause.DRAIN, "n1")
    world.end(JOB, reason=EndReason.STOPPED, code=143)
    world.release(JOB)
    requeued = only(world.rounds(), JobRequeued)
    assert (requeued.cause, requeued.category, requeued.node_id, requeued.held, requeued.avoid) == (
        StopCause.DRAIN, FailureCategory.NONE, "n1", False, ()
    )  # fmt: skip
    assert job_of(world).failures_infrastructure == 0


# The deadline of a start


def starting(*, policy_s: int = 300, **spec: Any) -> World:
    """A gang of which one node has started its ranks, and the other has not."""
    world = World({"n1": 4, "n2": 4, "n3": 4})
    world.policy(start_within_s=policy_s)
    world.submit(JOB, 8, **spec)
    world.rounds()
    world.start(JOB, "n1")
    assert "RunStopping" not in names(world.rounds())
    return world


@pytest.mark.parametrize(("spec", "policy_s", "due_s"), [({}, 300, 300), ({"start_within_s": 20}, 300, 20)])
def test_a_gang_that_is_not_complete_in_time_is_released_whole_and_tried_elsewhere(
    spec: dict[str, Any], policy_s: int, due_s: int
) -> None:
    """The node that is not up is named, blamed, and avoided; what runs already is stopped with the rest."""
    world = starting(policy_s=policy_s, **spec)
    world.wait(due_s - 0.1)
    assert world.rounds() == []
    world.wait(0.1)
    stopping = only(world.rounds(), RunStopping)
    assert (stopping.cause, stopping.node_id) == (StopCause.START_DEADLINE, "n2")
    assert world.rounds() == [], "it is told once"

    world.end(JOB, "n1", reason=EndReason.STOPPED, code=143)
    world.end(JOB, "n2", reason=EndReason.NEVER_STARTED)
    world.release(JOB)
    requeued = only(world.rounds(), JobRequeued)
    assert (requeued.cause, requeued.category, requeued.node_id, requeued.exit_code, requeued.avoid) == (
        StopCause.START_DEADLINE, FailureCategory.NODE, "n2", 0, ("n2",)
    )  # fmt: skip
    assert job_of(world).failures_infrastructure == 1
    world.wait(30)
    world.rounds()
    assert world.placed[JOB] == [("n1", 4), ("n3", 4)]
    world.assert_sound()


def test_each_attempt_has_its_whole_time_to_start() -> None:
    """The clock belongs to the attempt, not to the job."""
    world = starting()
    world.wait(200)
    world.lose("n2")
    world.rounds()
    world.end(JOB, "n1", reason=EndReason.STOPPED)
    world.release(JOB, "n1")
    world.rounds()
    world.wait(5)
    world.rounds()
    assert run_of(world).attempt == 2
    world.wait(299)
    assert "RunStopping" not in names(world.rounds())
    world.wait(1)
    assert only(world.rounds(), RunStopping).cause is StopCause.START_DEADLINE


def test_a_complete_gang_has_no_deadline_and_costs_a_round_nothing() -> None:
    """Nor has one where the policy knows none."""
    world = starting()
    assert world.cluster.starting.count(None) == 1
    world.start(JOB, "n2")
    world.rounds()
    assert world.cluster.starting.count(None) == 0
    world.wait(10_000)
    assert world.rounds() == []
    endless = starting(policy_s=0)
    endless.wait(10_000_000)
    assert endless.rounds() == []


def test_the_deadline_of_a_suspect_node_counts() -> None:
    """Its silence is judged by its own rules, and may last longer."""
    world = starting()
    node = world.cluster.nodes[NodeId("n2")]
    world.decide(NodeSuspected(at=world.at, node_id=node.node_id, node_epoch=node.epoch, silent_s=31.0))
    world.wait(300)
    said = world.round({node.node_id: 45.0})
    assert only(said, RunStopping).node_id == "n2"


def test_a_deadline_is_kept_by_whoever_leads() -> None:
    """From a snapshot too; and a policy that is set later is for runs that are placed later."""
    world = starting()
    restored = load(dump(world.cluster), log_id="test")
    assert restored is not None
    world.cluster = restored
    world.policy(start_within_s=10_000)
    world.wait(300)
    assert only(world.rounds(), RunStopping).cause is StopCause.START_DEADLINE


# One cause, and another


def preempting(world: World) -> None:
    """The run is to end for an urgent job."""
    urgent = world.submit("urgent", 8, priority=Priority.URGENT)
    run = run_of(world)
    shares = run.shares
    ids: dict[str, Any] = {"at": world.at, "team": job_of(world).team, "job_id": urgent}
    world.decide(GpusEarmarked(**ids, shares=shares, victims=(run.run_id,)))


def test_preempted_in_the_middle_of_its_start_it_is_preempted() -> None:
    """Its deadline passes while it stops: the first cause stays, and nobody is blamed."""
    world = starting()
    preempting(world)
    assert only(world.rounds(), RunStopping).cause is StopCause.PREEMPTED
    world.wait(400)
    assert not [event for event in world.rounds() if isinstance(event, RunStopping)]
    world.end(JOB, "n1", reason=EndReason.STOPPED)
    world.end(JOB, "n2", reason=EndReason.NEVER_STARTED)
    world.release(JOB)
    requeued = only(world.rounds(), JobRequeued)
    assert (requeued.cause, requeued.category, requeued.avoid) == (
        StopCause.PREEMPTED, FailureCategory.PREEMPTED, ()
    )  # fmt: skip


def test_stopped_for_its_start_it_is_not_preempted_as_well() -> None:
    """Whoever waits for its GPUs gets them when they are back."""
    world = starting()
    world.wait(300)
    world.rounds()
    preempting(world)
    assert not [event for event in world.rounds() if isinstance(event, RunStopping)]
    world.end(JOB, "n1", reason=EndReason.STOPPED)
    world.end(JOB, "n2", reason=EndReason.NEVER_STARTED)
    world.release(JOB)
    assert only(world.rounds(), JobRequeued).cause is StopCause.START_DEADLINE


@pytest.mark.parametrize("cause", ["start", "node", "rank"])
def test_cancelled_while_it_stops_for_another_cause_it_is_cancelled(cause: str) -> None:
    """Nobody wants it again."""
    world = starting(retries_application=3)
    if cause == "start":
        world.wait(300)
    elif cause == "node":
        world.lose("n2")
    else:
        world.end(JOB, "n1", code=1)
    assert "RunStopping" in names(world.rounds())
    world.cancel(JOB)
    world.end(JOB, reason=EndReason.STOPPED)
    world.release(JOB)
    assert [type(event) for event in world.rounds()] == [JobCancelled]


@pytest.mark.parametrize("action", [GpuAction.RESTART, GpuAction.EVICT])
def test_a_run_that_ended_well_before_its_gpu_was_judged_has_succeeded(action: GpuAction) -> None:
    """All ranks exited with 0: there is nothing to do again."""
    world = starting()
    world.start(JOB, "n2")
    world.rounds()
    world.end(JOB)
    node = world.cluster.nodes[NodeId("n2")]
    ids: dict[str, Any] = {"at": world.at, "node_id": node.node_id, "node_epoch": node.epoch, "signalled": node.epoch}
    world.decide(GpuJudged(**ids, gpu_uuid=GpuUuid("n2-0"), signal=GpuSignal.XID, code=79, action=action, table="t"))
    assert "RunStopping" not in names(world.rounds())
    world.release(JOB)
    assert any(isinstance(event, JobSucceeded) for event in world.rounds())


def test_reports_of_a_run_that_is_over_change_nothing() -> None:
    """Late, of an attempt that has been followed by another."""
    world = starting()
    first = run_of(world)
    world.lose("n2")
    world.rounds()
    world.end(JOB, "n1", reason=EndReason.STOPPED)
    world.release(JOB, "n1")
    world.rounds()
    world.wait(5)
    world.rounds()
    before = dump(world.cluster)
    for share in first.shares:
        ids: dict[str, Any] = {"at": world.at, "node_id": share.node_id, "node_epoch": share.node_epoch}
        world.add(
            ShareStarted(**ids, run_id=first.run_id),
            ShareEnded(**ids, run_id=first.run_id, reason=EndReason.EXITED, exit_code=137, out_of_memory=True),
        )
    after = load(dump(world.cluster), log_id="test")
    was = load(before, log_id="test")
    assert after is not None
    assert was is not None
    assert (after.jobs, after.runs, after.nodes) == (was.jobs, was.runs, was.nodes)


# A sign of trouble that comes with the exit


def test_nobody_is_blamed_before_a_sign_of_a_gpu_of_the_run_is_judged() -> None:
    """The driver's word and the rank's exit come together: what the GPU is judged to be decides."""
    world = World({"n1": 8})
    world.submit(JOB, 8, retries_application=0)
    world.rounds()
    world.start(JOB)
    world.rounds()
    node = world.cluster.nodes[NodeId("n1")]
    world.end(JOB, code=1)
    world.release(JOB)
    sign: dict[str, Any] = {"signal": GpuSignal.XID, "code": 79, "source": "kernel"}
    world.add(GpuSignalled(at=world.at, node_id=node.node_id, node_epoch=node.epoch, gpu_uuid=GpuUuid("n1-3"), **sign))
    said = world.rounds()
    requeued = only(said, JobRequeued)
    assert (requeued.cause, requeued.category, requeued.node_id) == (StopCause.GPU, FailureCategory.GPU, "n1")
    assert not [event for event in said if isinstance(event, JobFailed)]


def test_an_old_log_in_which_a_lost_node_failed_a_job_is_read_as_it_was_meant() -> None:
    """The job is over."""
    world = World({"n1": 8})
    world.submit(JOB, 8)
    world.rounds()
    run = run_of(world)
    world.lose("n1")
    ids: dict[str, Any] = {"at": world.at, "team": job_of(world).team, "job_id": JOB, "run_id": run.run_id}
    world.decide(JobFailed(**ids, cause=StopCause.NODE_LOST, node_id=NodeId("n1")))
    assert JOB not in world.cluster.jobs
    world.assert_sound()


def test_a_word_about_a_held_job_of_an_older_control_plane_is_believed() -> None:
    """Which does not know that it is held, and tells it another reason."""
    world = held()
    world.decide(JobHeld(at=world.at, team=job_of(world).team, job_id=JOB, code=HoldCode.NO_ROOM))
    assert job_of(world).hold is HoldCode.NO_ROOM
    assert "JobAdmitted" in names(world.rounds())
    assert world.cluster.position > Position(0)
