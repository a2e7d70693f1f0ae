"""Decisions that contradict the log before them, as an administrator may write: they change nothing, and nothing falls."""

from datetime import timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from events.base import Event, JobId, NodeEpoch, NodeId, RunId, SlotMask, TeamId
from events.head import LogFounded
from events.job import (
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
    RunStarted,
    RunStopping,
    StopCause,
)
from projections.cluster.audit.audit import audit
from projections.cluster.desired import desired
from projections.cluster.explain.why import explain
from projections.cluster.snapshot import dump, load
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
