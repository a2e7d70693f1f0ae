"""What health took out is in nobody's plans: what was set aside or promised there moves, and teams may claim less."""

from events.gpu import GpuJudged, GpuSignal
from events.job import (
    EarmarkCause,
    EarmarkDropped,
    GpusEarmarked,
    JobPlaced,
    JobSpec,
    Priority,
    PromiseCause,
    PromiseDropped,
    PromiseMoved,
    StartPromised,
)
from projections.cluster.audit.audit import audit
from projections.cluster.job import shape_of
from projections.cluster.placing.place import Misfit, place
from projections.cluster.placing.room import Room
from projections.cluster.state import Cluster
from tests.projections.cluster.quota.asking import standing
from tests.services.health.ward import Ward

OUT = "no GPU that is out"


def whole(cluster: Cluster, gpus: int) -> bool:
    """Whether a gang of so many GPUs on one node finds a place."""
    shape = shape_of(JobSpec(name="x", command=("true",), gpus=gpus, nodes=1, gpus_per_node=gpus))
    return not isinstance(place(Room(cluster), shape), Misfit)


def test_a_node_with_a_gpu_out_holds_what_the_others_hold() -> None:
    """Seven of eight: a gang of eight waits, one of seven starts, and never on the eighth."""
    world = Ward({"n1": 8})
    world.signal(74, "n1-3")
    world.rounds()
    assert (whole(world.cluster, 8), whole(world.cluster, 7)) == (False, True)
    job = world.submit("job", 7)
    said = world.rounds()
    assert [e.shares[0].slots for e in said if isinstance(e, JobPlaced)] == [0b1111_0111]
    assert world.placed[job] == [("n1", 7)]
    world.assert_sound()


def test_what_is_set_aside_on_a_gpu_that_goes_is_given_up_and_found_elsewhere() -> None:
    """Its job gets what is free then, and nothing that is out."""
    world = Ward({"n1": 3})
    world.policy(min_runtime_s=0, promises=0, breaker_percent=50)
    world.put(world.submit("stays", 1, preemptible=False), n1=1)
    low = world.submit("low", 2, priority=Priority.LOW)
    world.rounds()
    world.start(low)
    world.wait(100)
    high = world.submit("high", 2, priority=Priority.HIGH)
    assert [e.job_id for e in world.rounds() if isinstance(e, GpusEarmarked)] == [high]

    world.signal(74, "n1-1")
    said = world.rounds()
    assert [e.cause for e in said if isinstance(e, EarmarkDropped)] == [EarmarkCause.NODE]
    world.end(low)
    world.release(low)
    world.wait(1_000)
    assert high not in {e.job_id for e in world.rounds() if isinstance(e, JobPlaced)}
    world.join("n2", 2)
    world.rounds()
    assert world.placed[high] == [("n2", 2)]
    assert OUT not in {finding.law for finding in audit(world.records)}


def test_what_is_promised_on_a_gpu_that_goes_is_promised_elsewhere() -> None:
    """Or not at all, where there is nothing else."""
    world = Ward({"n1": 2, "n2": 2})
    world.policy(promises=1, preemption=False)
    for name, node, runtime_s in (("a", "n1", 600), ("b", "n2", 1_200)):
        world.start(world.put(world.submit(name, 2, max_runtime_s=runtime_s), **{node: 2}))
    job = world.submit("job", 2, nodes=1, gpus_per_node=2, max_runtime_s=60)
    promised = [e.shares for e in world.rounds() if isinstance(e, StartPromised)]
    assert [share.node_id for share in promised[0]] == ["n1"]

    world.signal(74)
    world.wait(40)
    moved = [e for e in world.rounds() if isinstance(e, PromiseMoved)]
    assert [(e.cause, [share.node_id for share in e.shares]) for e in moved] == [(PromiseCause.NODE, ["n2"])]
    world.signal(74, "n2-0")
    world.policy(promises=1, preemption=False, breaker_percent=100)
    world.wait(40)
    assert [e.job_id for e in world.rounds() if isinstance(e, PromiseDropped)] == [job]
    assert job not in world.placed
    assert OUT not in {finding.law for finding in audit(world.records)}


def test_what_is_out_is_nothing_that_teams_may_claim() -> None:
    """Once nothing runs on it; until then it is in use, and counts."""
    world = Ward({"n1": 8})
    world.policy(breaker_percent=100)
    for number in range(3):
        world.submit(f"j{number}", 4)
    assert standing(world).entitlements() == {"t": {"h100": 8}}
    for slot in range(4):
        world.signal(74, f"n1-{slot}")
    assert len([e for e in world.judge() if isinstance(e, GpuJudged)]) == 4
    assert dict(world.cluster.capacity) == {"h100": 4}
    assert standing(world).entitlements() == {"t": {"h100": 4}}


def test_gpus_that_are_in_use_by_the_breaker_alone_are_given_last() -> None:
    """What fails on one of them fails again and again; where nothing else is free they are given still."""
    world = Ward({"n1": 4})
    world.policy(breaker_percent=0)
    for gpu in ("n1-0", "n1-2"):
        world.signal(0, gpu, GpuSignal.MISSING)
    world.rounds()
    for name, gpus in (("first", 1), ("second", 2), ("third", 1)):
        world.submit(name, gpus)
    said = world.rounds()
    assert [e.shares[0].slots for e in said if isinstance(e, JobPlaced)] == [0b0010, 0b1001, 0b0100]
    world.assert_sound()
