"""What the bounds of queues let a team claim and do: one test a knob."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.base import JobId, TeamId
from events.job import HoldCode
from events.queues import Bounds, Queue, QueueOrder, QueueStop
from projections.cluster.quota.bounds import Block, Request
from projections.cluster.quota.shares import UNBOUNDED
from tests.projections.cluster.quota.asking import A100, H100, asking, entitled, floors, queue, standing
from tests.queues import NAMES, TYPES, WISHES, Wishes, documents, world_of


def test_weight_0_gets_what_none_of_the_others_wants() -> None:
    """And all of that."""
    queues = queue("a"), queue("z", weight=0)

    assert entitled(asking(10, *queues, a=20, z=20), "a", "z") == [10, 0]
    assert entitled(asking(10, *queues, a=4, z=20), "a", "z") == [4, 6]


def test_all_weights_0_share_equally() -> None:
    """A document in which nobody counts is no reason to leave GPUs idle."""
    assert entitled(asking(10, queue("a", weight=0), queue("b", weight=0), a=20, b=20), "a", "b") == [5, 5]


def test_floor_comes_first_and_weight_shares_the_rest() -> None:
    """Without a floor the weight's part is the floor, as far as the floors of others leave it."""
    queues = queue("a", floor=6), queue("b"), queue("c")

    assert entitled(asking(12, *queues, a=20, b=20, c=20), "a", "b", "c") == [6, 3, 3]
    assert entitled(asking(12, *queues, b=20, c=20), "a", "b", "c") == [0, 6, 6]


def test_floor_0_is_none_for_sure_and_no_floor_is_the_weights_part() -> None:
    """0 is a number."""
    assert floors(asking(10, queue("a", floor=0), queue("b"), a=1, b=1), "a", "b") == [0, 5]


def test_floors_beyond_the_capacity_are_scaled() -> None:
    """In proportion, in whole GPUs: an outage hits all alike."""
    world = asking(9, queue("a", floor=12), queue("b", floor=6), queue("c"), a=20, b=20, c=20)

    assert entitled(world, "a", "b", "c") == [6, 3, 0]


def test_limit_bounds_what_a_team_may_claim() -> None:
    """What is beyond it is the others', also where they are elsewhere in the tree."""
    world = asking(10, queue("org", limit=6), queue("a", "org"), queue("b", "org"), queue("c"), a=20, b=20, c=20)

    assert entitled(world, "a", "b", "c") == [3, 2, 5]
    assert entitled(asking(10, queue("a", limit=2), queue("c"), a=20, c=20), "a", "c") == [2, 8]


def test_a_missing_limit_is_none_and_a_limit_of_0_lets_nothing_in() -> None:
    """In that order."""
    world = asking(10, queue("a"), queue("b", limit=0), a=20, b=20)
    now = standing(world)

    assert now.blocked(Request(TeamId("a"), (), 10, preemptible=True)) is None
    assert now.headroom(TeamId("a"), H100) == UNBOUNDED
    assert now.blocked(Request(TeamId("b"), (), 1, preemptible=True)) == Block(HoldCode.EXCEEDS_LIMIT, "b", 0, 0)
    assert now.headroom(TeamId("b"), H100) == 0
    assert entitled(world, "a", "b") == [10, 0]


def test_limit_over_all_types_counts_them_together() -> None:
    """And is spent on the types by name."""
    world = asking(10, queue("a", limit=6), queue("b"))
    world.join("m1", 10, gpu_type=A100)
    world.submit("one", 4, team="a", gpu_types=(A100,))
    world.submit("two", 4, team="a", gpu_types=(H100,))

    assert entitled(world, "a", gpu_type=A100) == [4]
    assert entitled(world, "a") == [2]
    world.put(JobId("one"), m1=4)
    now = standing(world)
    assert now.headroom(TeamId("a"), H100) == 2
    assert now.blocked(Request(TeamId("a"), (H100,), 4, preemptible=True)) == Block(HoldCode.OVER_LIMIT, "a", 6, 4)


