"""Moves that make room for a gang: the cheapest, each to a new place, proposed or made."""

from typing import Any, Final

import pytest

from events.job import Checkpoint, ConsolidationProposed, GpusEarmarked, Priority
from events.policy import Consolidation
from services.scheduler.consolidate import MOVES_MAX, Consolidated, said
from tests.clusters import names
from tests.services.scheduler.evicting import Stage

SAVES: Final[dict[str, Any]] = {"checkpoint": Checkpoint()}


def stage(nodes: dict[str, int] | None = None, **policy: Any) -> Stage:
    """Nodes, and a policy under which runs may move at once."""
    made = Stage(nodes or {"n1": 8, "n2": 8})
    made.policy(**({"min_runtime_s": 0, "cool_down_s": 0, "consolidation": Consolidation.DO} | policy))
    return made


def scattered(**spec: Any) -> Stage:
    """Two nodes, half of each taken."""
    made = stage()
    made.running("one", {"n1": 4}, **(SAVES | spec))
    made.running("two", {"n2": 4}, **(SAVES | spec))
    made.hour()
    return made


def moved(found: Consolidated | None) -> dict[str, list[str]]:
    """Which run goes to which nodes."""
    return {m.run_id: [s.node_id for s in m.shares] for m in found.moves} if found is not None else {}


def test_a_run_moves_to_where_there_is_room_and_the_gang_gets_its_node() -> None:
    """The one that loses less since its last checkpoint."""
    made = scattered()
    made.save("two")
    made.wait(60)
    found = made.moves(made.waiting("gang", 8))

    assert moved(found) == {"two-1": ["n1"]}
    assert found is not None
    assert [(share.node_id, share.slots) for share in found.placement.shares] == [("n2", 0xFF)]


@pytest.mark.parametrize(
    "spec",
    [{"checkpoint": None}, {"preemptible": False}, {"labels": {"rack": "r9"}}],
    ids=["without a checkpoint contract", "not preemptible", "nowhere else to go"],
)
def test_some_runs_do_not_move(spec: dict[str, Any]) -> None:
    """Those that would lose all, that may not be stopped, and that have no other place."""
    made = scattered(**spec)

    assert made.moves(made.waiting("gang", 8)) is None


@pytest.mark.parametrize(
    "policy", [{"consolidation": Consolidation.OFF}, {"min_runtime_s": 7200}, {"evictions_max": 0}]
)
def test_the_rules_of_evictions_hold_for_moves(policy: dict[str, Any]) -> None:
    """Minimum runtime and cap; and the policy's own word."""
    made = scattered()
    made.policy(**({"min_runtime_s": 0, "cool_down_s": 0, "consolidation": Consolidation.DO} | policy))

    assert made.moves(made.waiting("gang", 8)) is None


def test_nothing_moves_where_too_few_gpus_are_free() -> None:
    """That is what preemption is for, or time."""
    made = stage()
    made.running("one", {"n1": 4}, **SAVES)
    made.running("two", {"n2": 5}, **SAVES)
    made.hour()

    assert made.moves(made.waiting("gang", 8, priority=Priority.URGENT)) is None


def test_all_moves_have_a_place_at_once_or_none_is_made() -> None:
    """Each alone would find the same four free GPUs; the fourth run stays, and with it the gang."""
    made = stage({"n1": 8, "n2": 8, "n3": 8})
    made.running("a", {"n1": 3}, **SAVES)
    made.running("b", {"n2": 3}, **SAVES)
    made.running("c", {"n3": 3}, **SAVES)
    made.hour()

    assert len(moved(made.moves(made.waiting("one", 8)))) == 1
    assert made.moves(made.waiting("two", 15)) is None


def test_a_run_without_a_new_place_is_left_out_and_another_is_tried() -> None:
    """The cheapest has nowhere to go: its label holds it to its node."""
    made = stage({})
    made.join("n1", 8, labels={"net": "ib"})
    made.join("n2", 8)
    made.running("bound", {"n1": 4}, labels={"net": "ib"}, **SAVES)
    made.running("loose", {"n2": 4}, **SAVES)
    made.hour()
    made.save("bound")

    assert moved(made.moves(made.waiting("gang", 8))) == {"loose-1": ["n1"]}


def test_a_gang_of_several_nodes_moves_whole() -> None:
    """Its new place is of the same shape."""
    made = stage({f"n{number}": 4 for number in range(1, 6)})
    made.running("pair", {"n1": 2, "n2": 2}, nodes=2, gpus_per_node=2, **SAVES)
    for number in (3, 4, 5):
        made.running(f"stays{number}", {f"n{number}": 1})
    made.hour()

    assert moved(made.moves(made.waiting("gang", 8, nodes=2, gpus_per_node=4))) == {"pair-1": ["n3", "n4"]}


def test_what_was_proposed_is_not_said_again_for_ten_minutes() -> None:
    """The log is no diary."""
    made = scattered()
    made.policy(min_runtime_s=0, consolidation=Consolidation.PROPOSE)
    gang = made.waiting("gang", 8)
    found = made.moves(gang)
    assert found is not None
    events = said(made.scene(), made.cluster.jobs[gang], found)
    assert names(events) == ["ConsolidationProposed"]
    assert isinstance(events[0], ConsolidationProposed)
    made.add(*events)
    made.wait(599)
    assert made.moves(gang) is None
    made.policy(min_runtime_s=0, consolidation=Consolidation.DO)
    assert made.moves(gang) is not None  # an operator who likes what was proposed need not wait
    made.policy(min_runtime_s=0, consolidation=Consolidation.PROPOSE)
    made.wait(1)

    assert made.moves(gang) is not None


def test_a_move_sets_aside_the_gangs_place_and_each_runs_new_one() -> None:
    """All in one decision; the run ends for the gang, and is counted as stopped once."""
    made = scattered()
    gang = made.waiting("gang", 8)
    found = made.moves(gang)
    assert found is not None
    events = said(made.scene(), made.cluster.jobs[gang], found)
    made.add(*events)

    first, second = (event for event in events if isinstance(event, GpusEarmarked))
    assert (first.job_id, first.victims, first.moved) == (gang, ("one-1",), True)
    assert (second.job_id, second.victims, second.moved) == ("one", (), False)
    assert made.job("one").evictions == 1
    assert made.moves(made.waiting("other", 8)) is None, "nothing is left to move"


def test_a_gang_takes_so_many_moves_at_the_most() -> None:
    """The search is bounded."""
    made = stage({f"n{number:02d}": 8 for number in range(20)})
    for number in range(20):
        for part in range(4):
            made.running(f"r{number}-{part}", {f"n{number:02d}": 1}, **SAVES)
    made.hour()
    few, many = made.moves(made.waiting("few", 80)), made.moves(made.waiting("gang", 8))

    assert few is not None
    assert len(few.moves) == 40 <= MOVES_MAX
    assert many is not None
    assert len(many.moves) == 4
