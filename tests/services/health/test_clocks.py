"""Clocks of nodes are shown, and decide nothing."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from events.base import NodeId
from events.fleet import NodeClockJudged
from services.control.round import decide_all
from services.health.clocks import DECIDED_MAX, decide
from tests.clusters import World
from tests.histories import history

N1 = NodeId("n1")


def test_a_clock_is_told_of_when_it_has_changed_much_and_then_not_again() -> None:
    """By a second, and by half."""
    world = World({"n1": 8})

    def judged(ahead_s: float) -> list[float]:
        events = decide(world.cluster, replace(world.tick(), skews={N1: ahead_s}))
        world.add(*events)
        return [event.ahead_s for event in events if isinstance(event, NodeClockJudged)]

    assert [judged(ahead_s) for ahead_s in (0.9, -7.04, -7.5, -3.0, 0.2)] == [[], [-7.0], [], [-3.0], [0.2]]
    assert world.cluster.nodes[N1].fitness.ahead_s == 0.2


def test_a_node_that_nobody_knows_has_no_clock() -> None:
    """A beat of something that never joined."""
    assert decide(World().cluster, replace(World().tick(), skews={N1: 9.0})) == []


def test_what_one_round_says_is_bounded() -> None:
    """A control plane whose own clock is wrong finds every clock wrong."""
    world = World({f"n{n}": 1 for n in range(DECIDED_MAX + 1)})
    skews = dict.fromkeys(world.cluster.nodes, 60.0)
    assert len(decide(world.cluster, replace(world.tick(), skews=skews))) == DECIDED_MAX


@settings(max_examples=25)
@given(st.integers(0, 40), st.dictionaries(st.integers(0, 8), st.floats(-1e5, 1e5)))
def test_decisions_are_equal_with_any_clocks_but_for_what_is_said_of_them(seed: int, clocks: dict[int, float]) -> None:
    """A node whose clock is years off is used, waited for and given up like any other."""
    grown = history(seed, 60)
    nodes = sorted(grown.cluster.nodes)
    skews = {nodes[n % len(nodes)]: ahead_s for n, ahead_s in clocks.items()} if nodes else {}
    tick = grown.tick(dict.fromkeys(nodes[::2], 1_000.0))

    told = decide_all(grown.cluster, replace(tick, skews=skews))[1:]

    assert [event for event in told if not isinstance(event, NodeClockJudged)] == decide_all(grown.cluster, tick)[1:]
