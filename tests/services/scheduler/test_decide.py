"""Whole gangs or nothing, in order, and a stable word for each job that waits."""

from events.base import JobId, TeamId
from events.job import HoldCode, JobHeld, JobPlaced, Priority
from services.admission.decide import decide as admit
from services.scheduler.decide import decide
from tests.clusters import World, names

NODES_OF_4 = {"n1": 4, "n2": 4, "n3": 4}


def holds(world: World) -> dict[str, HoldCode]:
    """What the log last said of each job that waits."""
    return {job.job_id: job.hold for job in world.cluster.jobs.values() if job.job_id not in world.placed}


def test_of_two_gangs_of_8_on_12_gpus_exactly_one_is_placed() -> None:
    """Twelve free and six-and-six never happens: one gang is whole, 4 GPUs stay free, the other holds nothing."""
    world = World(NODES_OF_4)
    first, second = world.submit("a", 8), world.submit("b", 8)

    world.rounds()

    assert world.placed == {first: [("n1", 4), ("n2", 4)]}
    assert world.free == 4
    assert holds(world) == {second: HoldCode.PROMISED}
    world.assert_sound()


def test_a_gang_that_does_not_fit_starts_when_room_appears() -> None:
    """It holds nothing meanwhile, and a smaller job behind it is not blocked where nothing was promised."""
    world = World(NODES_OF_4)
    world.policy(promises=0)
    first, second, small = world.submit("a", 8), world.submit("b", 8), world.submit("c", 2)
    world.rounds()
    assert set(world.placed) == {first, small}

    world.start(first)
    world.end(first)
    world.release(first)
    world.rounds()

    assert world.placed[second] == [("n1", 4), ("n2", 4)]
    world.assert_sound()


def test_small_jobs_go_to_the_fullest_node_that_holds_them() -> None:
    """Best fit: whole nodes stay whole for gangs."""
    world = World({"n1": 8, "n2": 8, "n3": 8})
    world.submit("a", 5)
    world.rounds()
    world.submit("b", 3)
    world.submit("c", 2)
    gang = world.submit("d", 8)

    world.rounds()

    assert world.placed["b"] == [("n1", 3)]
    assert world.placed["c"] == [("n2", 2)]
    assert world.placed[gang] == [("n3", 8)]


def test_the_order_is_priority_then_age() -> None:
    """An urgent job that came last goes first; among equals the oldest."""
    world = World({"n1": 4})
    world.submit("old", 4)
    world.submit("older-but-low", 4, priority=Priority.LOW)
    world.submit("urgent", 4, priority=Priority.URGENT)

    decided = world.rounds()

    assert [e.job_id for e in decided if isinstance(e, JobPlaced)] == ["urgent"]


def test_a_gang_is_on_one_accepted_type_in_order_of_preference() -> None:
    """Types are never mixed, and a type that nobody has is said so."""
    world = World({"h1": 8})
    world.join("a1", 8, gpu_type="a100")
    first = world.submit("first", 8, gpu_types=("a100", "h100"))
    second = world.submit("second", 8, gpu_types=("a100", "h100"))
    mixed = world.submit("mixed", 16)
    unknown = world.submit("unknown", 1, gpu_types=("tpu",))

    world.rounds()

    assert world.placed == {first: [("a1", 8)], second: [("h1", 8)]}
    assert holds(world) == {mixed: HoldCode.EXCEEDS_CLUSTER, unknown: HoldCode.NO_SUCH_GPU}


def test_an_explicit_shape_is_kept_to() -> None:
    """2 nodes with 2 GPUs each are not one node with 4."""
    world = World({"n1": 4, "n2": 4})
    job = world.submit("a", 4, nodes=2, gpus_per_node=2)

    world.rounds()

    assert world.placed[job] == [("n1", 2), ("n2", 2)]


def test_a_remainder_goes_to_the_fullest_node() -> None:
    """12 GPUs on nodes of 8: a whole node, and 4 of another that is in use."""
    world = World({"n1": 8, "n2": 8, "n3": 8})
    world.submit("small", 4)
    world.rounds()
    gang = world.submit("gang", 12)

    world.rounds()

    assert world.placed[gang] == [("n1", 4), ("n2", 8)]


def test_a_gang_larger_than_the_cluster_is_told_apart_from_one_that_waits() -> None:
    """And from one that would fit if its nodes were well."""
    world = World({"n1": 8, "n2": 8})
    large = world.submit("large", 17)
    world.round()
    silent = dict.fromkeys(world.cluster.nodes, 40.0)
    world.round(silent)
    unwell = world.submit("unwell", 16)

    while world.round(silent):
        pass

    assert holds(world) == {large: HoldCode.EXCEEDS_CLUSTER, unwell: HoldCode.NODES_UNWELL}


def test_a_hold_code_is_written_once_and_again_only_after_a_while() -> None:
    """The log gets a word when the code changes, at most once in 30 seconds; never one for numbers."""
    world = World({"n1": 8})
    world.policy(promises=0)
    world.submit("a", 8)
    waiting = world.submit("b", 16)
    assert names(world.rounds()).count("JobHeld") == 1
    world.join("n2", 8)
    world.wait(10)
    assert names(world.rounds()) == ["JobAdmitted"]  # the code is another one, but too soon

    world.wait(25)
    said = world.rounds()

    assert said == [JobHeld(at=world.at, team=TeamId("t"), job_id=waiting, code=HoldCode.NO_ROOM)]


def test_a_node_that_is_suspect_gets_nothing_new() -> None:
    """What runs there goes on."""
    world = World({"n1": 8})
    world.round(dict.fromkeys(world.cluster.nodes, 40.0))
    world.submit("a", 1)
    assert "JobPlaced" not in names(world.round(dict.fromkeys(world.cluster.nodes, 45.0)))

    assert "JobPlaced" in names(world.rounds())  # it is heard again


def test_thousands_of_misfits_that_are_alike_are_one_look() -> None:
    """Once all is said of them; and the scan goes past them at once to a small job that came last and fits."""
    world = World({"n1": 8, "n2": 8})
    world.policy(promises=0)
    world.submit("runs", 12)
    for number in range(1_000):
        world.submit(f"j{number:04d}", 16)
    world.rounds()
    small = world.submit("small", 4)
    world.add(*admit(world.cluster, world.tick()))
    looked_at: list[str] = []
    jobs = world.cluster.jobs

    class Watched(dict):  # type: ignore[type-arg]
        def __getitem__(self, key: str) -> object:
            looked_at.append(key)
            return jobs[JobId(key)]

    world.cluster.jobs = Watched(jobs)
    decided = decide(world.cluster, world.tick())

    assert [event.job_id for event in decided if isinstance(event, JobPlaced)] == [small]
    assert len(looked_at) < 20
