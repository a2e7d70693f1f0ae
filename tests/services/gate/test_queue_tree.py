"""Rules of a whole tree of queues: what is odd, what the cluster does not have, what changes."""

from events.base import TeamId
from events.queues import Bounds, Queue
from services.gate.queue_tree import Typed, beyond, changes, oddities, ordered, problems_of


def queue(name: str, parent: str = "", *bounds: Bounds, weight: int = 1) -> Queue:
    """A queue."""
    return Queue(name=TeamId(name), parent=parent, bounds=bounds, weight=weight)


def test_a_tree_has_one_order() -> None:
    """Parents first, siblings by name."""
    queues = [queue("z", "b"), queue("y", "b"), queue("b"), queue("a")]
    assert [one.name for one in ordered(queues)] == ["a", "b", "y", "z"] == [one.name for one in ordered(queues[::-1])]


def test_a_chain_that_is_too_deep_is_refused() -> None:
    """Also when it is written flat."""
    chain = [Typed(f"queues.{n}", queue(f"q{n}", f"q{n - 1}" if n else "")) for n in range(5)]
    assert [one.place for one in problems_of(chain, depth_max=4)] == ["queues.4.parent"]


def test_floors_that_cannot_be_had_are_odd() -> None:
    """Above a limit further up, and beyond the parent's own floor; both are legal: limits change by the hour."""
    queues = [
        queue("a", "", Bounds(limit=10, floor=8), Bounds(gpu_type="h100", limit=2)),
        queue("b", "a", Bounds(floor=4), Bounds(gpu_type="h100", floor=3)),
        queue("c", "a", Bounds(floor=12)),
    ]
    assert oddities(queues, queues) == [
        "the floors below a add up to 16, its own is 8: beyond it they are not sure",
        "the h100 floor of b is 3, but a above it may have 2 at the most",
        "the floor of c is 12, but a above it may have 10 at the most",
    ]


def test_a_queue_that_goes_is_told() -> None:
    """Its jobs do not."""
    assert oddities([queue("a")], [queue("a"), queue("b")]) == [
        "queue b goes: a job of that team stands at the root, with weight 1 and no bounds"
    ]


def test_what_the_cluster_does_not_have_is_told() -> None:
    """Floors over all types, where those of single types and of children count too; and types that are on no node."""
    queues = [
        queue("a", "", Bounds(floor=5)),
        queue("b", "", Bounds(gpu_type="h100", floor=6)),
        queue("c", "b", Bounds(gpu_type="b200", floor=1)),
    ]
    assert beyond(queues, {"h100": 4, "a100": 6}) == [
        "floors add up to 11 GPUs, the cluster has 10: each gets its part of that",
        "GPU type b200, in the bounds of c, is on no node: the types are a100, h100",
        "floors add up to 6 h100 GPUs, the cluster has 4: each gets its part of that",
    ]
    assert beyond(queues, {"h100": 6, "a100": 5, "b200": 1}) == []
    below = [
        queue("a"),
        queue("b", "a", Bounds(floor=6)),
        queue("c", "a", Bounds(floor=6)),
        queue("d", "c", Bounds(floor=2)),
    ]
    assert beyond(below, {"h100": 11}) == ["floors add up to 12 GPUs, the cluster has 11: each gets its part of that"]
    assert beyond(below, {"h100": 12}) == []
    assert beyond(queues, {}) == []  # a cluster that is being set up


def test_sums_are_whole_numbers_of_any_size() -> None:
    """Two thousand of the largest floors add up to what they are."""
    queues = [queue(f"q{n}", "", Bounds(floor=(1 << 31) - 1)) for n in range(2_000)]
    assert str(2_000 * ((1 << 31) - 1)) in beyond(queues, {"h100": 1})[0]


def test_changes_are_a_line_a_queue() -> None:
    """By name, with the fields as they are typed."""
    before = [queue("a", "", Bounds(limit=5)), queue("b")]
    after = [queue("a", "", Bounds(gpu_type="h100", limit=5), weight=2), queue("c", "a")]
    assert changes(before, after) == [
        "~ a: weight 1 -> 2, limit 5 -> none, h100 limit none -> 5",
        "- b",
        "+ c: weight 1, parent a, order best_effort, stop none",
    ]
    assert changes(after, after) == []
