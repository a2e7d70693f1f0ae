"""The nodes that can be made free for the least: the search that preemption and consolidation share."""

from collections import Counter
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

from events.base import NodeId, RunId, SlotMask
from events.job import NodeShare
from projections.cluster.job import Run, Shape
from projections.cluster.node import Node, Slots
from projections.cluster.placing.place import WHOLE_NODES_FROM


class Need(NamedTuple):
    """So many nodes with so many GPUs each, and one more with the rest."""

    nodes: int
    each: int
    rest: int = 0  # 0: no such node
    size: int = 0  # whole nodes of that size; 0: nodes of any size, in part


class Spot(NamedTuple):
    """A node that the gang may use."""

    node: Node
    now: Slots  # free, and nobody else's
    soon: Slots  # held by runs that are ending anyway, and not set aside for another
    held: tuple[tuple[RunId, Slots], ...]  # by runs that could be made to end; without what is set aside

    @property
    def most(self) -> int:
        """GPUs that it has once all that could end has ended."""
        return (self.now | self.soon).bit_count() + sum(slots.bit_count() for _, slots in self.held)


class Found(NamedTuple):
    """A destination, and the runs that have to end for it."""

    shares: tuple[NodeShare, ...]  # ordered by node
    victims: tuple[RunId, ...]  # in the order in which they were chosen
    cost: int


class Budget(Protocol):
    """What may be taken, and what it costs. It shrinks as runs are claimed."""

    def cost(self, run_id: RunId) -> int | None:
        """What its end costs, more than 0; None when it may not be claimed now."""

    def claim(self, run_id: RunId) -> bool:
        """It is claimed; False, and nothing changes, when it may not be."""

    def restore(self, run_id: RunId) -> None:
        """It is not claimed any more."""


def needs_of(shape: Shape, sizes: list[int]) -> Iterator[Need]:
    """The ways to hold a gang, those that keep whole nodes whole first. `sizes`: of the nodes there are."""
    if shape.nodes:
        yield Need(shape.nodes, shape.gpus_per_node)
        return
    if shape.gpus < WHOLE_NODES_FROM:
        yield Need(1, shape.gpus)
    for size in sorted(sizes, reverse=True):
        nodes, rest = divmod(shape.gpus, size)
        if nodes:
            yield Need(nodes, size, rest, size)


def could_hold(need: Need, roomy: Counter[tuple[int, int]]) -> bool:
    """Whether there are enough nodes for a need, of those of each size with so many GPUs."""
    sized = sum(nodes for (size, gpus), nodes in roomy.items() if gpus >= need.each and need.size in (0, size))
    others = sum(nodes for (_, gpus), nodes in roomy.items() if gpus >= need.rest) if need.rest else need.nodes + 1
    return sized >= need.nodes and others > need.nodes


