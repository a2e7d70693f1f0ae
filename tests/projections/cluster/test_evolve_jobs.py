"""What is set aside and promised for jobs, and what becomes of it, as the fold has it."""

from datetime import timedelta

from events.base import JobId, NodeId, RunId, SlotMask, TeamId
from events.job import (
    AdmissionWithdrawn,
    EarmarkCause,
    EarmarkDropped,
    GpusEarmarked,
    JobAdmitted,
    JobPlaced,
    NodeShare,
    PromiseCause,
    PromiseDropped,
    PromiseMoved,
    StartPromised,
    StopCause,
)
from projections.cluster.job import JobState
from tests.clusters import World

TEAM = TeamId("t")


def shares(world: World, *slots: tuple[str, int]) -> tuple[NodeShare, ...]:
    """Shares on some nodes, in their present lives."""
    return tuple(NodeShare(NodeId(n), world.cluster.nodes[NodeId(n)].epoch, SlotMask(mask)) for n, mask in slots)


def preempting() -> World:
    """`low` runs on a node that is set aside for `high`, which is admitted and waits."""
    world = World({"n1": 4})
    world.submit("low", 4)
    world.round()
    job_id = world.submit("high", 4)
    world.add(JobAdmitted(at=world.at, team=TEAM, job_id=job_id))
    victims = (RunId("low-1"),)
    world.add(
        GpusEarmarked(at=world.at, team=TEAM, job_id=job_id, shares=shares(world, ("n1", 0b1111)), victims=victims)
    )
    return world


def test_what_a_victim_gives_back_is_set_aside_for_the_job_it_ended_for() -> None:
    """It is free, and no other job's; the job that gets it uses the earmark up."""
    world = preempting()
    victim = world.cluster.jobs[JobId("low")]
    assert (victim.evictions, victim.evicted_for) == (1, ("high",))

    world.start(JobId("low"))
    stopping = world.round()
    assert [e.cause for e in stopping if hasattr(e, "cause")] == [StopCause.PREEMPTED]
    world.end(JobId("low"))
    world.release(JobId("low"))
    node = world.cluster.nodes[NodeId("n1")]
    assert (node.free, node.spare) == (0b1111, 0)

    placed = JobPlaced(
        at=world.at,
        team=TEAM,
        job_id=JobId("high"),
        run_id=RunId("high-1"),
        attempt=1,
        shares=shares(world, ("n1", 0b1111)),
    )
    world.add(placed)
    assert not world.cluster.unread
    assert not world.cluster.earmarks
    assert not world.cluster.nodes[NodeId("n1")].marked


def test_a_placement_on_what_is_set_aside_for_another_contradicts_the_log() -> None:
    """It changes nothing, and nothing is decided from there on."""
    world = World({"n1": 4})
    for name in ("a", "b"):
        world.add(JobAdmitted(at=world.at, team=TEAM, job_id=world.submit(name, 4)))
    there = shares(world, ("n1", 0b1111))
    world.add(GpusEarmarked(at=world.at, team=TEAM, job_id=JobId("a"), shares=there))
    world.add(
        JobPlaced(at=world.at, team=TEAM, job_id=JobId("b"), run_id=RunId("b-1"), attempt=1, shares=there),
    )

    assert world.cluster.unread
    assert world.cluster.jobs[JobId("b")].state is JobState.ADMITTED


def test_a_placement_on_what_another_run_holds_contradicts_the_log() -> None:
    """Whole or in part: it changes nothing, and nothing is decided from there on."""
    for mask in (0b1111, 0b1000):
        world = World({"n1": 4})
        world.submit("runs", 4)
        world.rounds()
        ids = {"at": world.at, "team": TEAM, "job_id": world.submit("late", mask.bit_count())}
        world.add(JobAdmitted(**ids))
        world.add(JobPlaced(**ids, run_id=RunId("late-1"), attempt=1, shares=shares(world, ("n1", mask))))

        assert world.cluster.unread
        assert set(world.cluster.runs) == {"runs-1"}


def test_a_dropped_earmark_leaves_no_trace_on_nodes() -> None:
    """Also where the preemptor itself is cancelled."""
    for cancelled in (False, True):
        world = preempting()
        if cancelled:
            world.cancel(JobId("high"))
            world.round()
        else:
            world.add(EarmarkDropped(at=world.at, team=TEAM, job_id=JobId("high"), cause=EarmarkCause.NODE))
        assert not world.cluster.earmarks
        assert not world.cluster.nodes[NodeId("n1")].earmarked


def test_a_promise_remembers_the_start_it_began_with() -> None:
    """However often it is moved; placing the job, or dropping it, ends it."""
    world = World({"n1": 4})
    job_id = world.submit("gang", 4)
    there = shares(world, ("n1", 0b1111))
    ids = {"at": world.at, "team": TEAM, "job_id": job_id}
    world.add(JobAdmitted(**ids))
    world.add(StartPromised(**ids, shares=there, start=world.at))
    later = world.at + timedelta(minutes=5)
    world.add(PromiseMoved(**ids, shares=there, start=later, cause=PromiseCause.OVERRUN))
    promise = world.cluster.promises[job_id]
    assert (promise.first, promise.start, promise.moves) == (world.at, later, 1)

    world.add(PromiseDropped(**ids, cause=PromiseCause.POLICY))
    assert not world.cluster.promises


def test_a_job_whose_admission_is_withdrawn_stands_where_it_stood() -> None:
    """At its old age, in the queue."""
    world = World({"n1": 4})
    first, second = world.submit("first", 4), world.submit("second", 4)
    world.add(JobAdmitted(at=world.at, team=TEAM, job_id=first, borrowing=True))
    assert world.cluster.jobs[first].borrowing

    world.add(AdmissionWithdrawn(at=world.at, team=TEAM, job_id=first))
    (line,) = world.cluster.queue.groups()
    assert [job_id for _, job_id in world.cluster.queue.line(line)] == [first, second]
    assert not world.cluster.jobs[first].borrowing
