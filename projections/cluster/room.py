"""What of a cluster may be given away while a round tries things: free GPUs, less what it took, more what it would free."""

from collections.abc import Iterable

from events.base import NodeId
from events.job import NodeShare
from projections.cluster.node import Node, NodeState, Pool, Slots
from projections.cluster.state import Cluster


class Room:
    """The GPUs of a cluster that may be given away. Cheaper than a fork of it that folds every placement.

    The cluster must not change while the room is in use.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.pools = cluster.pools.fork()
        self._now: dict[NodeId, Slots] = {}  # what is free on nodes where that changed here
        self._kept: dict[NodeId, Slots] = {}  # reserved: free or not, they are not to be given

    def fork(self) -> "Room":
        """A room that starts as this one and can be changed without changing it."""
        fork = object.__new__(Room)
        fork.cluster, fork.pools = self.cluster, self.pools.fork()
        fork._now, fork._kept = dict(self._now), dict(self._kept)
        return fork

    def free(self, node: Node) -> Slots:
        """The slots of a node that may be given away: none where it is unwell or cordoned."""
        now = self._now.get(node.node_id)
        if now is not None:
            return now
        return node.spare if node.state is NodeState.UP and not node.cordoned else 0

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
            if node is not None and node.state is NodeState.UP and not node.cordoned:
                free = self.free(node)
                given = share.slots & node.pool & ~node.marked & ~self._kept.get(node.node_id, 0)
                self._set(node, free, free | given)

    def reserve(self, shares: Iterable[NodeShare]) -> None:
        """The slots of these shares are not to be given away: neither those that are free nor those that `give` frees later."""
        for share in shares:
            if (node := self._present(share)) is not None:
                self._kept[node.node_id] = self._kept.get(node.node_id, 0) | share.slots
                free = self.free(node)
                self._set(node, free, free & ~share.slots)

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
        size = node.size
        if before:
            self.pools.remove(Pool(node.gpu_type, size, before.bit_count(), node.traits), node.node_id)
        if after:
            self.pools.add(Pool(node.gpu_type, size, after.bit_count(), node.traits), node.node_id)
