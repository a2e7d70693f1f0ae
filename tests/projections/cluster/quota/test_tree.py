"""How queues hang together, also where an old document makes no sense."""

import pytest

from events.base import TeamId
from events.queues import Queue, QueueStop
from projections.cluster.quota.tree import Tree


def tree(*queues: Queue) -> Tree:
    """The tree that a document makes."""
    return Tree({queue.name: queue for queue in queues})


def queue(name: str, parent: str = "", stop: QueueStop = QueueStop.NONE) -> Queue:
    """One queue."""
    return Queue(name=TeamId(name), parent=parent, stop=stop)


def test_a_team_counts_at_its_queue_and_all_above_it() -> None:
    """From the nearest to the one under the root; a team that is no queue stands at the root."""
    made = tree(queue("org"), queue("lab", "org"), queue("team", "lab"))

    assert made.path("team") == ("team", "lab", "org")
    assert made.path("nobody") == ("nobody",)


def test_the_jobs_of_a_queue_that_has_queues_below_are_one_more_child_of_it() -> None:
    """So that they share with those below and do not come before them."""
    made = tree(queue("org"), queue("team", "org"))

    assert made.path("org") == ("org/", "org")


@pytest.mark.parametrize(
    ("queues", "paths"),
    [
        ([queue("a", "gone"), queue("b", "a")], {"a": ("a/", "a"), "b": ("b", "a")}),
        ([queue("a", "a")], {"a": ("a",)}),
        ([queue("a", "b"), queue("b", "a")], {"a": ("a",), "b": ("b",)}),
        ([queue("a", "b"), queue("b", "a"), queue("c", "a")], {"a": ("a/", "a"), "b": ("b",), "c": ("c", "a")}),
    ],
)
def test_a_queue_without_a_way_up_stands_at_the_root(queues: list[Queue], paths: dict[str, tuple[str, ...]]) -> None:
    """Parents that are unknown, or that lead back: only those queues are moved, and nobody is left out."""
    made = tree(*queues)

    assert {name: made.path(name) for name in paths} == paths


@pytest.mark.parametrize(
    ("above", "own", "stop"),
    [
        (QueueStop.NONE, QueueStop.NONE, (QueueStop.NONE, "")),
        (QueueStop.PAUSE, QueueStop.NONE, (QueueStop.PAUSE, "org")),
        (QueueStop.PAUSE, QueueStop.HOLD, (QueueStop.HOLD, "team")),
        (QueueStop.HOLD, QueueStop.PAUSE, (QueueStop.HOLD, "org")),
        (QueueStop.PAUSE, QueueStop.PAUSE, (QueueStop.PAUSE, "team")),
    ],
)
def test_a_stop_holds_for_all_that_is_below(above: QueueStop, own: QueueStop, stop: tuple[QueueStop, str]) -> None:
    """The gravest counts, and says which queue it is of."""
    made = tree(queue("org", stop=above), queue("team", "org", own))

    assert made.stop("team") == stop
    assert made.stopped("team") == (stop[0] is not QueueStop.NONE)
    assert made.on_hold("team") == (stop[0] is QueueStop.HOLD)
    assert not made.stopped("nobody")
