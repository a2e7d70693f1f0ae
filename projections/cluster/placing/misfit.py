"""Why a gang does not fit, from the gravest reason to the lightest, and whether the cluster could ever hold it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from events.base import NodeId
from events.job import HoldCode, NodeShare
from projections.cluster.index import kind_of
from projections.cluster.job import Shape
from projections.cluster.node import NOWHERE, Kind, NodeState
from projections.cluster.placing.pick import WHOLE_NODES_FROM
from projections.cluster.placing.room import Room, domain_of, sought_by
from projections.cluster.state import Cluster

ANY_STATE: Final = tuple(NodeState)
WORKING: Final = (NodeState.UP, NodeState.SUSPECT)
ANSWERS_MAX: Final = 10_000  # that are kept until a node changes


class Misfit(NamedTuple):
    """The gang does not fit now, and what stands against it."""

    code: HoldCode


def least(shape: Shape) -> Shape:
    """The smallest gang that will do: for one that is not elastic, itself."""
    return sized(shape, shape.min_gpus) if shape.min_gpus else shape


def sized(shape: Shape, gpus: int) -> Shape:
    """The shape with at least so many GPUs, and no longer elastic: whole shares where it says how large they are."""
    if not shape.nodes:
        return shape._replace(gpus=gpus, min_gpus=0)
    nodes = -(-gpus // shape.gpus_per_node)
    return shape._replace(gpus=nodes * shape.gpus_per_node, nodes=nodes, min_gpus=0)


def misfit(room: Room, shape: Shape) -> Misfit:
    """What stands against a gang that does not fit in this room."""
    cluster, needed = room.cluster, least(shape)
    of_type = [kind for kind in cluster.sizes if kind.size and _accepts(shape, kind.gpu_type)]
    if shape.gpu_types and not of_type:
        return Misfit(HoldCode.NO_SUCH_GPU)
    suiting = [kind for kind in of_type if _suits(shape, kind)]
    if of_type and not suiting:
        return Misfit(HoldCode.NO_SUCH_NODE)
    if not could_hold(cluster, needed._replace(required=False), ANY_STATE):
        return Misfit(HoldCode.EXCEEDS_CLUSTER)
    if not could_hold(cluster, needed, ANY_STATE):
        return Misfit(HoldCode.EXCEEDS_DOMAIN)
    if not could_hold(cluster, needed, (NodeState.UP,), closed=False):
        return Misfit(HoldCode.NODES_UNWELL)
    within = shape.within if shape.required else ""
    types = sorted({kind.gpu_type for kind in suiting})
    spare = max(room.spare(sought_by(shape, gpu_type, 1), within=within) for gpu_type in types)
    return Misfit(HoldCode.SCATTERED if spare >= needed.gpus else HoldCode.NO_ROOM)


def could_hold(cluster: Cluster, shape: Shape, states: tuple[NodeState, ...], *, closed: bool = True) -> bool:
    """Whether the nodes in these states would hold the gang if every GPU of theirs were free.

    An elastic one with the fewest GPUs it starts with. Without `closed`, nodes that are cordoned or drained do not count. The
    answer is kept until a node joins, or is well, unwell, closed or open again: asking again costs nothing.
    """
    if shape.avoid:
        shape = shape._replace(avoid=())
    asked = (shape, states, closed)
    if (known := cluster.could.get(asked)) is None:
        known = _note(cluster, asked, answer=_could_hold(cluster.sizes, least(shape), states, closed=closed))
    return known


def kept_away(cluster: Cluster, shape: Shape) -> tuple[NodeId, ...]:
    """The nodes that a gang keeps away from: those that failed it, if others could hold it once all their GPUs are free."""
    if not shape.avoid:
        return ()
    asked = (shape, WORKING)
    if (others := cluster.could.get(asked)) is None:
        left = Counter(kind_of(cluster.nodes[node_id]) for node_id in shape.avoid if node_id in cluster.nodes)
        sizes = {kind: nodes - left[kind] for kind, nodes in cluster.sizes.items()}
        others = _could_hold({kind: n for kind, n in sizes.items() if n}, least(shape), WORKING, closed=False)
        _note(cluster, asked, answer=others)
    return shape.avoid if others else ()


def _note(cluster: Cluster, asked: object, *, answer: bool) -> bool:
    if len(cluster.could) >= ANSWERS_MAX:
        cluster.could.clear()
    cluster.could[asked] = answer
    return answer


def _could_hold(known: Mapping[Kind, int], shape: Shape, states: tuple[NodeState, ...], *, closed: bool) -> bool:
    counts: dict[tuple[str, tuple[str, str]], dict[int, int]] = {}  # type, domain -> size -> nodes
    for kind, nodes in known.items():
        if kind.state not in states or (kind.closed and not closed):
            continue
        if not kind.size or not _accepts(shape, kind.gpu_type) or not _suits(shape, kind):
            continue
        domain = domain_of(kind.place, shape.within) if shape.required else NOWHERE
        of_domain = counts.setdefault((kind.gpu_type, domain), {})
        of_domain[kind.size] = of_domain.get(kind.size, 0) + nodes
    for (_, domain), sizes in counts.items():
        if shape.required and domain == NOWHERE:  # each node for itself: that they stand together, nobody said
            fits = any(_would_fit(shape, {size: 1}) for size in sizes)
        else:
            fits = _would_fit(shape, sizes)
        if fits:
            return True
    return False


def suited(cluster: Cluster, shape: Shape, shares: Iterable[NodeShare]) -> bool:
    """Whether nodes that were found for a gang are such as it asks for: they may have been described anew since."""
    nodes = [node for share in shares if (node := cluster.nodes.get(share.node_id)) is not None]
    away = kept_away(cluster, shape)
    for node in nodes:
        sought = sought_by(shape, node.gpu_type, 1)
        if node.node_id in away:
            return False
        if not (_accepts(shape, node.gpu_type) and sought.suits(node.traits) and sought.lies(node.place)):
            return False
    within = {domain_of(node.place, shape.within) for node in nodes} if shape.required and len(nodes) > 1 else set()
    return not within or (len(within) == 1 and NOWHERE not in within)


def _accepts(shape: Shape, gpu_type: str) -> bool:
    return not shape.gpu_types or gpu_type in shape.gpu_types


def _suits(shape: Shape, kind: Kind) -> bool:
    sought = sought_by(shape, kind.gpu_type, 1)
    return sought.suits(kind.traits) and sought.lies(kind.place)


def _would_fit(shape: Shape, counts: dict[int, int]) -> bool:
    if shape.nodes:
        return sum(nodes for size, nodes in counts.items() if size >= shape.gpus_per_node) >= shape.nodes
    if shape.gpus < WHOLE_NODES_FROM and any(size >= shape.gpus for size in counts):
        return True
    return any(_fits_whole(shape.gpus, size, counts.items()) for size in counts)


def _fits_whole(gpus: int, size: int, counts: Iterable[tuple[int, int]]) -> bool:
    """Whether whole nodes of one size hold a gang, and one more what remains."""
    whole, rest = divmod(gpus, size)
    having = sum(nodes for other, nodes in counts if other == size)
    others = sum(nodes for other, nodes in counts if other >= rest) - (whole if size >= rest else 0)
    return having >= whole and (not rest or others > 0)
