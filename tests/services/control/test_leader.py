"""Control planes on a real JetStream and on the log in memory: one decides at a time, and no pause or race hurts."""

import asyncio

import pytest

from events.base import NodeId, Stretch
from events.fleet import FleetEvent
from events.head import LeadershipTaken, RoundDecided
from events.job import (
    JobAdmitted,
    JobCancelled,
    JobEvent,
    JobPlaced,
    JobRequeued,
    JobSucceeded,
    RunStopping,
    StopCause,
)
from events.policy import PolicySet
from events.subjects import Subjects
from projections.cluster.snapshot import dump, load
from projections.cluster.state import Cluster
from runtime.clock import ManualClock
from runtime.nats import Connection
from tests.fixtures.waiting import until
from tests.services.control.cells import CLOCK, Cell, HeldUp, Hint, answer_lost


def said(log: HeldUp) -> list[str]:
    """What a plane tried to append: the name of each first event."""
    return [type(events[0]).__name__ for _, events in log.tried]


async def test_a_job_is_admitted_and_placed_in_the_first_round_after_it_is_read(cell: Cell) -> None:
    """Leadership, then one decision; the run's end is one more, and an idle cell writes nothing."""
    async with cell.plane("a", Hint(held=True)) as (plane, log):
        await cell.join("n1", 4)
        await until(lambda: plane.leading)
        job = await cell.submit("job", 2)
        await until(lambda: cell.placed(job), within_s=2)
        assert cell.kinds(LeadershipTaken, RoundDecided, JobAdmitted, JobPlaced) == [
            "LeadershipTaken", "RoundDecided", "JobAdmitted", "JobPlaced",
        ]  # fmt: skip
        await cell.finish(cell.run(job))
        await until(lambda: job not in cell.cluster.jobs)
        assert cell.kinds(JobSucceeded) == ["JobSucceeded"]
        tried = len(log.tried)
        await asyncio.sleep(0.5)  # rounds go on, with nothing to say
        assert len(log.tried) == tried
        assert log.failed == []


async def test_nothing_is_decided_on_half_of_a_decision(cell: Cell) -> None:
    """Whose answer was lost, and which is read record by record: its head is known before what it said."""
    async with cell.plane("a", Hint(held=True)) as (plane, log):
        await cell.join("n1", 4)
        await until(lambda: plane.leading)
        log.crumbs, log.way = True, answer_lost
        jobs = [await cell.submit(f"job-{number}", 1) for number in range(3)]
        await until(lambda: all(cell.placed(job) for job in jobs), within_s=3)
        assert "Unknown" in log.failed


async def test_who_has_no_lease_says_nothing(cell: Cell) -> None:
    """A standby reads all the same, and leads as soon as it is its turn."""
    lease = Hint()
    async with cell.plane("a", lease) as (plane, log):
        await cell.join("n1", 1)
        await cell.submit("job", 1)
        await until(lambda: plane.cluster.position == cell.cluster.position and plane.cluster.jobs)
        assert (log.tried, plane.leading) == ([], False)
        lease.held = True
        await until(lambda: cell.placed("job"), within_s=2)
        lease.held = False
        assert not plane.leading


@pytest.mark.parametrize("hint_stays", [True, False])
async def test_a_leader_that_slept_is_refused_and_decides_nothing_before_it_knows(cell: Cell, hint_stays: bool) -> None:
    """Its decision was made and not yet sent when it fell asleep; its successor only said that it leads."""
    mine, others = Hint(held=True), Hint()
    async with cell.plane("a", mine) as (slept, log), cell.plane("b", others) as (_, its_log):
        await cell.join("n1", 2)
        await until(lambda: slept.leading)
        log.at_decision.clear()
        its_log.at_decision.clear()
        await cell.submit("job", 1)
        await until(lambda: log.waiting)
        tried = len(log.tried)
        others.held = True
        await until(lambda: cell.cluster.leader == "b")
        taken = cell.cluster.epoch
        mine.held = hint_stays
        log.at_decision.set()
        await until(lambda: log.failed)
        assert log.failed == ["Conflict"]

        if hint_stays:  # it says that it leads, having read that another does, and nothing before that
            await until(lambda: cell.placed("job"))
            (after, first), *_ = log.tried[tried:]
            assert (after, type(first[0])) == (taken, LeadershipTaken)
        else:
            await until(lambda: slept.cluster.leader == "b")
            await asyncio.sleep(0.3)  # a round would have come
            assert len(log.tried) == tried
        others.held = not hint_stays
        its_log.at_decision.set()
        await until(lambda: cell.placed("job"))
    assert cell.kinds(FleetEvent, JobEvent) == ["JobAdmitted", "JobPlaced"]


