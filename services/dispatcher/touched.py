"""Which nodes a stretch may have changed the desired state of."""

from collections.abc import Collection, Iterator

from events.base import NodeId, Stretch
from events.fleet import NodeLost
from events.gpu import GpuJudged, GpuRecovered, GpuReturned
from events.job import JobPlaced, RunStopping
from events.node import GpusReleased, NodeJoined, ShareStarted
from projections.cluster.state import Cluster


def touched(cluster: Cluster, stretch: Stretch, crowded: Collection[NodeId] = ()) -> Iterator[NodeId]:
    """The nodes to compare again; some twice, some in vain, none left out. `cluster` has folded the stretch.

    A `crowded` node is told less than all until what it was told has started.
    """
    for recorded in stretch:
        match recorded.event:
            case JobPlaced() as e:
                yield from (share.node_id for share in e.shares)
            case RunStopping() as e if e.run_id in cluster.runs:  # else it is over: its releases touch its nodes
                yield from (share.node_id for share in cluster.runs[e.run_id].shares)
            case NodeJoined() | NodeLost() | GpusReleased() | GpuJudged() | GpuReturned() | GpuRecovered() as e if (
                e.node_id in cluster.nodes
            ):
                yield e.node_id  # an agent may report before it ever joined
            case ShareStarted() as e if e.node_id in crowded:
                yield e.node_id
            case _:
                pass  # changes nothing that an agent is told
