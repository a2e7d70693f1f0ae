"""Which jobs are let out again that were let in: by a stop, a lowered bound, or nodes that are gone."""

import pytest

from events.base import GpuUuid, JobId, NodeId, TeamId
from events.job import GpusEarmarked, HoldCode
from events.node import GpusFoundClean
from events.queues import Bounds, Queue, QueueStop
from projections.cluster.job import JobState
from services.admission.decide import decide
from services.admission.withdraw import WITHDRAWN_MAX
from tests.clusters import World, names


def admitted(jobs: int, gpus: int = 1) -> World:
    """A cluster in which so many jobs of team `t` are admitted, and none is placed."""
    world = World({"n1": 8})
    world.queues(Queue(name=TeamId("t")), Queue(name=TeamId("other")))
    world.policy(admitted_ahead=10_000)
    for number in range(jobs):
        world.submit(f"j{number:05d}", gpus)
    admit(world)
    return world


def admit(world: World) -> list[str]:
    """What kinds of things admission alone decides, and then it decides nothing more."""
    said: list[str] = []
    while events := decide(world.cluster, world.tick()):
        world.add(*events)
        said += names(events)
    return said


def states(world: World) -> dict[str, tuple[JobState, HoldCode]]:
    """Where the jobs stand, and what is said of them."""
    return {job.job_id: (job.state, job.hold) for job in world.cluster.jobs.values()}


@pytest.mark.parametrize("stop", [QueueStop.PAUSE, QueueStop.HOLD])
def test_a_stop_lets_them_out_at_once_and_they_come_back_with_it_gone(stop: QueueStop) -> None:
    """At their old age, with the reason said."""
    world = admitted(2)
    before = world.cluster.jobs[JobId("j00000")]
    world.queues(Queue(name=TeamId("org"), stop=stop), Queue(name=TeamId("t"), parent="org"))

    assert admit(world) == ["AdmissionWithdrawn"] * 2 + ["JobHeld"] * 2
    assert set(states(world).values()) == {(JobState.QUEUED, HoldCode.QUEUE_PAUSED)}

    world.queues(Queue(name=TeamId("t")))
    assert admit(world) == ["JobAdmitted"] * 2
    assert world.cluster.jobs[JobId("j00000")].submitted == before.submitted


@pytest.mark.parametrize(
    ("queue", "code"),
    [
        (Queue(name=TeamId("t"), bounds=(Bounds(limit=2),)), HoldCode.OVER_LIMIT),
        (Queue(name=TeamId("t"), bounds=(Bounds(gpu_type="h100", limit=2),)), HoldCode.OVER_LIMIT),
        (Queue(name=TeamId("t"), bounds=(Bounds(floor=0, borrowing_limit=2),)), HoldCode.OVER_LIMIT),
        (Queue(name=TeamId("t"), running_max=2), HoldCode.RUNNING_MAX),
    ],
)
def test_a_lowered_bound_lets_the_last_in_order_out(queue: Queue, code: HoldCode) -> None:
    """As many as are beyond it; the first ones stay."""
    world = admitted(4)

    world.queues(queue)
    admit(world)

    assert states(world) == {
        "j00000": (JobState.ADMITTED, HoldCode.NOT_EVALUATED),
        "j00001": (JobState.ADMITTED, HoldCode.NOT_EVALUATED),
        "j00002": (JobState.QUEUED, code),
        "j00003": (JobState.QUEUED, code),
    }


def test_a_lowered_bound_stops_nothing_that_runs() -> None:
    """What runs beyond it is no reason to kill it; nothing new is let in, and no room is made up."""
    world = admitted(2, gpus=4)
    world.put(JobId("j00000"), n1=4)

    world.queues(Queue(name=TeamId("t"), bounds=(Bounds(limit=2),)))

    assert admit(world) == ["AdmissionWithdrawn", "JobHeld"]
    assert states(world)["j00000"][0] is JobState.PLACED
    assert states(world)["j00001"] == (JobState.QUEUED, HoldCode.EXCEEDS_LIMIT)


def test_a_job_that_its_nodes_could_no_longer_hold_is_let_out() -> None:
    """The node came back with fewer GPUs."""
    world = admitted(1, gpus=8)

    epoch = world.join("n1", 4, clean=False)
    uuids = tuple(GpuUuid(f"n1-{slot}") for slot in range(4))
    world.add(GpusFoundClean(at=world.at, node_id=NodeId("n1"), node_epoch=epoch, gpu_uuids=uuids))

    assert admit(world) == ["AdmissionWithdrawn", "JobHeld"]
    assert states(world) == {"j00000": (JobState.QUEUED, HoldCode.EXCEEDS_CLUSTER)}


def test_an_earmark_is_not_weighed_twice() -> None:
    """What is set aside counts as used: the job that waits for it takes up no more of the limit."""
    world = admitted(2, gpus=4)
    world.put(JobId("j00000"), n1=4)
    run = world.run(JobId("j00000"))
    assert run is not None
    ids = {"at": world.at, "team": TeamId("t"), "job_id": JobId("j00001")}
    world.add(GpusEarmarked(**ids, shares=run.shares, victims=(run.run_id,)))  # type: ignore[arg-type]

    world.queues(Queue(name=TeamId("t"), bounds=(Bounds(limit=8),)))
    for number in range(2):
        world.submit(f"more{number}", 4)

    assert admit(world) == ["JobAdmitted", "JobHeld"]


def test_no_more_are_let_out_in_a_round_than_its_limit() -> None:
    """The rest is the next round's."""
    world = admitted(WITHDRAWN_MAX + 3)
    world.queues(Queue(name=TeamId("t"), stop=QueueStop.PAUSE))

    counts = []
    for _ in range(2):
        events = decide(world.cluster, world.tick())
        world.add(*events)
        counts.append(names(events).count("AdmissionWithdrawn"))

    assert counts == [WITHDRAWN_MAX, 3]
