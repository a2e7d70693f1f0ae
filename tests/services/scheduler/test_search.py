"""The search for the cheapest nodes, with costs and a budget made up for it."""

from collections import Counter

import pytest

from events.base import JobId, NodeId, RunId
from projections.cluster.job import Shape
from services.scheduler.preempt import Preemption
from services.scheduler.search import Budget, Found, Need, Search, cheapest, could_hold, lowest, needs_of
from services.scheduler.spots import Ground
from tests.services.scheduler.evicting import Stage, destination


class Purse(Budget):
    """Runs cost what is written here, and only so many may be claimed."""

    def __init__(self, costs: dict[str, int], most: int = 99) -> None:
        self.costs, self.most = costs, most
        self.claimed: list[RunId] = []

    def cost(self, run_id: RunId) -> int | None:
        """As written; None where nothing is, or no more may be claimed."""
        return self.costs.get(run_id) if len(self.claimed) < self.most else None

    def claim(self, run_id: RunId) -> bool:
        """It is claimed, if it may be."""
        if self.cost(run_id) is None:
            return False
        self.claimed.append(run_id)
        return True

    def restore(self, run_id: RunId) -> None:
        """It is not claimed."""
        self.claimed.remove(run_id)


def ground(runs: dict[str, dict[str, int]], sizes: tuple[int, ...] = (4, 4, 4)) -> Ground:
    """Nodes n1, n2, … of these sizes, with runs on them."""
    made = Stage({f"n{number}": size for number, size in enumerate(sizes, 1)})
    made.policy(min_runtime_s=0)
    for name, on in runs.items():
        made.running(name, on)
    return Ground(made.scene(), Shape(1), "h100")


@pytest.mark.parametrize(
    ("shape", "sizes", "needs"),
    [
        (Shape(2), [8], [Need(1, 2)]),
        (Shape(6), [2, 8], [Need(1, 6), Need(3, 2, 0, 2)]),
        (Shape(12), [8], [Need(1, 8, 4, 8)]),
        (Shape(16), [4, 8], [Need(2, 8, 0, 8), Need(4, 4, 0, 4)]),
        (Shape(4, nodes=2, gpus_per_node=2), [8], [Need(2, 2)]),
        (Shape(8), [16], []),
    ],
)
def test_a_gang_is_held_in_the_ways_that_placement_knows(shape: Shape, sizes: list[int], needs: list[Need]) -> None:
    """A part of a node for under 8 GPUs; whole nodes of one size, the largest first, and the rest on one more."""
    assert list(needs_of(shape, sizes)) == needs


@pytest.mark.parametrize(
    ("need", "holds"),
    [
        (Need(2, 6), True),
        (Need(3, 6), False),
        (Need(1, 8, 0, 8), True),
        (Need(2, 8, 0, 8), False),
        (Need(1, 8, 4, 8), True),
        (Need(1, 4, 5, 4), True),
        (Need(1, 8, 7, 8), False),
        (Need(2, 4, 0, 16), False),
    ],
)
def test_counts_of_nodes_say_where_no_search_would_find_anything(need: Need, holds: bool) -> None:
    """One node of 8 with all, one with 6, one of 4 with all: of the size that is needed, and one more for the rest."""
    assert could_hold(need, Counter({(8, 8): 1, (8, 6): 1, (4, 4): 1})) is holds


@pytest.mark.parametrize(
    ("costs", "gpus", "victims"),
    [
        ({"a-1": 1, "b-1": 4, "c-1": 9}, 1, ["a-1"]),
        ({"a-1": 1, "b-1": 4, "c-1": 9}, 2, ["b-1"]),
        ({"a-1": 1, "b-1": 4}, 3, ["a-1", "b-1"]),
        ({"a-1": 9, "b-1": 4, "c-1": 1}, 2, ["b-1"]),
        ({"a-1": 1, "c-1": 1}, 2, ["a-1", "c-1"]),
        ({"a-1": 1}, 2, []),
    ],
)
def test_part_of_a_node_is_had_for_little(costs: dict[str, int], gpus: int, victims: list[str]) -> None:
    """The cheapest a GPU, without those that the others make idle; or one alone that costs less."""
    here = ground({"a": {"n1": 1}, "b": {"n1": 2}, "c": {"n1": 1}}, sizes=(4,))
    found = Search(here.spots, here.field.runs, Purse(costs)).find(Need(1, gpus))

    assert sorted(found.victims if found is not None else []) == victims


def test_a_search_that_fails_leaves_nothing_claimed() -> None:
    """Also what it had claimed for nodes that it found."""
    here = ground({"a": {"n1": 4}, "b": {"n2": 4}, "c": {"n3": 4}})
    purse = Purse({"a-1": 1, "b-1": 1, "c-1": 1}, most=2)

    assert Search(here.spots, here.field.runs, purse).find(Need(3, 4, 0, 4)) is None
    assert purse.claimed == []
    assert Search(here.spots, here.field.runs, purse).find(Need(2, 4, 0, 4)) is not None
    assert purse.claimed == [RunId("a-1"), RunId("b-1")]


def test_a_node_whose_runs_may_only_in_part_be_claimed_is_left_out() -> None:
    """The budget ends between two runs of the cheapest node: neither of them stays claimed, and the next is taken."""
    here = ground({"a": {"n1": 2}, "b": {"n1": 2}, "c": {"n2": 4}}, sizes=(4, 4))
    purse = Purse({"a-1": 1, "b-1": 1, "c-1": 9}, most=1)
    found = Search(here.spots, here.field.runs, purse).find(Need(1, 4, 0, 4))

    assert found is not None
    assert found.victims == ("c-1",)


def test_of_several_parts_the_cheapest_is_taken_and_nothing_stays_claimed() -> None:
    """Whatever was tried in the others."""
    here = ground({"a": {"n1": 4}, "b": {"n2": 4}, "c": {"n3": 4}})
    purse = Purse({"a-1": 5, "b-1": 2, "c-1": 7})
    parts = [{name: here.spots[name]} for name in map(NodeId, ("n1", "n2", "n3"))]
    found = cheapest(parts, here.field.runs, purse, Shape(4))

    assert isinstance(found, Found)
    assert (found.victims, found.cost) == (("b-1",), 2)
    assert destination(Preemption(found.shares, (), ())) == {"n2": 4}
    assert purse.claimed == []
    assert cheapest([], here.field.runs, purse, Shape(4)) is None


@pytest.mark.parametrize(("slots", "most", "taken"), [(0b1110, 2, 0b0110), (0b1110, 9, 0b1110), (0b1, 0, 0), (0, 3, 0)])
def test_the_lowest_slots_are_taken(slots: int, most: int, taken: int) -> None:
    """No more than there are."""
    assert lowest(slots, most) == taken


def test_a_node_with_a_run_that_stays_is_not_whole() -> None:
    """A gang frees all of one node and part of another, where one more run stays."""
    here = ground({"a": {"n1": 3, "n2": 4}, "b": {"n1": 1}}, sizes=(4, 4))
    found = Search(here.spots, here.field.runs, Purse({"a-1": 3})).find(Need(1, 4, 0, 4))

    assert found is not None
    assert [share.node_id for share in found.shares] == ["n2"]
    assert JobId("a") == here.field.runs[found.victims[0]].job_id
