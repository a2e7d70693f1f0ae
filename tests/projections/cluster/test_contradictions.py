"""Decisions that contradict the log before them, as an administrator may write: they change nothing, and nothing falls."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from events.base import Event, JobId, NodeEpoch, NodeId, RunId, SlotMask, TeamId
from events.head import LogFounded
from events.job import (
    AdmissionWithdrawn,
    EarmarkCause,
    EarmarkDropped,
    GpusEarmarked,
    HoldCode,
    JobAdmitted,
    JobCancelled,
    JobFailed,
    JobHeld,
    JobPlaced,
    JobRejected,
    JobRequeued,
    JobSubmitted,
    JobSucceeded,
    JobTimedOut,
    NodeShare,
    PromiseCause,
    PromiseDropped,
    PromiseMoved,
    RunStarted,
    RunStopping,
    StartPromised,
    StopCause,
)
from events.queues import Queue
from projections.cluster.audit.audit import audit
from projections.cluster.desired import desired
from projections.cluster.explain.why import explain
from projections.cluster.snapshot import dump, load
from services.control.round import decide_all
from tests.clusters import World
from tests.histories import History, histories

MASKS = (1, 3, 255, 1 << 62, (1 << 63) - 1)


def decision(grown: History, random: Random) -> Event:
    """One that somebody made up: of a known or unknown job, run and node."""
    job_id = random.choice([job.job_id for job in grown.jobs[-6:]] + [JobId("unknown")])
    run_id = random.choice([run.run_id for run in grown.placed[-6:]] + [RunId(f"{job_id}-1"), RunId("")])
    at = grown.at + random.choice((timedelta(0), timedelta(days=-700_000), timedelta(days=2_000_000)))
    ids = {"at": at, "team": TeamId(random.choice("ttu")), "job_id": job_id}
    of_run = ids | {"run_id": run_id}
    cause = random.choice(list(StopCause))
    match random.randrange(13):
        case 0:
            return JobAdmitted(**ids)
        case 1:
            return JobHeld(**ids, code=random.choice(list(HoldCode)))
        case 2:
            return JobRejected(**ids, code="", message="")
        case 3:
            return RunStarted(**of_run)
        case 4:
            return RunStopping(**of_run, cause=cause)
        case 5:
            return JobRequeued(**of_run, cause=cause, not_before=at)
        case 6:
            return JobSucceeded(**of_run)
        case 7:
            return JobFailed(**of_run, cause=cause)
        case 8:
            return JobCancelled(**of_run)
        case 9:
            return JobTimedOut(**of_run)
        case 10:
            return LogFounded(at=at, log_id="another", cell="main")
        case _:
            return JobPlaced(**of_run, attempt=random.choice((1, 2, 1 << 30)), shares=shares(grown, random))


def shares(grown: History, random: Random) -> tuple[NodeShare, ...]:
    """Of nodes that are there or not, in their present life or another, free or not."""
    found = []
    for _ in range(random.choice((0, 1, 1, 2))):
        node_id = random.choice([*sorted(grown.cluster.nodes), NodeId("unknown")])
        epoch = grown.cluster.node(node_id).epoch if random.random() < 0.8 else NodeEpoch(random.choice((0, 1 << 62)))
        found.append(NodeShare(node_id, epoch, SlotMask(random.choice(MASKS))))
    return tuple(found)


@given(histories(120), st.integers(0, 2**32))
def test_a_contradiction_changes_nothing_and_stops_deciding(grown: History, seed: int) -> None:
    """Whatever it says: reading goes on, and all that is made of the fold can be made."""
    random = Random(seed)
    for _ in range(30):
        before = dump(grown.cluster)
        unread = grown.cluster.unread
        grown.add(decision(grown, random))
        if grown.cluster.unread and not unread:
            assert same(load(before, log_id="test"), load(dump(grown.cluster), log_id="test"))
        for node_id in grown.cluster.nodes:
            desired(grown.cluster, node_id)
        for job_id in grown.cluster.jobs:
            explain(grown.cluster, job_id, at=grown.at)
        assert load(dump(grown.cluster), log_id="test") is not None
    assert audit(grown.records)


def aside(grown: History, random: Random) -> Event:
    """A word on what is set aside or promised that somebody made up, of a job that there is."""
    job = random.choice(list(grown.cluster.jobs.values()))
    ids: Any = {"at": grown.at, "team": job.team, "job_id": job.job_id}
    start = random.choice((None, grown.at, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)))
    there = random.choice([run.shares for run in grown.cluster.runs.values()] + [shares(grown, random)] * 3)
    match random.randrange(7):
        case 0 | 1:
            return StartPromised(**ids, shares=there, start=start)
        case 2:
            return PromiseMoved(**ids, shares=there, start=start, cause=PromiseCause.NODE)
        case 3:
            return PromiseDropped(**ids, cause=PromiseCause.NODE)
        case 4:
            return random.choice(
                (EarmarkDropped(**ids, cause=EarmarkCause.NODE), AdmissionWithdrawn(**ids), JobAdmitted(**ids))
            )
        case _:
            runs = sorted(grown.cluster.runs)
            victims = tuple(random.choices(runs, k=random.randrange(3))) if runs else ()
            ranks = random.choice(((), (0,), (1, 0)))
            return GpusEarmarked(**ids, shares=there, victims=victims, ranks=ranks, moved=random.random() < 0.3)


@given(histories(60), st.integers(0, 2**32))
def test_what_is_made_up_of_promises_and_earmarks_stops_deciding_or_rounds_cope_with_it(
    grown: History, seed: int
) -> None:
    """Rounds go on over what the fold has taken, come to rest, and contradict nothing themselves."""
    random = Random(seed)
    for _ in range(4):
        if grown.cluster.jobs and not grown.cluster.unread:
            grown.add(aside(grown, random))
            taken = not grown.cluster.unread
            for _ in range(20 if taken else 0):
                before = grown.position
                grown.add(*decide_all(grown.cluster, grown.tick()))
                if grown.position == before:
                    break
            else:
                assert not taken
            assert not (taken and grown.cluster.unread)


def same(before: object, after: object) -> bool:
    """Whether two clusters have the same nodes, jobs and runs."""
    return all(dict(getattr(before, name)) == dict(getattr(after, name)) for name in ("nodes", "jobs", "runs"))


def test_a_job_that_ends_with_its_gpus_held_is_a_contradiction() -> None:
    """It would leave the node with a run that nobody knows."""
    world = World({"n1": 2})
    job = world.submit("job", 2)
    world.rounds()
    world.add(JobSucceeded(at=world.at, team=TeamId("t"), job_id=job, run_id=RunId("job-1")))

    assert world.cluster.unread == world.records[-1].position
    assert [share.run_id for share in desired(world.cluster, NodeId("n1")).shares] == ["job-1"]


@pytest.mark.parametrize("shape", [{}, {"nodes": 2}, {"nodes": 2, "min_gpus": 1}, {"gpus_per_node": 2, "min_gpus": 1}])
def test_a_submission_that_asks_for_no_gang_is_rejected(shape: dict[str, Any]) -> None:
    """The gate takes none; one that an administrator wrote stops nobody, also where quotas are counted."""
    world = World({"n1": 4})
    world.queues(Queue(name=TeamId("t")), Queue(name=TeamId("u")))
    world.submit("odd", 4 if shape else 0, **shape)
    for team in "tu":
        world.submit(f"job-{team}", 4, team=team)
    rejected = [event.job_id for event in world.rounds() if isinstance(event, JobRejected)]

    assert rejected == ["odd"]
    assert len(world.cluster.runs) == 1


def test_a_promise_for_the_end_of_all_times_is_one() -> None:
    """Those that come after it have starts that a clock can show."""
    world = World({"n1": 2})
    world.policy(promises=9)
    first = world.submit("first", 2, max_runtime_s=2**31 - 1)
    world.rounds()
    for name in ("a", "b", "c"):
        world.submit(name, 2, max_runtime_s=2**31 - 1)
    world.rounds()
    assert list(world.cluster.promises) == ["a", "b", "c"]
    a = world.cluster.promises[JobId("a")]
    end = datetime.max.replace(tzinfo=UTC)
    world.add(
        PromiseMoved(
            at=world.at, team=TeamId("t"), job_id=a.job_id, shares=a.shares, start=end, cause=PromiseCause.NODE
        )
    )
    world.wait(60)
    world.finish(first)
    world.rounds()

    assert not world.cluster.unread
    assert world.cluster.runs


def test_a_job_with_a_promise_gets_what_somebody_set_aside_for_it() -> None:
    """Its placement says all of both."""
    world = World({"n1": 2, "n2": 2})
    world.submit("first", 2)
    world.rounds()
    world.submit("big", 4)
    world.rounds()
    job_id, at = JobId("big"), world.at
    assert job_id in world.cluster.promises
    (node,) = (node for node in world.cluster.nodes.values() if node.free)
    there = (NodeShare(node.node_id, node.epoch, SlotMask(1)),)
    world.add(GpusEarmarked(at=at, team=TeamId("t"), job_id=job_id, shares=there))
    world.rounds()

    assert not world.cluster.unread
    assert not world.cluster.promises
    assert job_id in {run.job_id for run in world.cluster.runs.values()}


def test_a_submission_that_comes_twice_is_the_first() -> None:
    """A job that runs is not queued again."""
    world = World({"n1": 2})
    job = world.submit("job", 2)
    world.rounds()
    submitted = next(record.event for record in world.records if isinstance(record.event, JobSubmitted))
    world.add(replace(submitted, spec=replace(submitted.spec, gpus=1)))

    assert world.rounds() == []
    assert world.cluster.jobs[job].spec.gpus == 2
    assert not world.cluster.unread