async def test_a_leader_that_slept_before_it_decided_is_refused_too(cell: Cell) -> None:
    """It decides on what it had read, which is legal and too late: the fence is its own last head, not the log's."""
    mine, others, asleep = Hint(held=True), Hint(), False

    def fall_asleep(cluster: Cluster, _stretch: Stretch) -> None:
        nonlocal asleep
        if cluster.jobs and not asleep:
            asleep = True
            log.at_end.clear()

    async with cell.plane("a", mine, watch=fall_asleep) as (slept, log), cell.plane("b", others) as (_, its_log):
        its_log.at_decision.clear()
        await cell.join("n1", 2)
        await until(lambda: slept.leading)
        await cell.submit("job", 1)
        await until(lambda: asleep and log.waiting)
        others.held = True
        await until(lambda: cell.cluster.leader == "b")
        mine.held = False
        tried = len(log.tried)
        log.at_end.set()
        await until(lambda: slept.cluster.leader == "b")
        assert [type(events[0]) for _, events in log.tried[tried:]] == [RoundDecided]
        assert log.failed == ["Conflict"]
        its_log.at_decision.set()
        await until(lambda: cell.placed("job"))
    assert cell.kinds(FleetEvent, JobEvent) == ["JobAdmitted", "JobPlaced"]


@pytest.mark.parametrize("succeeded", [False, True])
async def test_no_node_is_lost_for_the_sleep_of_its_leader(cell: Cell, succeeded: bool) -> None:
    """It sleeps for ten minutes between asking where the log ends and deciding, and wakes up in the middle of a round."""
    clock, mine, others = ManualClock(CLOCK.now()), Hint(held=True), Hint()
    async with cell.plane("a", mine, clock=clock) as (plane, log), cell.plane("b", others):
        await cell.join("n1", 1)
        await until(lambda: plane.leading and "n1" in plane.cluster.nodes)

        async def awake() -> None:
            for _ in range(6):
                clock.advance(0.5)
                plane.silences.heard_own(clock.monotonic())
                for node in plane.cluster.nodes.values():
                    plane.silences.heard(node.node_id, node.epoch, clock.monotonic())
                await asyncio.sleep(0.12)  # it turns each 0.1 s

        await awake()
        log.at_end.clear()
        clock.advance(0.5)
        await until(lambda: log.waiting)
        if succeeded:
            others.held = True
            await until(lambda: cell.cluster.leader == "b")
            others.held = False
        clock.advance(600)
        plane.silences.heard_own(clock.monotonic())  # what waited in our socket may be read before we go on
        log.at_end.set()
        await until(lambda: not log.waiting)  # it has decided, and heard nobody yet
        await awake()
        job = await cell.submit("job", 1)
        await until(lambda: cell.placed(job))
        assert log.failed == []
    assert cell.kinds(FleetEvent) == []


async def test_a_node_that_falls_silent_is_suspected_then_lost_and_its_run_goes_elsewhere(memory: Cell) -> None:
    """By the leader's clock alone; what was heard before it led does not count."""
    clock = ManualClock(CLOCK.now())
    async with memory.plane("a", Hint(held=True), clock=clock) as (plane, _):
        await memory.join("n1", 1)
        await until(lambda: plane.leading)
        await memory.gate.record([PolicySet(at=CLOCK.now(), suspect_after_s=4, lost_after_s=8, lost_most_s=8)])
        job = await memory.submit("job", 1)
        await until(lambda: memory.placed(job))
        await memory.join("n2", 1)

        async def pass_time(seconds: int) -> None:
            for _ in range(seconds):
                clock.advance(1)
                plane.silences.heard_own(clock.monotonic())
                if (node := plane.cluster.nodes.get(NodeId("n2"))) is not None:
                    plane.silences.heard(node.node_id, node.epoch, clock.monotonic())
                await asyncio.sleep(0.11)  # it turns each 0.1 s

        await pass_time(3)
        assert memory.kinds(FleetEvent) == []
        await pass_time(3)
        assert memory.kinds(FleetEvent) == ["NodeSuspected"]
        await pass_time(6)
        assert memory.kinds(FleetEvent) == ["NodeSuspected", "NodeLost"]
        await pass_time(2)
        await until(lambda: memory.kinds(JobPlaced) == ["JobPlaced", "JobPlaced"])
        assert memory.run("job").shares[0].node_id == "n2"


async def test_a_cancellation_that_overtakes_a_placement_stops_the_run(cell: Cell) -> None:
    """The decision is older than the ask when it is written down; the next round mends it."""
    async with cell.plane("a", Hint(held=True)) as (plane, log):
        await cell.join("n1", 1)
        await until(lambda: plane.leading)
        log.at_append.clear()
        job = await cell.submit("job", 1)
        await until(lambda: log.waiting)
        await cell.cancel(job)
        log.at_append.set()
        await until(lambda: cell.kinds(RunStopping))
        await cell.finish(cell.run(job))
        await until(lambda: job not in cell.cluster.jobs)
        assert log.failed == []  # a fact moves no fence
    assert cell.kinds(JobAdmitted, JobPlaced, RunStopping, JobCancelled)[-3:] == [
        "JobPlaced", "RunStopping", "JobCancelled",
    ]  # fmt: skip


