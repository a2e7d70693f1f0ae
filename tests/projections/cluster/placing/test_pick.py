"""Which nodes a gang gets: types, policies, taints, broken GPUs."""

import pytest

from events.job import HoldCode
from events.policy import PlacePolicy
from projections.cluster.job import Shape
from projections.cluster.placing.place import Misfit, Room, place
from tests.projections.cluster.placing.gangs import BEST, FIRST, SPREAD, Places, cluster_of, node, placement, shares_of


def test_gpu_types_are_tried_in_order_of_preference() -> None:
    """The first accepted type that holds the gang, whatever its name."""
    room = Room(cluster_of([node("a", gpu_type="a100"), node("h", 4, gpu_type="h100")]))

    assert shares_of(placement(room, Shape(2, gpu_types=("h100", "a100")))) == [("h", 2)]
    assert shares_of(placement(room, Shape(8, gpu_types=("h100", "a100")))) == [("a", 8)]
    assert shares_of(placement(room, Shape(2))) == [("a", 2)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(BEST, [("broken", 2)]), (FIRST, [("a-idle", 2)]), (SPREAD, [("a-idle", 2)])],
)
def test_a_small_job_goes_where_the_policy_says(policy: PlacePolicy, expected: Places) -> None:
    """By best fit to the node that cannot be whole: one whose GPU is broken comes before one that is idle."""
    found = [node("a-idle"), node("broken", broken=4), node("busy", busy=1)]

    assert shares_of(placement(Room(cluster_of(found, policy)), Shape(2))) == expected


def test_a_node_with_a_broken_gpu_is_never_a_whole_node() -> None:
    """Eight GPUs go to a node that has eight to give; what is out of the pool is never given."""
    found = [node("a", broken=1), node("b")]
    room = Room(cluster_of(found))

    assert shares_of(placement(room, Shape(8))) == [("b", 8)]
    assert shares_of(placement(room, Shape(7))) == [("a", 7)]
    assert place(room, Shape(16)) == Misfit(HoldCode.NO_ROOM)


@pytest.mark.parametrize(
    ("tolerates", "expected"), [((), "plain"), (("old",), "plain"), (("old", "slow"), "tainted"), (("slow",), "plain")]
)
def test_a_tainted_node_takes_jobs_that_tolerate_all_its_taints(tolerates: tuple[str, ...], expected: str) -> None:
    """Best fit prefers the tainted one, which is busy, where the job may go there."""
    found = [node("plain"), node("tainted", busy=4, taints=("slow", "old"))]

    assert shares_of(placement(Room(cluster_of(found)), Shape(2, tolerates=tolerates))) == [(expected, 2)]
