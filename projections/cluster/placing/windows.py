"""Which nodes have maintenance before a run there would have ended, by its declared runtime and the graces of its stop.

Runs are classed by how many distinct starts of maintenance come before their end: those of one class find the same nodes
closed, those of a later one these and more. Without windows, and for what ends before the first of them, nothing is looked at.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from events.base import SlotMask
from events.job import JobSpec, NodeShare
from projections.cluster.fitness import LEAD
from projections.cluster.job import lasts
from projections.cluster.placing.room import Room
from projections.cluster.state import Cluster


class Closed(NamedTuple):
    """Nodes whose next maintenance is from one moment to another."""

    starts: datetime
    ends: datetime
    shares: tuple[NodeShare, ...]  # all of their GPUs


class Windows:
    """The maintenance that is planned, as one round sees it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        first = next(cluster.windows.line(None), None)
        # Where maintenance has begun its node is drained anyway; any other starts a lead after it has something to say.
        self._soonest_s = first[0][0] + LEAD.total_seconds() if first is not None else None

    def spare(self, shares: Iterable[NodeShare], start: datetime, end: datetime | None) -> bool:
        """Whether no maintenance of these nodes is on between two moments. No end: nobody knows it, and it may be moved."""
        if self._soonest_s is None or end is None or end.timestamp() <= self._soonest_s:
            return True
        nodes = self._cluster.nodes
        found = (nodes[share.node_id].fitness.windows for share in shares if share.node_id in nodes)
        return not any(window.starts < end and start < window.ends for windows in found for window in windows)

    def spares(self, shares: Iterable[NodeShare], spec: JobSpec, at: datetime) -> bool:
        """The same, for a run of such a job that starts now."""
        time = lasts(spec)
        return self.spare(shares, at, at + time if time is not None else None)

    def class_of(self, end: datetime | None) -> int:
        """How many starts of maintenance come before the end; 0: every node is open to it."""
        if self._soonest_s is None or end is None or end.timestamp() <= self._soonest_s:
            return 0
        return bisect_left(self._starts, end)

    def latest(self, class_: int) -> datetime:
        """By when one has to have ended that is in an earlier class."""
        return self._starts[class_ - 1]

    def without(self, room: Room, class_: int) -> Room:
        """The room, with nothing to give on the nodes that are closed to a class."""
        if not class_:
            return room
        last = self._starts[class_ - 1]
        less = room.fork()
        less.close(chain.from_iterable(closed.shares for closed in self.closed if closed.starts <= last))
        return less

    @cached_property
    def _starts(self) -> list[datetime]:
        return sorted({closed.starts for closed in self.closed})

    @cached_property
    def closed(self) -> tuple[Closed, ...]:
        """What comes, by its start."""
        found: dict[tuple[datetime, datetime], list[NodeShare]] = {}
        for starts, ends, share in self._next():
            found.setdefault((starts, ends), []).append(share)
        return tuple(Closed(starts, ends, tuple(shares)) for (starts, ends), shares in sorted(found.items()))

    def _next(self) -> Iterator[tuple[datetime, datetime, NodeShare]]:
        for _, node_id in self._cluster.windows.line(None):
            node = self._cluster.nodes[node_id]
            if node.pool and not node.closed:
                window = node.fitness.windows[0]
                yield window.starts, window.ends, NodeShare(node.node_id, node.epoch, SlotMask(node.pool))