class Search:
    """One search: nodes are taken cheapest first, and what turned out not to be needed is given back.

    A gang that was chosen for one node costs nothing more on its others, and a node gets dearer when what could be
    claimed there no longer can be: costs are looked at again when their node comes up.
    Source: lazy greedy selection (Minoux 1978), for a minimum instead of a maximum.
    """

    def __init__(self, spots: dict[NodeId, Spot], runs: dict[RunId, Run], budget: Budget) -> None:
        self._spots = spots
        self._runs = runs
        self._budget = budget
        self._chosen: dict[RunId, int] = {}  # with what each cost

    def find(self, need: Need) -> Found | None:
        """The destination with its victims, which are left claimed; None, and nothing is claimed, when there is none."""
        whole = [name for name, spot in self._spots.items() if not need.size or spot.node.size == need.size]
        picked = self._pick(whole, need.nodes, need.each)
        if picked is not None and need.rest:
            others = [name for name in self._spots if name not in picked]
            picked = self._pick(others, 1, need.rest)
        if picked is None:
            self.undo()
            return None
        have = self._lean(need)
        victims = tuple(self._chosen)
        return Found(self._shares(need, have), victims, sum(self._chosen.values()))

    def undo(self) -> None:
        """Nothing is claimed any more."""
        for run_id in self._chosen:
            self._budget.restore(run_id)
        self._chosen.clear()

    def _pick(self, names: list[NodeId], nodes: int, want: int) -> set[NodeId] | None:
        """The cheapest `nodes` of these that can have `want` GPUs each."""
        heap = [(option[0], name) for name in names if (option := self._option(name, want)) is not None]
        if len(heap) < nodes:
            return None
        heapify(heap)
        open_ones, picked = set(names), set[NodeId]()
        while len(picked) < nodes and heap:
            cost, name = heappop(heap)
            if name in picked or (option := self._option(name, want)) is None:
                continue
            if option[0] > cost:
                heappush(heap, (option[0], name))  # dearer than it was: others may be cheaper by now
                continue
            if not self._claim(option[1]):
                continue
            picked.add(name)
            for other in self._others(option[1], open_ones):
                if other not in picked and (cheaper := self._option(other, want)) is not None:
                    heappush(heap, (cheaper[0], other))
        return picked if len(picked) == nodes else None

    def _others(self, run_ids: list[RunId], among: set[NodeId]) -> list[NodeId]:
        """The nodes on which runs of several nodes have just become free of cost."""
        gangs = (run for run_id in run_ids if len((run := self._runs[run_id]).shares) > 1)
        return [share.node_id for run in gangs for share in run.shares if share.node_id in among]

    def _option(self, name: NodeId, want: int) -> tuple[int, list[RunId]] | None:
        """What it costs now to have so many GPUs on a node, and which runs; None when it cannot be had."""
        spot, budget, chosen = self._spots[name], self._budget, self._chosen
        short = want - (spot.now | spot.soon).bit_count()
        if short <= 0:
            return 0, []
        total, sum_cost = 0, 0
        found: list[tuple[float, RunId, int, int]] = []
        for run_id, slots in spot.held:
            gpus = slots.bit_count()
            if run_id in chosen:
                short -= gpus
            elif (cost := budget.cost(run_id)) is not None:
                found.append((cost / gpus, run_id, gpus, cost))
                total += gpus
                sum_cost += cost
        if short <= 0:
            return 0, []
        if total < short:
            return None
        if total == short:
            return sum_cost, [run_id for _, run_id, _, _ in found]
        return _cover(sorted(found), short)

    def _claim(self, run_ids: list[RunId]) -> bool:
        """All of them are claimed, or none is."""
        for index, run_id in enumerate(run_ids):
            cost = self._budget.cost(run_id)
            if cost is None or not self._budget.claim(run_id):
                for claimed in run_ids[:index]:
                    self._budget.restore(claimed)
                    del self._chosen[claimed]
                return False
            self._chosen[run_id] = cost
        return True

    def _lean(self, need: Need) -> dict[NodeId, int]:
        """The GPUs that each node has, once victims that are not needed are given back, the last chosen first."""
        chosen = self._chosen
        have = {
            name: (spot.now | spot.soon).bit_count()
            + sum(slots.bit_count() for run_id, slots in spot.held if run_id in chosen)
            for name, spot in self._spots.items()
        }
        whole, part = self._counts(need, have, list(have))
        for run_id in list(reversed(chosen)):
            touched = {s.node_id: self._held(s.node_id, run_id) for s in self._runs[run_id].shares if s.node_id in have}
            less = {name: have[name] - gpus for name, gpus in touched.items()}
            was, now = self._counts(need, have, list(touched)), self._counts(need, less, list(touched))
            left = (whole - was[0] + now[0], part - was[1] + now[1])
            if left[0] >= need.nodes and (not need.rest or left[1] > need.nodes):
                (whole, part), have = left, have | less
                self._budget.restore(run_id)
                del chosen[run_id]
        return have

    def _held(self, name: NodeId, run_id: RunId) -> int:
        return sum(slots.bit_count() for held, slots in self._spots[name].held if held == run_id)

    def _counts(self, need: Need, have: dict[NodeId, int], names: list[NodeId]) -> tuple[int, int]:
        """How many of these nodes can have a share, and how many at least the rest."""
        whole = sum(have[n] >= need.each and (not need.size or self._spots[n].node.size == need.size) for n in names)
        return whole, sum(have[name] >= need.rest for name in names) if need.rest else 0

    def _shares(self, need: Need, have: dict[NodeId, int]) -> tuple[NodeShare, ...]:
        """The fullest of the nodes that have enough: what is free now elsewhere stays free."""

        def fullest(name: NodeId) -> tuple[int, int, NodeId]:
            return (have[name], self._spots[name].now.bit_count(), name)

        sized = (n for n in have if not need.size or self._spots[n].node.size == need.size)
        names = sorted((name for name in sized if have[name] >= need.each), key=fullest)[: need.nodes]
        shares = [self._share(name, need.each) for name in names]
        if need.rest:
            taken = set(names)
            rest = min((n for n in have if have[n] >= need.rest and n not in taken), key=fullest)
            shares.append(self._share(rest, need.rest))
        return tuple(sorted(shares, key=lambda share: share.node_id))

    def _share(self, name: NodeId, gpus: int) -> NodeShare:
        """The lowest slots that are free, then of those that will be anyway, then of the victims'."""
        spot, slots = self._spots[name], 0
        claimed = sum(mask for run_id, mask in spot.held if run_id in self._chosen)
        for mask in (spot.now, spot.soon, claimed):
            slots |= lowest(mask, gpus - slots.bit_count())
        assert slots.bit_count() == gpus
        return NodeShare(name, spot.node.epoch, SlotMask(slots))


def cheapest(parts: list[dict[NodeId, Spot]], runs: dict[RunId, Run], budget: Budget, shape: Shape) -> Found | None:
    """The destination that costs least over parts of the cluster, each of which may hold the gang; nothing is left claimed."""
    answers: list[Found] = []
    for spots in parts:
        sizes = sorted({spot.node.size for spot in spots.values()} - {0})
        for need in needs_of(shape, sizes):
            search = Search(spots, runs, budget)
            if (found := search.find(need)) is not None:
                search.undo()
                answers.append(found)
                break
    return min(
        answers, key=lambda found: (found.cost, [(share.node_id, share.slots) for share in found.shares]), default=None
    )


def lowest(slots: Slots, most: int) -> Slots:
    """The lowest of some slots, so many at most."""
    taken = 0
    while slots and taken.bit_count() < most:
        taken |= slots & -slots
        slots &= slots - 1
    return taken


def _cover(found: list[tuple[float, RunId, int, int]], short: int) -> tuple[int, list[RunId]]:
    """Of runs sorted by cost a GPU, those that give `short` GPUs for little, or the one that does so alone for less."""
    taken: list[tuple[float, RunId, int, int]] = []
    gpus = 0
    for entry in found:
        taken.append(entry)
        gpus += entry[2]
        if gpus >= short:
            break
    for entry in sorted(taken, key=lambda entry: (-entry[3], entry[1])):
        if gpus - entry[2] >= short:
            taken.remove(entry)
            gpus -= entry[2]
    cost = sum(entry[3] for entry in taken)
    alone = min(((entry[3], entry[1]) for entry in found if entry[2] >= short), default=None)
    if alone is not None and alone[0] < cost:
        return alone[0], [alone[1]]
    return cost, [run_id for _, run_id, _, _ in taken]
