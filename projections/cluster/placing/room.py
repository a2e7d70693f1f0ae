"""What of a cluster may be given away while a round tries things: free GPUs, less what it took, more what it would free."""

from bisect import insort
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Final, NamedTuple

from events.base import NodeId
from events.job import Domain, NodeShare
from events.policy import PlacePolicy
from projections.cluster.job import Shape
from projections.cluster.node import NOWHERE, PLACE_LABELS, Node, NodeState, Place, Pool, Slots, Spare, Whole, suits
from projections.cluster.placing.topology import Racks
from projections.cluster.state import Cluster


class Sought(NamedTuple):
    """Which nodes will do for one share of a gang."""

    gpu_type: str
    gpus: int  # free at the least
    whole: bool  # nodes of just so many GPUs, with nothing on them
    labels: tuple[tuple[str, str], ...] = ()
    tolerates: tuple[str, ...] = ()

    def holds(self, pool: Pool) -> bool:
        """Whether nodes of this pool will do, as far as a pool says."""
        if pool.free < self.gpus or pool.gpu_type != self.gpu_type:
            return False
        if self.whole and not pool.free == pool.size == self.gpus:
            return False
        return not (pool.traits or self.labels) or suits(pool.traits, self.labels, self.tolerates)

    def suits(self, traits: str) -> bool:
        """Whether such labels and taints will do."""
        return not (traits or self.labels) or suits(traits, self.labels, self.tolerates)

    @property
    def pinned(self) -> bool:
        """Whether it names a rack or a spine by its label."""
        return bool(self.labels) and any(key in PLACE_LABELS for key, _ in self.labels)

    def lies(self, place: Place) -> bool:
        """Whether a place is where its labels say."""
        return lies(place, self.labels)


def sought_by(shape: Shape, gpu_type: str, gpus: int, *, whole: bool = False) -> Sought:
    """Nodes for a share of `gpus` of such a gang."""
    return Sought(gpu_type, gpus, whole, shape.labels, shape.tolerates)


def lies(place: Place, labels: tuple[tuple[str, str], ...]) -> bool:
    """Whether a place is where these labels say, if they say anything of it."""
    if not labels:
        return True
    at = {Domain.SPINE.value: place.spine, Domain.RACK.value: place.rack}
    return all(at.get(key, value) == value for key, value in labels)


def _fullest(pool: Pool) -> tuple[bool, int, int, str]:
    """Busy nodes before empty ones, of these those with the fewest free GPUs, the smallest, those without traits."""
    return (pool.free == pool.size, pool.free, pool.size, pool.traits)


def _emptiest(pool: Pool) -> tuple[bool, int, int, str]:
    """Nodes with the most free GPUs first, of these the smallest, those without traits."""
    return (False, -pool.free, pool.size, pool.traits)


PREFERRED: Final = {
    PlacePolicy.BEST_FIT: _fullest,
    PlacePolicy.FIRST_FIT: _fullest,  # no matter: the names decide
    PlacePolicy.SPREAD: _emptiest,
}