async def test_a_placement_on_a_life_that_ended_meanwhile_is_placed_anew(cell: Cell) -> None:
    """The node joined anew between decision and commit: nothing of the run ever starts, and no retry is lost to it."""
    async with cell.plane("a", Hint(held=True)) as (plane, log):
        await cell.join("n1", 1)
        await until(lambda: plane.leading)
        log.at_append.clear()
        job = await cell.submit("job", 1)
        await until(lambda: log.waiting)
        epoch = await cell.join("n1", 1)
        log.at_append.set()
        await until(lambda: cell.kinds(JobRequeued))
        await until(lambda: cell.placed(job))
        assert cell.run(job).shares[0].node_epoch == epoch
        await cell.finish(cell.run(job))
        await until(lambda: job not in cell.cluster.jobs)
    assert [r.event.cause for r in cell.records if isinstance(r.event, JobRequeued)] == [StopCause.NODE_LOST]


async def test_from_a_snapshot_and_from_nothing_is_the_same_cluster(cell: Cell) -> None:
    """At every position, and what the two decide when it is their turn follows from that."""
    kept: dict[int, bytes] = {}

    def keep(cluster: Cluster, stretch: Stretch) -> None:
        if stretch:
            kept[cluster.position] = dump(cluster)

    first, second = Hint(held=True), Hint()
    async with cell.plane("a", first, watch=keep) as (plane, _):
        await cell.join("n1", 4)
        await until(lambda: plane.leading)
        done, running = await cell.submit("done", 1), await cell.submit("running", 2)
        await until(lambda: cell.placed(running) and cell.placed(done))
        await cell.finish(cell.run(done))
        await until(lambda: done not in cell.cluster.jobs)
        await cell.submit("waits", 4)
        await until(lambda: len(cell.kinds(JobAdmitted)) == 3)
    middle = sorted(kept)[len(kept) // 2]
    restored = load(kept[middle], log_id=cell.cluster.log_id)
    assert restored is not None
    async with cell.plane("b", second, cluster=restored) as (tail, _), cell.plane("c", Hint()) as (whole, _):
        end = await cell.gate.end()
        await until(lambda: tail.cluster.position == whole.cluster.position == end)
        assert dump(tail.cluster) == dump(whole.cluster) == dump(cell.cluster)
        second.held = True
        await cell.finish(cell.run(running))
        await until(lambda: cell.placed("waits"))
        await until(lambda: tail.cluster.position == whole.cluster.position == cell.cluster.position)
        assert dump(tail.cluster) == dump(whole.cluster)


async def write_raw(cell: Cell, connection: Connection, subject: str) -> None:
    """Something that no version of ours can read is in the log."""
    await connection.jetstream().publish(Subjects().events_prefix + subject, b'{"type": "musterbook.of.tomorrow.v9"}')
    end = await cell.gate.end()
    await until(lambda: cell.cluster.position >= end)
    cell.broken = {"readable"}


@pytest.mark.parametrize("subject", ["job.t.job", "fleet.n1", "head"])
async def test_a_record_of_ours_that_cannot_be_read_stops_deciding_and_not_reading(
    real: Cell, nats_connection: Connection, subject: str
) -> None:
    """It might say anything: GPUs given away, jobs ended. A version that can read it takes over."""
    async with real.plane("a", Hint(held=True)) as (plane, log):
        await real.join("n1", 2)
        await until(lambda: plane.leading)
        await write_raw(real, nats_connection, subject)
        job = await real.submit("job", 1)
        await until(lambda: job in plane.cluster.jobs)
        tried = len(log.tried)
        await asyncio.sleep(0.6)  # three rounds would have come
        assert len(log.tried) == tried
        assert real.kinds(JobAdmitted) == []
        await real.submit("other", 1)
        await until(lambda: len(plane.cluster.jobs) == 2)
    async with real.plane("b", Hint(held=True)) as (plane, log):  # from nothing, it stops at the same place
        await until(lambda: len(plane.cluster.jobs) == 2)
        await asyncio.sleep(0.3)
        assert log.tried == []


@pytest.mark.parametrize("subject", ["node.n1", "intake.t.other", "policy"])
async def test_a_fact_that_cannot_be_read_is_passed_over(real: Cell, nats_connection: Connection, subject: str) -> None:
    """By all alike: deciding goes on."""
    async with real.plane("a", Hint(held=True)) as (plane, _):
        await real.join("n1", 2)
        await until(lambda: plane.leading)
        await write_raw(real, nats_connection, subject)
        job = await real.submit("job", 1)
        await until(lambda: real.placed(job))
