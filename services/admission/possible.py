"""Which shapes no free GPUs would ever help, as the nodes are now."""

from events.job import HoldCode
from projections.cluster.job import Shape
from projections.cluster.placing.misfit import ANY_STATE, could_hold, misfit
from projections.cluster.placing.room import Room
from projections.cluster.state import Cluster


class Possible:
    """What stands against a shape on all of a cluster's nodes, free or not, well or not. One look a shape."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._room: Room | None = None
        self._known: dict[Shape, HoldCode | None] = {}

    def fault(self, shape: Shape) -> HoldCode | None:
        """Why no node, or not all together, could ever hold a gang of this shape; None where they could."""
        if shape not in self._known:
            self._known[shape] = None if could_hold(self._cluster, shape, ANY_STATE) else self._reason(shape)
        return self._known[shape]

    def _reason(self, shape: Shape) -> HoldCode:
        self._room = self._room or Room(self._cluster)
        return misfit(self._room, shape).code


def least_gpus(shape: Shape) -> int:
    """The fewest GPUs that a gang of this shape starts with."""
    return shape.min_gpus or shape.gpus
