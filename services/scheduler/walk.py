"""A room that changes as time goes on: whether a gang fits is looked at only where the counts allow it."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from events.base import NodeId, SlotMask
from events.job import NodeShare
from projections.cluster.job import Shape
from projections.cluster.node import Node, NodeState, Slots
from projections.cluster.placing.misfit import least
from projections.cluster.placing.place import Placement, place
from projections.cluster.placing.room import Room

TRIED_MAX: Final = 64  # moments at which a place is looked for, one after the other; then ever more are passed over


class Walk:
    """What is free for a gang of one shape, from one moment to the next."""

    def __init__(self, room: Room, shape: Shape) -> None:
        self._room = room.fork()
        self._nodes = room.cluster.nodes
        self._shape = shape
        self._chances = Chances(room, shape)
        self._freed: dict[NodeId, Slots] = {}  # what no run has, promised or not
        self._shut: dict[NodeId, list[Slots]] = {}  # what is promised to others
        self._now: dict[NodeId, Slots] = {}  # what may be given; the room follows where it is looked into
        self._tried = 0
        self._passed = 0

    def free(self, shares: Iterable[NodeShare]) -> None:
        """The runs that hold these slots have ended."""
        for share in shares:
            if (node := self._usable(share)) is not None:
                self._freed[share.node_id] = self._free_on(node) | (share.slots & node.pool & ~node.marked & ~node.sick)
                self._follow(node)

    def shut(self, shares: Iterable[NodeShare]) -> None:
        """These slots are another's from here on."""
        for share in shares:
            if (node := self._usable(share)) is not None:
                self._shut.setdefault(share.node_id, []).append(share.slots)
                self._follow(node)

    def reopen(self, shares: Iterable[NodeShare]) -> None:
        """The other has had these slots."""
        for share in shares:
            if (node := self._usable(share)) is not None:
                self._shut[share.node_id].remove(share.slots)
                self._follow(node)

    def _usable(self, share: NodeShare) -> Node | None:
        """The node, if something can start there."""
        node = self._nodes.get(share.node_id)
        if node is None or node.epoch != share.node_epoch or node.state is not NodeState.UP or node.closed:
            return None
        return node

    def _free_on(self, node: Node) -> Slots:
        freed = self._freed.get(node.node_id)
        return self._room.free(node) if freed is None else freed

    def _follow(self, node: Node) -> None:
        before = self._now.get(node.node_id)
        if before is None:
            before = self._room.free(node)
        after = self._freed.setdefault(node.node_id, before)
        for slots in self._shut.get(node.node_id, ()):
            after &= ~slots
        if after != before:
            self._now[node.node_id] = after
            self._chances.change(node, before, after)

    def find(self, *, at_once: bool = False) -> tuple[NodeShare, ...] | None:
        """A place as of now. After many tries moments are passed over, unless `at_once`."""
        if not self._chances.any:
            return None
        if self._passed and not at_once:
            self._passed -= 1
            return None
        self._tried += 1
        self._passed = max(self._tried - TRIED_MAX, 0)
        self._catch_up()
        found = place(self._room, self._shape)
        return found.shares if isinstance(found, Placement) else None

    def _catch_up(self) -> None:
        for node_id, now in self._now.items():
            node = self._nodes[node_id]
            free = self._room.free(node)
            if gone := free & ~now:
                self._room.take([NodeShare(node_id, node.epoch, SlotMask(gone))])
            if come := now & ~free:
                self._room.give([NodeShare(node_id, node.epoch, SlotMask(come))])
        self._now.clear()


class Chances:
    """Whether a gang may fit, by counts alone: never wrong when it says no."""

    def __init__(self, room: Room, shape: Shape) -> None:
        needed = least(shape)
        self._types = shape.gpu_types
        self._gpus = needed.gpus
        self._each = shape.gpus_per_node or needed.gpus
        self._nodes = needed.nodes
        self._total = 0
        self._roomy = 0  # nodes with `each` free
        self._whole: Counter[int] = Counter()  # nodes with nothing on them, by size
        for pool in room.pools.groups():
            if not self._types or pool.gpu_type in self._types:
                self._count(pool.size, pool.free, len(room.pools.names(pool)))

    def _count(self, size: int, free: int, nodes: int) -> None:
        self._total += free * nodes
        if free >= self._each:
            self._roomy += nodes
        if free == size:
            self._whole[size] += nodes

    def change(self, node: Node, before: Slots, after: Slots) -> None:
        """A node has `after` free instead of `before`."""
        if not self._types or node.gpu_type in self._types:
            self._count(node.size, before.bit_count(), -1)
            self._count(node.size, after.bit_count(), +1)

    @property
    def any(self) -> bool:
        """Whether it is worth a look."""
        if self._total < self._gpus:
            return False
        if self._nodes:
            return self._roomy >= self._nodes
        return self._roomy > 0 or any(nodes >= self._gpus // size for size, nodes in self._whole.items() if nodes)
