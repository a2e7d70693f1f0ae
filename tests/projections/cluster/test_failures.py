"""Whose failure an end was: each line of the table, by what agents and health said, in the order in which they said it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from events.base import Event, GpuUuid, JobId, NodeId
from events.gpu import GpuAction, GpuJudged, GpuSignal
from events.job import FailureCategory, JobCancelled, JobFailed, JobRequeued, JobTimedOut, RunStopping, StopCause
from events.node import EndReason, ShareEnded
from projections.cluster.failures import (
    BACK_OFF_S,
    TABLE,
    Budget,
    Verdict,
    back_off,
    budget_of,
    outweighs,
    retried,
    verdict_on,
)
from projections.cluster.job import BACK_OFF_MAX, Failure, Run
from tests.clusters import World

JOB = JobId("gang")
Say = Callable[[World], None]


def gang(**spec: Any) -> World:
    """A gang that runs on two nodes of four, all its ranks started."""
    world = World({"n1": 4, "n2": 4, "n3": 4, "n4": 4})
    world.submit(JOB, 8, **spec)
    world.rounds()
    world.start(JOB)
    world.rounds()
    return world


def run_of(world: World) -> Run:
    """The run of the gang."""
    run = world.run(JOB)
    assert run is not None
    return run


def ended(node: str, code: int = 0, reason: EndReason = EndReason.EXITED, **said: Any) -> Say:
    """The share on a node has ended so."""

    def say(world: World) -> None:
        run = run_of(world)
        share = next(share for share in run.shares if share.node_id == node)
        ids: dict[str, Any] = {"node_id": share.node_id, "node_epoch": share.node_epoch, "run_id": run.run_id}
        world.add(ShareEnded(at=world.at, **ids, reason=reason, exit_code=code, **said))

    return say


def lost(node: str) -> Say:
    """A node is given up."""
    return lambda world: world.lose(node)


def rejoined(node: str) -> Say:
    """A node begins another life: what ran there is over."""

    def say(world: World) -> None:
        world.join(node, 4)

    return say


def judged(node: str, action: GpuAction = GpuAction.EVICT) -> Say:
    """A verdict on the first GPU of a node."""

    def say(world: World) -> None:
        epoch = world.cluster.nodes[NodeId(node)].epoch
        ids: dict[str, Any] = {"node_id": NodeId(node), "node_epoch": epoch, "gpu_uuid": GpuUuid(f"{node}-0")}
        xid: dict[str, Any] = {"signal": GpuSignal.XID, "code": 79, "signalled": epoch, "table": "t"}
        world.decide(GpuJudged(at=world.at, **ids, **xid, action=action))

    return say


def rounds(world: World) -> None:
    """The control plane says what it has to say: whatever comes after was told to stop."""
    world.rounds()


def returned(*nodes: str) -> Say:
    """Their agents give the GPUs back."""
    return lambda world: world.release(JOB, *nodes)


CASES: dict[str, tuple[tuple[Say, ...], FailureCategory, StopCause, str, int]] = {
    "a rank exits": ((ended("n1", 3),), FailureCategory.USER, StopCause.RANK_FAILED, "n1", 3),
    "the first of two counts": (
        (ended("n2", 3), ended("n1", 4)), FailureCategory.USER, StopCause.RANK_FAILED, "n2", 3,
    ),
    "the kernel killed it": (
        (ended("n1", 137, out_of_memory=True),), FailureCategory.OUT_OF_MEMORY, StopCause.RANK_FAILED, "n1", 137,
    ),
    "what died of that said so first": (
        (ended("n2", 1), rounds, ended("n1", 137, out_of_memory=True)),
        FailureCategory.OUT_OF_MEMORY, StopCause.RANK_FAILED, "n1", 137,
    ),
    "a node is lost": ((lost("n1"),), FailureCategory.NODE, StopCause.NODE_LOST, "n1", 0),
    "a node reboots": (
        (ended("n2", 0, EndReason.NODE_REBOOTED),), FailureCategory.NODE, StopCause.NODE_LOST, "n2", 0,
    ),
    "a node joins anew": ((rejoined("n2"),), FailureCategory.NODE, StopCause.NODE_LOST, "n2", 0),
    "ranks exit because a node went": (
        (ended("n2", 1), rounds, returned("n2"), lost("n1")), FailureCategory.NODE, StopCause.NODE_LOST, "n1", 1,
    ),
    "a node could not start its ranks": (
        (ended("n2", 127, EndReason.START_FAILED),), FailureCategory.NODE, StopCause.START_FAILED, "n2", 127,
    ),
    "a rank exits because another was never started": (
        (ended("n1", 1), rounds, ended("n2", 0, EndReason.START_FAILED)),
        FailureCategory.NODE, StopCause.START_FAILED, "n2", 0,
    ),
    "a GPU is judged": ((judged("n2"),), FailureCategory.GPU, StopCause.GPU, "n2", 0),
    "a GPU that stays in use": ((judged("n2", GpuAction.RESTART),), FailureCategory.GPU, StopCause.GPU, "n2", 0),
    "a rank exits before its GPU is judged": (
        (ended("n1", 1), rounds, judged("n1")), FailureCategory.GPU, StopCause.GPU, "n1", 1,
    ),
    "its GPU is judged when it has given it back": (
        (ended("n1", 1), rounds, returned("n1"), judged("n1")), FailureCategory.GPU, StopCause.GPU, "n1", 1,
    ),
    "a verdict that stops nothing is no excuse": (
        (judged("n1", GpuAction.DRAIN), ended("n1", 1)), FailureCategory.USER, StopCause.RANK_FAILED, "n1", 1,
    ),
    "a GPU, and then its node goes": (
        (judged("n1"), rounds, lost("n1")), FailureCategory.GPU, StopCause.GPU, "n1", 0,
    ),
    "a node, and then a GPU of the rest": (
        (lost("n1"), rounds, judged("n2")), FailureCategory.NODE, StopCause.NODE_LOST, "n1", 0,
    ),
    "an agent without contact ended it": (
        (ended("n2", 143, EndReason.STOPPED, isolated=True),),
        FailureCategory.CONTROL_PLANE, StopCause.NODE_LOST, "n2", 0,
    ),
    "an older agent says less": (
        (ended("n2", 143, EndReason.STOPPED),), FailureCategory.CONTROL_PLANE, StopCause.NODE_LOST, "n2", 0,
    ),
    "it exits where it is cut off from the rest": (
        (ended("n1", 1), rounds, ended("n2", 143, EndReason.STOPPED, isolated=True)),
        FailureCategory.CONTROL_PLANE, StopCause.NODE_LOST, "n2", 0,
    ),
    "what was told to stop says nothing": (
        (ended("n1", 3), rounds, ended("n2", 143, EndReason.STOPPED)),
        FailureCategory.USER, StopCause.RANK_FAILED, "n1", 3,
    ),
    "not a word": ((returned("n1", "n2"),), FailureCategory.NODE, StopCause.NODE_LOST, "", 0),
}  # fmt: skip


def the_end(world: World) -> Event:
    """What the control plane says once all that is left of the run has ended and given its GPUs back."""
    world.rounds()
    run = world.run(JOB)
    if run is not None:
        alive = [share.node_id for index, share in enumerate(run.shares) if not (run.dead | run.released) >> index & 1]
        for node in alive:
            if not run.ended & run.bit(node):
                ended(node, 143, EndReason.STOPPED)(world)
        world.release(JOB, *alive) if alive else None
        world.rounds()
    ends = (JobFailed, JobRequeued, JobTimedOut, JobCancelled)
    return next(r.event for r in reversed(world.records) if isinstance(r.event, ends))


@pytest.mark.parametrize("name", CASES)
def test_the_evidence_says_whose_failure_it_was(name: str) -> None:
    """Category, cause, node and exit code; what a job would do anywhere makes it avoid nothing."""
    said, category, cause, node, code = CASES[name]
    world = gang()
    for say in said:
        say(world)
    end = the_end(world)
    assert isinstance(end, JobFailed | JobRequeued)
    assert (end.category, end.cause, end.node_id, end.exit_code) == (category, cause, node, code)
    application = cause is StopCause.RANK_FAILED
    assert isinstance(end, JobFailed) is application
    if isinstance(end, JobRequeued):
        assert end.avoid == ((node,) if node else ())
    world.assert_sound()


def test_a_verdict_of_before_the_run_is_not_about_it() -> None:
    """Nor one on a GPU that the run does not have."""
    world = World({"n1": 4, "n2": 4})
    judged("n1", GpuAction.RESTART)(world)
    world.wait(1)
    world.submit(JOB, 7)
    world.rounds()
    spare = next(node for node in world.cluster.nodes.values() if node.free)
    slot = spare.free.bit_length() - 1
    ids: dict[str, Any] = {"node_id": spare.node_id, "node_epoch": spare.epoch, "signalled": spare.epoch}
    other = GpuUuid(f"{spare.node_id}-{slot}")
    xid: dict[str, Any] = {"signal": GpuSignal.XID, "action": GpuAction.RESTART, "table": "t"}
    world.decide(GpuJudged(at=world.at, **ids, gpu_uuid=other, **xid))
    world.start(JOB)
    ended("n1", 1)(world)
    end = the_end(world)
    assert isinstance(end, JobFailed)
    assert end.category is FailureCategory.USER


@pytest.mark.parametrize(
    "said",
    [(ended("n1", 143, EndReason.TIME_LIMIT),), (ended("n2", 1), rounds, ended("n1", 143, EndReason.TIME_LIMIT))],
    ids=["alone", "what it broke said so first"],
)
def test_a_run_whose_time_was_up_timed_out_whatever_else_ended_with_it(said: tuple[Say, ...]) -> None:
    """Its neighbours lose their peers then."""
    world = gang(max_runtime_s=60)
    for say in said:
        say(world)
    assert isinstance(the_end(world), JobTimedOut)


def test_every_line_of_the_table_is_reached_by_a_case_and_says_why() -> None:
    """A new one is told of here: the deadline of a start is in the tests of lifecycle."""
    held = set[int]()
    for said in (*(said for said, *_ in CASES.values()), (ended("n1", 143, EndReason.TIME_LIMIT),)):
        world = gang()
        for say in said:
            say(world)
        run = world.run(JOB)
        if run is not None and (found := verdict_on(run)) is not None:
            held |= {i for i, row in enumerate(TABLE) if (row.cause, row.category) == (found.cause, found.category)}
    reached = {(TABLE[index].cause, TABLE[index].category) for index in held}
    lines = {(row.cause, row.category) for row in TABLE}
    assert lines - reached == {(StopCause.START_DEADLINE, FailureCategory.NODE)}
    assert all(row.why for row in TABLE)


def test_each_cause_takes_one_budget() -> None:
    """What made way takes none."""
    budgets = {cause: budget_of(cause) for cause in StopCause}
    assert {cause for cause, budget in budgets.items() if budget is Budget.APPLICATION} == {
        StopCause.RANK_FAILED,
        StopCause.TIME_LIMIT,
    }
    assert {cause for cause, budget in budgets.items() if budget is Budget.INFRASTRUCTURE} == {
        StopCause.START_FAILED,
        StopCause.NODE_LOST,
        StopCause.GPU,
        StopCause.START_DEADLINE,
        StopCause.CANCEL,  # ends the job: nobody counts it
    }


def test_each_budget_has_its_own_count_and_its_own_most() -> None:
    """Of the job, and of its spec."""
    job = gang(retries_application=4, retries_infrastructure=5).cluster.jobs[JOB]
    assert retried(job, Budget.APPLICATION) == (0, 4)
    assert retried(job, Budget.INFRASTRUCTURE) == (0, 5)


def test_a_back_off_doubles_up_to_its_most() -> None:
    """However often a job has failed."""
    waits = [back_off(failures) for failures in range(40)]
    assert waits[:3] == [timedelta(seconds=BACK_OFF_S * factor) for factor in (1, 2, 4)]
    assert waits == sorted(waits)
    assert waits[-1] == back_off(1 << 30) == BACK_OFF_MAX


def test_of_two_that_speak_for_themselves_the_first_counts() -> None:
    """An exit code never counts against what says more."""
    exited, oom = Failure(NodeId("a"), EndReason.EXITED, 1), Failure(NodeId("b"), EndReason.EXITED, 137, True)
    rebooted = Failure(NodeId("c"), EndReason.NODE_REBOOTED, 0)
    assert outweighs(exited, None)
    assert outweighs(oom, exited)
    assert not outweighs(exited, oom)
    assert not outweighs(rebooted, oom)
    assert not outweighs(exited, exited)


def test_only_what_is_not_the_jobs_own_is_avoided() -> None:
    """It would exit so anywhere."""
    assert Verdict(StopCause.RANK_FAILED, FailureCategory.USER, NodeId("a")).avoid == ()
    assert Verdict(StopCause.DRAIN, FailureCategory.NONE, NodeId("a")).avoid == ()
    assert Verdict(StopCause.GPU, FailureCategory.GPU, NodeId("a")).avoid == ("a",)


def test_what_was_told_when_it_was_stopped_is_what_is_told_in_the_end() -> None:
    """Where nothing that says more came after."""
    world = gang()
    judged("n2")(world)
    (stopping,) = [event for event in world.rounds() if isinstance(event, RunStopping)]
    assert (stopping.cause, stopping.node_id) == (StopCause.GPU, "n2")
    end = the_end(world)
    assert isinstance(end, JobRequeued)
    assert (end.cause, end.node_id) == (stopping.cause, stopping.node_id)
