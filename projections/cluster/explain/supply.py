"""What the cluster has for a shape, in numbers: from counts and buckets, without a look at every node."""

from collections import Counter
from typing import Final

from events.base import NodeId
from projections.cluster.job import Shape
from projections.cluster.node import Kind, Node, NodeState, Pool, suits
from projections.cluster.placing.room import Sought, domain_of, lies, sought_by
from projections.cluster.state import Cluster

NUMBERS: Final = (
    "gpus_total",
    "gpus_free",
    "gpus_free_most",
    "nodes",
    "nodes_free_whole",
    "nodes_unwell",
    "nodes_unfit",
)


def supply(cluster: Cluster, shape: Shape) -> dict[str, int]:
    """What the nodes have that the gang may go to: those of a type it accepts, with its labels, and no other taints.

    `gpus_total`: their GPUs, free or not; `gpus_free`: that may be given away now; `gpus_free_most`: of these, on one
    node at the most; `nodes`; `nodes_free_whole`: with all GPUs free; `nodes_unwell`: suspect, lost, cordoned or drained;
    `nodes_unfit`: of a type it accepts, but for labels or taints; `gpus_domain_most`: GPUs of the largest rack, or spine,
    where it must stay within one.
    """
    have = dict.fromkeys(NUMBERS, 0)
    domains: Counter[tuple[str, str]] = Counter()
    for kind, nodes in cluster.sizes.items():
        if not accepts(shape, kind.gpu_type):
            continue
        if not suits_kind(shape, kind):
            have["nodes_unfit"] += nodes
            continue
        have["nodes"] += nodes
        have["gpus_total"] += nodes * kind.size
        have["nodes_unwell"] += nodes if kind.state is not NodeState.UP or kind.closed else 0
        domains[domain_of(kind.place, shape.within)] += nodes * kind.size
    for pool in cluster.pools.groups():
        if accepts(shape, pool.gpu_type) and (nodes := _nodes(cluster, shape, pool)):
            have["gpus_free"] += nodes * pool.free
            have["gpus_free_most"] = max(have["gpus_free_most"], pool.free)
            have["nodes_free_whole"] += nodes if pool.free == pool.size else 0
    if shape.within and shape.required:
        have["gpus_domain_most"] = max((gpus for domain, gpus in domains.items() if any(domain)), default=0)
    return have


def accepts(shape: Shape, gpu_type: str) -> bool:
    """Whether a gang of this shape may be on GPUs of this type."""
    return not shape.gpu_types or gpu_type in shape.gpu_types


def suits_kind(shape: Shape, kind: Kind | Node) -> bool:
    """Whether labels, taints and place of such nodes will do."""
    return suits(kind.traits, shape.labels, shape.tolerates) and lies(kind.place, shape.labels)


def _nodes(cluster: Cluster, shape: Shape, pool: Pool) -> int:
    """How many nodes of a pool will do."""
    sought: Sought = sought_by(shape, pool.gpu_type, 1)
    if not sought.suits(pool.traits):
        return 0
    names = cluster.pools.names(pool)
    return sum(sought.lies(cluster.nodes[NodeId(name)].place) for name in names) if sought.pinned else len(names)