class Room:
    """The GPUs of a cluster that may be given away. Cheaper than a fork of it that folds every placement.

    The cluster must not change while the room is in use.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.policy = cluster.policy.placement
        self.types = sorted(cluster.capacity)
        self.pools = cluster.pools.fork()
        self._preferred = sorted(self.pools.groups(), key=PREFERRED[self.policy])
        self._whole = cluster.whole.fork()
        self._now: dict[NodeId, Slots] = {}  # what is free on nodes where that changed here
        self._kept: dict[NodeId, Slots] = {}  # reserved: free or not, they are not to be given
        self._racks: dict[Sought, Racks] = {}  # by what was asked for so far

    def fork(self) -> "Room":
        """A room that starts as this one and can be changed without changing it."""
        fork = object.__new__(Room)
        fork.cluster, fork.policy, fork.types = self.cluster, self.policy, self.types
        fork.pools, fork._whole = self.pools.fork(), self._whole.fork()
        fork._preferred = list(self._preferred)
        fork._now, fork._kept, fork._racks = dict(self._now), dict(self._kept), {}
        return fork

    def free(self, node: Node) -> Slots:
        """The slots of a node that may be given away: none where it is unwell or cordoned."""
        now = self._now.get(node.node_id)
        if now is not None:
            return now
        return node.spare if node.state is NodeState.UP and not node.closed else 0

    def take(self, shares: Iterable[NodeShare]) -> None:
        """The slots of these shares, which are free, are given away."""
        for share in shares:
            node = self.cluster.nodes[share.node_id]
            free = self.free(node)
            assert not share.slots & ~free
            self._set(node, free, free & ~share.slots)

    def give(self, shares: Iterable[NodeShare]) -> None:
        """The slots of these shares are free, as if the runs that hold them were gone, or what was taken here were not.

        Not those that are set aside, reserved, out of the pool, of another life of their node, or of one that is unwell
        or cordoned.
        """
        for share in shares:
            node = self._present(share)
            if node is not None and node.state is NodeState.UP and not node.closed:
                free = self.free(node)
                given = share.slots & node.pool & ~node.marked & ~node.sick & ~self._kept.get(node.node_id, 0)
                self._set(node, free, free | given)

    def reserve(self, shares: Iterable[NodeShare]) -> None:
        """The slots of these shares are not to be given away: neither those that are free nor those that `give` frees later."""
        for share in shares:
            if (node := self._present(share)) is not None:
                self._kept[node.node_id] = self._kept.get(node.node_id, 0) | share.slots
                free = self.free(node)
                self._set(node, free, free & ~share.slots)

    def close(self, shares: Iterable[NodeShare]) -> None:
        """There is nothing to give on the nodes of these shares, which are all of them: as `reserve`, for many at once."""
        closed = set[str]()
        for share in shares:
            self._kept[share.node_id] = self._kept.get(share.node_id, 0) | share.slots
            self._now[share.node_id] = 0
            closed.add(share.node_id)
        self.pools, self._whole = self.pools.without(closed), self._whole.without(closed)
        self._preferred = sorted(self.pools.groups(), key=PREFERRED[self.policy])
        self._racks = {}

    def kept(self, node: Node) -> Slots:
        """The slots of a node that are reserved here, free or not."""
        return self._kept.get(node.node_id, 0)

    def _present(self, share: NodeShare) -> Node | None:
        """The node, if it is in the life that the share means."""
        node = self.cluster.nodes.get(share.node_id)
        return node if node is not None and node.epoch == share.node_epoch else None

    def _set(self, node: Node, before: Slots, after: Slots) -> None:
        """The node, which had `before` to give, has `after`."""
        if before == after:
            return
        self._now[node.node_id] = after
        size, name = node.size, node.node_id
        had = Pool(node.gpu_type, size, before.bit_count(), node.traits)
        has = Pool(node.gpu_type, size, after.bit_count(), node.traits)
        if before:
            self._leave(had, name)
        if after:
            self._enter(has, name)
        if had.free == size:
            self._whole.remove(Whole(node.gpu_type, size, node.traits, node.place), name)
        elif has.free == size:
            self._whole.add(Whole(node.gpu_type, size, node.traits, node.place), name)
        for sought, racks in self._racks.items():
            did, does = bool(before) and sought.holds(had), bool(after) and sought.holds(has)
            if did != does and sought.lies(node.place):
                (racks.add if does else racks.remove)(node.place, name)

    def _leave(self, pool: Pool, name: str) -> None:
        self.pools.remove(pool, name)
        if not self.pools.names(pool):
            self._preferred.remove(pool)

    def _enter(self, pool: Pool, name: str) -> None:
        if not self.pools.names(pool):
            insort(self._preferred, pool, key=PREFERRED[self.policy])
        self.pools.add(pool, name)

    # What there is

    def pools_for(self, sought: Sought) -> Iterator[Pool]:
        """The pools whose nodes will do, in the order of the policy."""
        return filter(sought.holds, self._preferred)

    def first(self, sought: Sought) -> str | None:
        """The node that the policy prefers of those that will do; None where there is none. What a small job asks."""
        if self.policy is PlacePolicy.FIRST_FIT or sought.pinned:
            return next(self.in_order(sought), None)
        pool = next(self.pools_for(sought), None)
        return self.pools.names(pool)[0] if pool is not None else None

    def has(self, sought: Sought, nodes: int) -> bool:
        """Whether so many nodes will do, wherever they stand."""
        count = 0
        for pool in self.pools.groups():
            if sought.holds(pool):
                count += len(self.pools.names(pool))
                if count >= nodes:
                    return True
        return False

    def in_order(self, sought: Sought) -> Iterator[str]:
        """The nodes that will do, those first that the policy prefers."""
        if self.policy is PlacePolicy.FIRST_FIT:
            named: Iterator[str] = merge(*(self.pools.names(pool) for pool in self.pools_for(sought)))
        else:
            named = (name for pool in self.pools_for(sought) for name in self.pools.names(pool))
        if not sought.pinned:
            return named
        nodes = self.cluster.nodes
        return (name for name in named if sought.lies(nodes[NodeId(name)].place))

    def sort(self, names: Iterable[str]) -> list[str]:
        """These nodes, those first that the policy prefers."""
        if self.policy is PlacePolicy.FIRST_FIT:
            return sorted(names)
        preferred = PREFERRED[self.policy]
        return sorted(names, key=lambda name: (preferred(self.pool_of(name)), name))

    def pool_of(self, name: str) -> Pool:
        """The pool that a node is in; one with 0 free where it has nothing to give."""
        node = self.cluster.nodes[NodeId(name)]
        return Pool(node.gpu_type, node.size, self.free(node).bit_count(), node.traits)

    # Where it is

    def racks(self, sought: Sought) -> Racks:
        """The nodes that will do, by where they stand."""
        if (racks := self._racks.get(sought)) is None:
            racks = self._racks[sought] = Racks()
            racks.fill(self._by_place(sought))
        return racks

    def _by_place(self, sought: Sought) -> dict[Place, list[str]]:
        """The nodes that will do: whole ones from the index, the others one by one."""
        found: dict[Place, list[str]] = {}
        pinned, nodes = sought.pinned, self.cluster.nodes
        doing: dict[tuple[str, int, str], bool] = {}
        for group in self._whole.groups():
            gpu_type, size, traits, place = group
            if (does := doing.get((gpu_type, size, traits))) is None:
                does = doing[gpu_type, size, traits] = sought.holds(Pool(gpu_type, size, size, traits))
            if does and (not pinned or sought.lies(place)):
                found.setdefault(place, []).extend(self._whole.names(group))
        for pool in self.pools.groups():
            if pool.free != pool.size and sought.holds(pool):
                for name in self.pools.names(pool):
                    place = nodes[NodeId(name)].place
                    if not pinned or sought.lies(place):
                        found.setdefault(place, []).append(name)
        return found

    def around(self, sought: Sought, place: Place) -> list[str]:
        """The nodes of one rack that will do, those first that the policy prefers."""
        names = self.cluster.places.names(place)
        return self.sort(name for name in names if (pool := self.pool_of(name)).free and sought.holds(pool))

    def spare(self, sought: Sought, *, within: str = "") -> int:
        """The most GPUs to spare on nodes with such labels, taints and GPUs, busy or not, in any one rack or spine."""
        if not within and not sought.pinned:
            pools = self.pools
            return sum(
                pool.free * len(pools.names(pool))
                for pool in pools.groups()
                if pool.gpu_type == sought.gpu_type and sought.suits(pool.traits)
            )
        counts: dict[tuple[str, ...], int] = {}
        for (gpu_type, traits, place), gpus in self._spares().items():
            if gpu_type == sought.gpu_type and sought.suits(traits) and sought.lies(place):
                domain = domain_of(place, within) if within else ("all",)
                counts[domain] = counts.get(domain, 0) + gpus
        counts.pop(("", ""), None)
        return max(counts.values(), default=0)

    def _spares(self) -> dict[Spare, int]:
        """GPUs to spare by rack, as the room has it now."""
        spares = dict(self.cluster.spares)
        for node_id, now in self._now.items():
            node = self.cluster.nodes[node_id]
            if (place := node.place) != NOWHERE:
                before = node.spare if node.state is NodeState.UP and not node.closed else 0
                key = Spare(node.gpu_type, node.traits, place)
                spares[key] = spares.get(key, 0) + now.bit_count() - before.bit_count()
        return spares


def domain_of(place: Place, within: str) -> tuple[str, str]:
    """The rack, or the spine, of a place; two empty words for none that is known."""
    if within == Domain.RACK:
        return (place.spine, place.rack) if place.rack else ("", "")
    return (place.spine, "")
