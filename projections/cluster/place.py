"""Whether a gang fits, and where: whole gang or nothing, best fit, whole nodes stay whole.

It lives with the fold since the scheduler places by it and `why` explains by it.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from events.base import NodeId, SlotMask
from events.job import HoldCode, NodeShare
from projections.cluster.job import Shape
from projections.cluster.node import NodeState, Pool
from projections.cluster.room import Room
from projections.cluster.state import Cluster

__all__ = ["WHOLE_NODES_FROM", "Misfit", "Placement", "Room", "could_hold", "place"]

WHOLE_NODES_FROM: Final = 8  # GPUs; a gang of so many, or of more than a node has, takes whole nodes


class Misfit(NamedTuple):
    """The gang does not fit now, and what stands against it."""

    code: HoldCode


class Placement(NamedTuple):
    """Where a gang goes, whole."""

    shares: tuple[NodeShare, ...]  # ordered by node
    ranks: tuple[int, ...] = ()  # node rank n is shares[ranks[n]]; empty: in order of shares


def place(room: Room, shape: Shape, *, most: int | None = None) -> Placement | Misfit:
    """The shares of a gang of this shape, ordered by node; or why there are none.

    All shares are on one GPU type, the first accepted one that holds the gang. A shape without `nodes` of under 8 GPUs
    goes to the fullest node that holds it; a larger one takes whole empty nodes of one size, and its remainder the
    fullest node that holds that. `nodes` x `gpus_per_node` goes to the fullest nodes that hold a share each. `most` GPUs
    at most, if the gang is elastic.
    """
    if most is not None and most < shape.gpus:
        return Misfit(HoldCode.NO_ROOM)
    pools = sorted(room.pools.groups(), key=_fullest_first)
    for gpu_type in shape.gpu_types or sorted({pool.gpu_type for pool in pools}):
        of_type = [pool for pool in pools if pool.gpu_type == gpu_type]
        picked = _pick(room, shape, of_type)
        if picked is not None:
            shares = (_share(room, node_id, gpus) for node_id, gpus in picked)
            return Placement(tuple(sorted(shares, key=lambda share: share.node_id)))
    return Misfit(_reason(room.cluster, shape))


Picked = list[tuple[NodeId, int]]  # nodes and how many GPUs of each


def _fullest_first(pool: Pool) -> tuple[bool, int, int, str]:
    """Busy nodes before empty ones, then the fewest free GPUs, then the smallest node."""
    return (pool.free == pool.size, pool.free, pool.size, pool.gpu_type)


def _pick(room: Room, shape: Shape, pools: list[Pool]) -> Picked | None:
    if shape.nodes:
        return _pick_each(room, pools, shape.nodes, shape.gpus_per_node)
    if shape.gpus < WHOLE_NODES_FROM and (single := _pick_each(room, pools, 1, shape.gpus)):
        return single
    for size in sorted({pool.size for pool in pools}, reverse=True):
        if (picked := _pick_whole(room, shape.gpus, size, pools)) is not None:
            return picked
    return None


def _pick_each(room: Room, pools: list[Pool], nodes: int, gpus: int) -> Picked | None:
    """The `nodes` fullest nodes that have `gpus` free each."""
    picked: Picked = []
    for pool in pools:
        if pool.free >= gpus:
            names = room.pools.names(pool)[: nodes - len(picked)]
            picked += [(NodeId(name), gpus) for name in names]
            if len(picked) == nodes:
                return picked
    return None


def _pick_whole(room: Room, gpus: int, size: int, pools: list[Pool]) -> Picked | None:
    """Whole nodes of one size, and the fullest other node of the type for what remains."""
    nodes, rest = divmod(gpus, size)
    names = room.pools.names(Pool(pools[0].gpu_type, size, size))
    if len(names) < nodes:
        return None
    picked: Picked = [(NodeId(name), size) for name in names[:nodes]]
    if rest:
        taken = {node_id for node_id, _ in picked}
        remainder = next((n for n in _holding(room, pools, rest) if n not in taken), None)
        if remainder is None:
            return None
        picked.append((remainder, rest))
    return picked


def _holding(room: Room, pools: list[Pool], gpus: int) -> Iterator[NodeId]:
    for pool in pools:
        if pool.free >= gpus:
            yield from map(NodeId, room.pools.names(pool))


def _share(room: Room, node_id: NodeId, gpus: int) -> NodeShare:
    node = room.cluster.nodes[node_id]
    free, slots = room.free(node), 0
    for _ in range(gpus):  # the lowest free slots
        lowest = free & -free
        slots |= lowest
        free ^= lowest
    return NodeShare(node_id, node.epoch, SlotMask(slots))


def _reason(cluster: Cluster, shape: Shape) -> HoldCode:
    """What stands against a gang that does not fit, from the gravest to the lightest."""
    sizes = cluster.sizes
    if shape.gpu_types and not any(kind.gpu_type in shape.gpu_types and kind.size for kind in sizes):
        return HoldCode.NO_SUCH_GPU
    if not could_hold(cluster, shape, tuple(NodeState)):
        return HoldCode.EXCEEDS_CLUSTER
    if not could_hold(cluster, shape, (NodeState.UP,)):
        return HoldCode.NODES_UNWELL
    return HoldCode.NO_ROOM


def could_hold(cluster: Cluster, shape: Shape, states: tuple[NodeState, ...]) -> bool:
    """Whether the nodes in these states would hold the gang if every GPU of theirs were free."""
    by_type: dict[str, dict[int, int]] = {}
    for kind, nodes in cluster.sizes.items():
        if kind.state in states and kind.size and (not shape.gpu_types or kind.gpu_type in shape.gpu_types):
            counts = by_type.setdefault(kind.gpu_type, {})
            counts[kind.size] = counts.get(kind.size, 0) + nodes
    return any(_would_fit(shape, counts) for counts in by_type.values())


def _would_fit(shape: Shape, counts: dict[int, int]) -> bool:
    if shape.nodes:
        return sum(nodes for size, nodes in counts.items() if size >= shape.gpus_per_node) >= shape.nodes
    if shape.gpus < WHOLE_NODES_FROM and any(size >= shape.gpus for size in counts):
        return True
    for size, nodes in counts.items():
        whole, rest = divmod(shape.gpus, size)
        others = sum(n for s, n in counts.items() if s >= rest) - (whole if size >= rest else 0)
        if nodes >= whole and (not rest or others > 0):
            return True
    return False