def test_limit_of_one_type_leaves_the_others_open() -> None:
    """A job that accepts both may take the other."""
    world = asking(10, queue("a", gpu_type=H100, limit=0), queue("b"))
    world.join("m1", 10, gpu_type=A100)
    now = standing(world)

    assert now.open_types(TeamId("a"), (), 4, preemptible=True) == (A100,)
    assert now.blocked(Request(TeamId("a"), (H100, A100), 4, preemptible=True)) is None
    assert now.blocked(Request(TeamId("a"), (H100,), 4, preemptible=True)) is not None


def test_borrowing_limit_bounds_what_is_beyond_the_floor() -> None:
    """Missing: no bound; 0: nothing beyond it."""
    cases = {None: 20, 0: 5, 3: 8}
    for most, share in cases.items():
        world = asking(20, queue("a", floor=5, borrowing_limit=most), queue("b"), a=40)
        assert entitled(world, "a") == [share], most
        assert standing(world).headroom(TeamId("a"), H100) == (UNBOUNDED if most is None else share)


def test_borrowing_limit_over_all_types_is_beyond_all_floors() -> None:
    """Where no floor is set over all, the floors of the types count."""
    world = asking(10, queue("a", borrowing_limit=2), queue("b"))
    world.join("m1", 10, gpu_type=A100)
    for number, gpu_type in enumerate((A100, H100)):
        world.submit(f"j{number}", 9, team="a", gpu_types=(gpu_type,))

    assert entitled(world, "a", gpu_type=A100) + entitled(world, "a") == [9, 3]


def test_lending_limit_bounds_what_others_get_of_an_idle_floor() -> None:
    """Missing: all of it; 0: none."""
    cases = {None: 20, 0: 12, 3: 15}
    for most, share in cases.items():
        world = asking(20, queue("a", floor=8, lending_limit=most), queue("b"), b=40)
        assert entitled(world, "b") == [share], most


def test_what_a_sibling_keeps_for_itself_is_not_at_the_cost_of_anybodys_floor() -> None:
    """Their organisation wants less than its floor: it has what they want, and `idle` keeps nothing of that."""
    lab = (queue("lab", floor=6), queue("idle", "lab", floor=3, lending_limit=0), queue("busy", "lab", floor=3))
    world = asking(12, *lab, queue("c"), busy=3, c=40)
    assert entitled(world, "busy", "c") == [3, 9]

    assert entitled(asking(12, *lab, queue("c"), busy=9, c=40), "busy") == [3]


def test_lending_limit_of_a_floor_over_all_types_holds_too() -> None:
    """The floor is laid on the types by name, first where it is wanted; what is not lent of it stays there."""
    world = asking(10, queue("a", floor=12, lending_limit=0), queue("b"), b=40)
    world.join("m1", 10, gpu_type=A100)
    world.submit("more", 40, team="b", gpu_types=(A100,))

    assert entitled(world, "b", gpu_type=A100) + entitled(world, "b") == [0, 8]


def test_lending_limit_over_all_types_is_spent_on_them_by_name() -> None:
    """Where each type has a floor of its own."""
    floors_of = (Bounds(gpu_type=A100, floor=8), Bounds(gpu_type=H100, floor=8), Bounds(lending_limit=3))
    world = asking(10, Queue(name=TeamId("a"), bounds=floors_of), queue("b"), b=40)
    world.join("m1", 10, gpu_type=A100)
    world.submit("more", 40, team="b", gpu_types=(A100,))

    assert entitled(world, "b", gpu_type=A100) + entitled(world, "b") == [5, 2]


def test_a_floor_over_all_types_is_spent_where_it_is_wanted() -> None:
    """On the first type by name, then on the next."""
    world = asking(10, queue("a", floor=12), queue("b"), a=8, b=40)
    world.join("m1", 10, gpu_type=A100)
    world.submit("other", 6, team="a", gpu_types=(A100,))
    world.submit("more", 40, team="b", gpu_types=(A100,))

    assert floors(world, "a", gpu_type=A100) + floors(world, "a") == [6, 6]
    assert entitled(world, "b", gpu_type=A100) + entitled(world, "b") == [4, 4]


