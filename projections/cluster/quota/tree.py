"""The tree that the queues make, whatever an old document says: every queue hangs, in the end, at the root."""

from collections.abc import Mapping
from typing import Final

from events.base import TeamId
from events.queues import Bounds, Queue, QueueStop

ROOT: Final = ""
ALL_TYPES: Final = ""  # as `Bounds.gpu_type`
OWN: Final = "/"  # after the name of a queue: the jobs that stand in it itself, where it has queues below


class Tree:
    """Queues, by name, and how they hang together. Nothing in it changes but what it remembers.

    A queue whose parent is unknown, or is below itself, stands at the root; so does a team that is no queue.
    """

    def __init__(self, queues: Mapping[TeamId, Queue]) -> None:
        self.queues = dict(queues)
        self.parents = {name: _parent(queues, name) for name in queues}
        self._paths: dict[str, tuple[str, ...]] = {}
        self._bounded: dict[str, bool] = {}
        self.children: dict[str, list[str]] = {}
        for name in sorted(queues):
            self.children.setdefault(self.parents[name], []).append(name)
        self.bounds: dict[str, dict[str, Bounds]] = {
            name: {bounds.gpu_type: bounds for bounds in queue.bounds} for name, queue in queues.items() if queue.bounds
        }
        every = [bounds for queue in queues.values() for bounds in queue.bounds]
        self.over_all = any(bounds.gpu_type == ALL_TYPES for bounds in every)  # then no type can be shared out alone
        self.laid = any(
            bounds.gpu_type == ALL_TYPES and bounds.floor is not None for bounds in every
        )  # where it is wanted
        self.stops = any(queue.stop is not QueueStop.NONE for queue in queues.values())
        self.holds = any(queue.stop is QueueStop.HOLD for queue in queues.values())
        self.borrowing = any(bounds.borrowing_limit is not None for bounds in every)

    def path(self, team: str) -> tuple[str, ...]:
        """The queues that a team's jobs count in, from its own up to the one under the root."""
        if (known := self._paths.get(team)) is None:
            known = self._paths[team] = self._path(team)
        return known

    def _path(self, team: str) -> tuple[str, ...]:
        path = [team + OWN] if team in self.children else []
        queue = team
        while queue != ROOT:
            path.append(queue)
            queue = self.parents.get(TeamId(queue), ROOT)
        return tuple(path)

    def bounded(self, team: str) -> bool:
        """Whether its queue, or one above it, has bounds of any kind."""
        if (known := self._bounded.get(team)) is None:
            above = (self.queues.get(TeamId(name)) for name in self.path(team))
            known = any(queue is not None and (queue.bounds or queue.running_max is not None) for queue in above)
            self._bounded[team] = known
        return known

    def stop(self, team: str) -> tuple[QueueStop, str]:
        """The gravest stop of the team's queue and those above it, and which of them says so; the nearest of equals."""
        found, by = QueueStop.NONE, ""
        if not self.stops:
            return found, by
        for name in self.path(team):
            queue = self.queues.get(TeamId(name))
            if queue is not None and STOPS.index(queue.stop) > STOPS.index(found):
                found, by = queue.stop, name
        return found, by

    def stopped(self, team: str) -> bool:
        """Whether nothing new of the team starts."""
        return self.stops and self.stop(team)[0] is not QueueStop.NONE

    def on_hold(self, team: str) -> bool:
        """Whether nothing of the team may run."""
        return self.holds and self.stop(team)[0] is QueueStop.HOLD

    def weight(self, name: str) -> int:
        """The part of a queue among its siblings: 1 for a team that is no queue."""
        queue = self.queues.get(TeamId(name))
        return queue.weight if queue is not None else 1


STOPS: Final = list(QueueStop)


def _parent(queues: Mapping[TeamId, Queue], name: TeamId) -> str:
    """The parent of a queue, if the document has it and the way up does not lead back."""
    parent = queues[name].parent
    if parent not in queues:
        return ROOT
    above, seen = TeamId(parent), set[str]()
    while above in queues and above not in seen:
        if above == name:
            return ROOT
        seen.add(above)
        above = TeamId(queues[above].parent)
    return parent
