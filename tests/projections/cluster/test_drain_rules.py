"""What each word makes of the drains of a node: who rules, what goes on under it, and what ends it."""

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from events.base import NodeEpoch, NodeId
from events.fleet import DrainCause, NodeDrainBegun, NodeDrained, NodeDrainEnded, NodeRetired
from events.operator import MaintenanceCancelled, MaintenancePlanned, NodeDrainAsked, NodeUndrainAsked
from projections.cluster.drain_rules import WINDOWS_MAX, Drains, DrainWord, after
from tests.clusters import BEGIN

HOUR = timedelta(hours=1)
OF: dict[str, Any] = {"at": BEGIN, "node_id": NodeId("n1")}
LIFE: dict[str, Any] = {**OF, "node_epoch": NodeEpoch(1)}
ASKED = NodeDrainAsked(**OF, by="api:ada", reason="fan")
BEGUN = NodeDrainBegun(**LIFE, cause=DrainCause.MAINTENANCE, window="w", deadline=BEGIN + 5 * HOUR)
PLANNED = MaintenancePlanned(**OF, window="w", starts=BEGIN + 5 * HOUR, ends=BEGIN + 6 * HOUR)
ENDED = NodeDrainEnded(**LIFE, cause=DrainCause.MAINTENANCE, window="w")
SICK = NodeDrainBegun(**LIFE, cause=DrainCause.GPU, reason="xid 79")
WORDS: list[DrainWord] = [
    ASKED,
    NodeDrainAsked(**OF, reason="old", cause=DrainCause.RETIRE),
    NodeUndrainAsked(**OF),
    BEGUN,
    ENDED,
    PLANNED,
    MaintenanceCancelled(**OF, window="w"),
    SICK,
    NodeDrained(**LIFE),
    NodeDrainEnded(**LIFE, cause=DrainCause.GPU),
]


def of(*words: DrainWord) -> Drains:
    """What these words come to, said a minute apart."""
    drains = Drains()
    for minute, word in enumerate(words):
        drains = after(drains, word, BEGIN + timedelta(minutes=minute))
    return drains


def cause(*words: DrainWord) -> DrainCause | None:
    """For what the node is drained then."""
    drain = of(*words).drain
    return drain.cause if drain is not None else None


def test_maintenance_never_ends_what_anything_else_began() -> None:
    """In whatever order they came."""
    for other in (ASKED, SICK):
        for words in ((other, PLANNED, BEGUN), (PLANNED, BEGUN, other)):
            both = of(*words).drain
            assert both is not None
            assert (both.cause, both.window, both.deadline) == (other.cause, "w", BEGUN.deadline)
            left = of(*words, ENDED).drain
            assert left is not None
            assert (left.cause, left.window) == (other.cause, "")
    assert of(PLANNED, BEGUN, ENDED) == Drains()


def test_an_operators_word_replaces_what_the_control_plane_began_and_not_the_other_way_round() -> None:
    """The last operator's word rules; an undrain ends all, and the maintenance that has begun with it."""
    assert cause(SICK, ASKED) is DrainCause.OPERATOR
    assert cause(ASKED, SICK) is DrainCause.OPERATOR
    assert of(PLANNED, BEGUN, SICK, NodeUndrainAsked(**OF)) == Drains()
    assert len(of(PLANNED, ASKED, NodeUndrainAsked(**OF)).windows) == 1  # it had not begun


def test_the_same_word_again_makes_a_drain_no_younger() -> None:
    """What is new of it is; that the node is empty stays known."""
    again = of(ASKED, NodeDrained(**LIFE), ASKED).drain
    other = of(ASKED, NodeDrained(**LIFE), NodeDrainAsked(**OF, by="api:bob", reason="disk")).drain
    assert again is not None
    assert other is not None
    assert (again.since, again.done) == (BEGIN, True)
    assert (other.since, other.by, other.done) == (BEGIN + timedelta(minutes=2), "api:bob", True)


def test_windows_are_bounded_and_begin_no_earlier_than_they_were_planned() -> None:
    """Those that begin first are kept."""
    drains = Drains()
    for hour in reversed(range(WINDOWS_MAX + 5)):
        starts = BEGIN + (hour - 2) * HOUR
        word = MaintenancePlanned(**OF, window=f"w{hour}", starts=starts, ends=starts + 9 * HOUR)
        drains = after(drains, word, BEGIN)
    assert len(drains.windows) == WINDOWS_MAX
    assert [window.starts for window in drains.windows] == sorted(window.starts for window in drains.windows)
    assert min(window.starts for window in drains.windows) == BEGIN


@given(st.lists(st.sampled_from(WORDS), max_size=12))
def test_laws(words: list[DrainWord]) -> None:
    """Nothing is said of a retired node; a window that has begun is known, or its end is; an undrain leaves no drain."""
    drains = of(*words)
    assert of(*words, NodeUndrainAsked(**OF)).drain is None
    retired = after(drains, NodeRetired(**LIFE), BEGIN)
    for word in WORDS:
        assert after(retired, word, BEGIN) == retired
    if drains.drain is not None:
        assert drains.drain.cause is not DrainCause.MAINTENANCE or drains.drain.window
    assert after(after(drains, ENDED, BEGIN), ENDED, BEGIN) == after(drains, ENDED, BEGIN)
