"""The two rooms of a round: who may have which of the GPUs that are free."""

from datetime import timedelta

from events.base import JobId, NodeId, SlotMask
from events.job import NodeShare
from projections.cluster.job import Shape
from projections.cluster.placing.place import Misfit, Placement
from services.scheduler.promised import Claim, Promised
from tests.clusters import World

NOBODY: frozenset[JobId] = frozenset()


def share(world: World, name: str, slots: int) -> NodeShare:
    """Some slots of a node."""
    node_id = NodeId(name)
    return NodeShare(node_id, world.cluster.nodes[node_id].epoch, SlotMask(slots))


def claim(world: World, job: str, shares: dict[str, int], *, start_s: int | None, lasts_s: int | None = None) -> Claim:
    """What is promised to a job."""
    start = None if start_s is None else world.at + timedelta(seconds=start_s)
    end = None if start is None or lasts_s is None else start + timedelta(seconds=lasts_s)
    return Claim(JobId(job), tuple(share(world, name, slots) for name, slots in shares.items()), start, end)


def test_what_is_promised_goes_to_those_that_are_gone_in_time() -> None:
    """Up to the very start, and to nobody where the start is unknown."""
    world = World({"n1": 4, "n2": 4})
    promised = Promised(world.cluster, world.at)
    promised.add(claim(world, "early", {"n1": 0b1111}, start_s=50))
    promised.add(claim(world, "never", {"n2": 0b1111}, start_s=None))
    shape = Shape(4)
    assert isinstance(promised.fit(shape, None), Misfit)

    in_time = promised.fit_promised(shape, None, end=world.at + timedelta(seconds=50), mine=NOBODY)
    assert isinstance(in_time, Placement)
    assert [part.node_id for part in in_time.shares] == ["n1"]
    assert promised.fit_promised(shape, None, end=world.at + timedelta(seconds=51), mine=NOBODY) is None
    assert promised.fit_promised(shape, None, end=None, mine=NOBODY) is None
    own = promised.fit_promised(shape, None, end=None, mine={JobId("never")})
    assert isinstance(own, Placement)
    assert [part.node_id for part in own.shares] == ["n2"]


def test_a_slot_that_two_were_promised_is_open_to_what_is_gone_before_both() -> None:
    """A hole before a later start is the other's."""
    world = World({"n1": 4})
    promised = Promised(world.cluster, world.at)
    promised.add(claim(world, "late", {"n1": 0b1111}, start_s=100))
    promised.add(claim(world, "hole", {"n1": 0b0011}, start_s=10, lasts_s=80))
    soon, later = (world.at + timedelta(seconds=s) for s in (10, 60))

    assert isinstance(promised.fit_promised(Shape(4), None, end=soon, mine=NOBODY), Placement)
    assert promised.fit_promised(Shape(4), None, end=later, mine=NOBODY) is None
    two = promised.fit_promised(Shape(2), None, end=later, mine=NOBODY)
    assert isinstance(two, Placement)
    assert two.shares == (share(world, "n1", 0b1100),)


def test_what_is_dropped_is_anyones_but_for_what_another_was_promised_too() -> None:
    """And what was found not to fit is looked at again."""
    world = World({"n1": 4})
    promised = Promised(world.cluster, world.at)
    promised.add(claim(world, "late", {"n1": 0b1111}, start_s=100))
    promised.add(claim(world, "hole", {"n1": 0b0011}, start_s=10))
    assert isinstance(promised.fit(Shape(1), None), Misfit)
    promised.drop(JobId("late"))

    found = promised.fit(Shape(2), None)
    assert isinstance(found, Placement)
    assert found.shares == (share(world, "n1", 0b1100),)
    assert isinstance(promised.fit(Shape(3), None), Misfit)


def test_whose_promise_cannot_be_kept_is_told_by_what_is_taken() -> None:
    """Not that of one whose slots are free again in time."""
    world = World({"n1": 4, "n2": 4})
    promised = Promised(world.cluster, world.at)
    promised.add(claim(world, "a", {"n1": 0b0011}, start_s=50))
    promised.add(claim(world, "b", {"n1": 0b1100, "n2": 0b1}, start_s=100))
    taken = (share(world, "n1", 0b0110),)

    assert [hit.job_id for hit in promised.hit(taken, end=None)] == ["a", "b"]
    assert [hit.job_id for hit in promised.hit(taken, end=world.at + timedelta(seconds=70))] == ["a"]
    assert not list(promised.hit((share(world, "n2", 0b10),), end=None))


def test_a_search_that_frees_gpus_sees_what_is_promised_or_set_aside_as_taken() -> None:
    """Also once it would be free: two preemptors never count on the same slot."""
    world = World({"n1": 4})
    world.submit("runs", 2)
    world.rounds()
    promised = Promised(world.cluster, world.at)
    promised.set_aside((share(world, "n1", 0b0111),))
    promised.add(claim(world, "a", {"n1": 0b1000}, start_s=50))
    room, node = promised.guarded(NOBODY), world.cluster.nodes[NodeId("n1")]
    room.give((share(world, "n1", 0b0011),))

    assert room.free(node) == 0
    assert promised.guarded({JobId("a")}).free(node) == 0b1000
