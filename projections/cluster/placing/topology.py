"""Where the nodes of a gang stand: the fewest and fullest racks and spines that hold it.

Source: the best-fit of Kueue's topology-aware scheduling: take the domains with the most room whole, and for what is
left the one with the least room that holds it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from events.policy import PlacePolicy
from projections.cluster.node import Node, Place


class Chosen(NamedTuple):
    """So many nodes of one rack."""

    place: Place
    nodes: int


class Racks:
    """Nodes that will do for a gang, by where they stand; kept while what is free changes."""

    __slots__ = ("_levels", "names", "spines")

    def __init__(self) -> None:
        self.names: dict[Place, list[str]] = {}  # sorted; no rack is empty
        self.spines: dict[str, int] = {}  # nodes; none 0
        self._levels: dict[str, dict[int, list[Place]]] = {}  # spine -> nodes in a rack -> such racks, sorted

    def fill(self, found: dict[Place, list[str]]) -> None:
        """These are the nodes: the lists are the racks' own from now on."""
        for place in sorted(found):
            names = self.names[place] = found[place]
            names.sort()
            self.spines[place.spine] = self.spines.get(place.spine, 0) + len(names)
            self._levels.setdefault(place.spine, {}).setdefault(len(names), []).append(place)

    def add(self, place: Place, name: str) -> None:
        """One more node will do."""
        names = self.names.setdefault(place, [])
        insort(names, name)
        self.spines[place.spine] = self.spines.get(place.spine, 0) + 1
        self._move(place, len(names) - 1, len(names))

    def remove(self, place: Place, name: str) -> None:
        """A node will do no more."""
        names = self.names[place]
        del names[bisect_left(names, name)]
        self.spines[place.spine] -= 1
        self._move(place, len(names) + 1, len(names))
        if not names:
            del self.names[place]
        if not self.spines[place.spine]:
            del self.spines[place.spine], self._levels[place.spine]

    def _move(self, place: Place, before: int, after: int) -> None:
        levels = self._levels.setdefault(place.spine, {})
        if before:
            racks = levels[before]
            del racks[bisect_left(racks, place)]
            if not racks:
                del levels[before]
        if after:
            insort(levels.setdefault(after, []), place)

    def in_one_rack(self, nodes: int, policy: PlacePolicy) -> Iterator[Place]:
        """The racks that have so many, the best one first: by best fit the fullest, of these that of the fullest spine."""
        if policy is PlacePolicy.FIRST_FIT:
            yield from (place for place in sorted(self.names) if len(self.names[place]) >= nodes)
            return
        sign = -1 if policy is PlacePolicy.SPREAD else 1
        found = [
            (sign * count, sign * self.spines[spine], spine)
            for spine, levels in self._levels.items()
            for count in levels
            if count >= nodes
        ]
        for count, _, spine in sorted(found):
            yield from self._levels[spine][sign * count]

    def in_one_spine(self, nodes: int, policy: PlacePolicy) -> Iterator[str]:
        """The spines that have so many, the best one first: by best fit the fullest."""
        found = [(total, spine) for spine, total in self.spines.items() if total >= nodes]
        match policy:
            case PlacePolicy.BEST_FIT:
                found.sort()
            case PlacePolicy.FIRST_FIT:
                found.sort(key=lambda of: of[1])
            case PlacePolicy.SPREAD:
                found.sort(key=lambda of: (-of[0], of[1]))
        yield from (spine for _, spine in found)

    def within(self, spine: str, nodes: int, policy: PlacePolicy) -> list[Chosen]:
        """So many nodes of a spine that has them, from the fewest racks; by first fit from the first racks by name."""
        levels = self._levels[spine]
        if policy is PlacePolicy.FIRST_FIT:
            named = sorted(place for places in levels.values() for place in places)
            return _whole(((place, len(self.names[place])) for place in named), nodes)
        chosen: list[Chosen] = []
        left = nodes
        for count in sorted(levels, reverse=True):
            for place in levels[count]:
                if count >= left:
                    least = count if policy is PlacePolicy.SPREAD else min(c for c in levels if c >= left)
                    last = place if least == count else levels[least][0]  # of `count`, those before it are taken
                    return [*chosen, Chosen(last, left)]
                chosen.append(Chosen(place, count))
                left -= count
        raise AssertionError(f"spine {spine} has no {nodes} nodes")

    def across(self, nodes: int) -> list[Chosen]:
        """So many nodes from the fewest spines: those with the most nodes whole, then the fullest that holds the rest."""
        best = PlacePolicy.BEST_FIT
        order = sorted(self.spines, key=lambda spine: (-self.spines[spine], spine))
        chosen: list[Chosen] = []
        left = nodes
        for index, spine in enumerate(order):
            if self.spines[spine] >= left:
                enough = [other for other in order[index:] if self.spines[other] >= left]
                last = min(enough, key=lambda other: (self.spines[other], other))
                return chosen + self.within(last, left, best)
            chosen += self.within(spine, self.spines[spine], best)
            left -= self.spines[spine]
        raise AssertionError(f"there are no {nodes} nodes")


def _whole(racks: Iterable[tuple[Place, int]], nodes: int) -> list[Chosen]:
    """Rack after rack, whole, until there are enough."""
    chosen: list[Chosen] = []
    for place, count in racks:
        chosen.append(Chosen(place, min(count, nodes)))
        nodes -= chosen[-1].nodes
        if not nodes:
            break
    return chosen


def ranks_along(nodes: list[Node]) -> tuple[int, ...]:
    """The order of some nodes along the network: by spine, rack, name. Empty where it is the order given."""
    order = sorted(range(len(nodes)), key=lambda index: (nodes[index].place, nodes[index].node_id))
    return () if order == list(range(len(nodes))) else tuple(order)
