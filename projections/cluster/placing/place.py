"""Whether a gang fits, and where: whole gang or nothing, by the policy, and close together in the network.

It lives with the fold since the scheduler places by it and `why` explains by it. `pick` finds the nodes, `topology` the
racks, `misfit` the reason where there are none.
"""

from typing import NamedTuple

from events.base import NodeId, SlotMask
from events.job import HoldCode, NodeShare
from projections.cluster.job import Shape
from projections.cluster.node import Slots
from projections.cluster.placing.misfit import Misfit, could_hold, kept_away, least, misfit, sized
from projections.cluster.placing.pick import WHOLE_NODES_FROM, Picked, most_free, pick
from projections.cluster.placing.room import Room
from projections.cluster.placing.topology import ranks_along

__all__ = ["WHOLE_NODES_FROM", "Misfit", "Placement", "Room", "could_hold", "place"]


class Placement(NamedTuple):
    """Where a gang goes, whole."""

    shares: tuple[NodeShare, ...]  # ordered by node
    ranks: tuple[int, ...] = ()  # node rank n is shares[ranks[n]]; empty: in order of shares


def place(room: Room, shape: Shape, *, most: int | None = None) -> Placement | Misfit:
    """The shares of a gang of this shape; or why there are none.

    All shares are on one GPU type, the first accepted one that holds the gang, and on nodes with its labels and no taint
    that it does not tolerate. A shape without `nodes` of under 8 GPUs goes to one node that holds it; a larger one takes
    whole empty nodes of one size, the largest first, and one more node for its remainder. `nodes` x `gpus_per_node`
    takes as many nodes that hold a share each. Which ones the policy says: by best fit the fullest, in the fewest and
    fullest racks and spines.

    An elastic gang gets the most GPUs that fit, `most` at most. One that is not elastic does not fit into fewer. Nodes that
    failed it are left out, if the others could hold it, free or not.
    """
    if shape.avoid:
        away = kept_away(room.cluster, shape)
        return place(_without(room, away) if away else room, shape._replace(avoid=()), most=most)
    top = shape.gpus if most is None else min(most, shape.gpus)
    needed = least(shape)
    if top < needed.gpus:
        return Misfit(HoldCode.NO_ROOM)
    if not shape.min_gpus:
        return _place(room, shape) or misfit(room, shape)
    if (best := _place(room, needed)) is None:
        return misfit(room, shape)
    unit = shape.gpus_per_node or 1
    low, high = needed.gpus // unit, min(top, most_free(room, shape)) // unit
    if high > low and (found := _place(room, sized(shape, high * unit))) is not None:
        return found
    while high - low > 1:  # what holds a gang holds a smaller one
        middle = (low + high) // 2
        if (found := _place(room, sized(shape, middle * unit))) is not None:
            low, best = middle, found
        else:
            high = middle
    return best


def _without(room: Room, away: tuple[NodeId, ...]) -> Room:
    """The room, with nothing to give on these nodes."""
    nodes = [node for node_id in away if (node := room.cluster.nodes.get(node_id)) is not None and room.free(node)]
    if not nodes:
        return room
    without = room.fork()
    without.take(NodeShare(node.node_id, node.epoch, SlotMask(room.free(node))) for node in nodes)
    return without


def _place(room: Room, shape: Shape) -> Placement | None:
    for gpu_type in shape.gpu_types or room.types:
        if (picked := pick(room, shape, gpu_type)) is not None:
            return _placement(room, picked)
    return None


def _placement(room: Room, picked: Picked) -> Placement:
    nodes, shares = [], []
    for node_id, gpus in sorted(picked):
        node = room.cluster.nodes[node_id]
        nodes.append(node)
        shares.append(NodeShare(node_id, node.epoch, _slots(room.free(node), node.doubted, gpus)))
    return Placement(tuple(shares), ranks_along(nodes) if len(nodes) > 1 and room.cluster.spares else ())


def _slots(free: Slots, doubted: Slots, gpus: int) -> SlotMask:
    """So many of the free slots: the lowest, those that are doubted last."""
    if free.bit_count() == gpus:
        return SlotMask(free)
    slots, left = 0, free & ~doubted
    for _ in range(gpus):
        left = left or free & doubted
        lowest = left & -left
        slots |= lowest
        left ^= lowest
    return SlotMask(slots)