def test_running_max_bounds_jobs_and_not_gpus() -> None:
    """Missing: no bound; 0: none may run. At every level."""
    world = asking(10, queue("org", running_max=1), queue("a", "org"), queue("b", "org"), queue("c", running_max=0))
    assert standing(world).blocked(Request(TeamId("b"), (), 9, preemptible=True)) is None

    world.put(world.submit("runs", 1, team="a"), n0000=1)
    now = standing(world)

    assert now.blocked(Request(TeamId("b"), (), 1, preemptible=True)) == Block(HoldCode.RUNNING_MAX, "org", 1, 1)
    assert now.blocked(Request(TeamId("c"), (), 1, preemptible=True)) == Block(HoldCode.RUNNING_MAX, "c", 0, 0)


@pytest.mark.parametrize("stop", [QueueStop.PAUSE, QueueStop.HOLD])
def test_a_stopped_queue_wants_nothing_and_lets_nothing_in(stop: QueueStop) -> None:
    """Nor do those below it; what runs of it counts on."""
    world = asking(10, queue("org", stop=stop), queue("a", "org"), queue("b"), a=20, b=20)
    world.put(world.submit("runs", 2, team="a"), n0000=2)

    assert entitled(world, "a", "b") == [2, 8]
    assert standing(world).blocked(Request(TeamId("a"), (), 1, preemptible=True)) == Block(
        HoldCode.QUEUE_PAUSED, "org", 0, 0
    )


def test_strict_is_said_of_the_queue_that_is() -> None:
    """And of no team without a queue."""
    now = standing(asking(1, queue("a", order=QueueOrder.STRICT), queue("b")))

    assert [now.strict(TeamId(team)) for team in ("a", "b", "nobody")] == [True, False, False]


def test_what_cannot_be_preempted_stays_within_the_floor_at_every_level() -> None:
    """Else what a team has for sure could not be given back to it."""
    world = asking(12, queue("org"), queue("a", "org"), queue("b", "org"), queue("c"), a=1, b=1, c=1)
    world.put(world.submit("firm", 2, team="a", preemptible=False), n0000=2)
    now = standing(world)

    assert now.blocked(Request(TeamId("a"), (), 1, preemptible=False)) is None
    assert now.blocked(Request(TeamId("a"), (), 2, preemptible=False)) == Block(HoldCode.OVER_FLOOR, "a", 3, 2)
    assert now.blocked(Request(TeamId("a"), (), 4, preemptible=False)) == Block(HoldCode.EXCEEDS_FLOOR, "a", 3, 2)
    assert now.blocked(Request(TeamId("a"), (), 4, preemptible=True)) is None


def test_a_floor_over_all_types_is_not_spent_twice_by_what_cannot_be_preempted() -> None:
    """It counts over all types together, wherever it was laid first."""
    world = asking(10, queue("a", floor=8), queue("b"))
    world.join("m1", 10, gpu_type=A100)
    world.put(world.submit("firm", 8, team="a", gpu_types=(H100,), preemptible=False), n0000=8)

    assert standing(world).blocked(Request(TeamId("a"), (A100,), 1, preemptible=False)) == Block(
        HoldCode.OVER_FLOOR, "a", 8, 8
    )


@settings(max_examples=60)
@given(documents(), WISHES, st.sampled_from(NAMES), st.integers(1, 40), st.booleans())
def test_what_exceeds_a_bound_is_what_no_wishes_could_let_in(
    queues: tuple[Queue, ...], wishes: Wishes, team: str, gpus: int, preemptible: bool
) -> None:
    """Said of a job where it is never let in, and nowhere else: else a job that it is said of could be let in all the same."""
    now = standing(world_of(queues, [*wishes, ("f", TYPES[0], 1)]))
    for gpu_types in ((), (A100,), (H100,), (H100, A100)):
        block = now.blocked(Request(TeamId(team), gpu_types, gpus, preemptible=preemptible))
        exceeds = block is not None and block.code in {HoldCode.EXCEEDS_LIMIT, HoldCode.EXCEEDS_FLOOR}
        assert exceeds == now.never(TeamId(team), gpu_types, gpus, preemptible=preemptible)
        assert not exceeds or (block is not None and gpus > block.bound)
