"""Small clusters and gangs to place in them, and the reference that tries every combination of nodes."""

from collections.abc import Iterator
from itertools import combinations
from typing import Final, NamedTuple

from hypothesis import strategies as st

from events.base import GpuUuid, JobId, NodeEpoch, NodeId
from events.job import HoldCode
from events.policy import PlacePolicy, PolicySet
from projections.cluster.index import put_node
from projections.cluster.job import Shape
from projections.cluster.node import Node, NodeState, traits_of
from projections.cluster.placing.place import WHOLE_NODES_FROM, Misfit, Placement, Room, place
from projections.cluster.state import NO_POLICY, Cluster

BEST, FIRST, SPREAD = PlacePolicy.BEST_FIT, PlacePolicy.FIRST_FIT, PlacePolicy.SPREAD
Places = list[tuple[str, int]]  # nodes and how many GPUs of each

LABELS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"rack": "r1", "spine": "s1"},
    {"rack": "r1", "spine": "s1", "fabric": "ib"},
    {"rack": "r2", "spine": "s1"},
    {"rack": "r1", "spine": "s2"},
    {"spine": "s2"},
)


@st.composite
def nodes(draw: st.DrawFn, *, labelled: bool = True) -> list[Node]:
    """Up to six nodes of two types, in any state, in some racks; of some, GPUs are out of the pool or set aside."""
    found: list[Node] = []
    for number in range(draw(st.integers(0, 6))):
        size = draw(st.sampled_from((1, 2, 4, 4, 8, 8)))
        present = (1 << size) - 1
        state = draw(st.sampled_from((NodeState.UP,) * 5 + (NodeState.SUSPECT, NodeState.LOST)))
        pool = 0 if state is NodeState.LOST else present & ~draw(st.sampled_from((0, 0, 0, 1)))
        free = pool & draw(st.one_of(st.just(present), st.integers(0, present)))
        marked = draw(st.sampled_from((0, 0, 0, 2)))
        labels = draw(st.sampled_from(LABELS)) if labelled else {}
        taints = draw(st.sampled_from(((), (), (), ("old",), ("old", "slow")))) if labelled else ()
        found.append(
            Node(
                node_id=NodeId(f"n{number}"),
                epoch=NodeEpoch(100 + number),
                state=state,
                gpu_type=draw(st.sampled_from(("h100", "h100", "a100"))),
                uuids=tuple(GpuUuid(f"n{number}-{slot}") for slot in range(size)),
                present=present,
                pool=pool,
                free=free,
                marked=marked,
                earmarked={JobId("other"): marked} if marked else {},
                labels=labels,
                taints=taints,
                traits=traits_of(labels, taints),
                cordoned=draw(st.sampled_from((False,) * 5 + (True,))),
            )
        )
    return found


@st.composite
def shapes(draw: st.DrawFn, *, plain: bool = False) -> Shape:
    """Gangs from one GPU to more than any cluster here has; `plain`: without labels, taints, and a wish for racks."""
    types = draw(st.sampled_from(((), (), ("h100",), ("a100", "h100"), ("b200",))))
    if draw(st.booleans()):
        shape = Shape(draw(st.integers(1, 26)), 0, 0, types)
    else:
        count, each = draw(st.integers(1, 4)), draw(st.integers(1, 8))
        shape = Shape(count * each, count, each, types)
    if plain:
        return shape
    within, required = draw(st.sampled_from((("", False), ("rack", True), ("rack", False), ("spine", True))))
    labels = draw(st.sampled_from(((),) * 4 + ((("fabric", "ib"),), (("rack", "r1"),), (("fabric", "eth"),))))
    tolerates = draw(st.sampled_from(((), ("old",), ("old", "slow"))))
    return shape._replace(within=within, required=required, labels=labels, tolerates=tolerates)


def cluster_of(found: list[Node], policy: PlacePolicy = BEST) -> Cluster:
    """A cluster of these nodes."""
    cluster = Cluster()
    cluster.policy = PolicySet(at=NO_POLICY.at, placement=policy)
    for node in found:
        put_node(cluster, node)
    return cluster


class Spot(NamedTuple):
    """A node as the reference sees it: `free` of its `size` GPUs may be given away."""

    node: Node
    free: int

    @property
    def whole(self) -> bool:
        """Whether nothing is on it."""
        return self.free == self.node.size


def well(node: Node) -> bool:
    """Whether anything may be placed on it."""
    return node.state is NodeState.UP and not node.cordoned


def acceptable(node: Node, shape: Shape) -> bool:
    """Whether its labels and taints will do."""
    return all(node.labels.get(key) == value for key, value in shape.labels) and set(node.taints) <= set(
        shape.tolerates
    )


def free_now(found: list[Node]) -> list[Spot]:
    """What the nodes have to give."""
    return [Spot(node, node.spare.bit_count()) for node in found if well(node) and node.spare]


def idle(found: list[Node]) -> list[Spot]:
    """What they would have if every GPU of theirs were free."""
    return [Spot(node, node.size) for node in found]


def preference(policy: PlacePolicy, spot: Spot) -> tuple[object, ...]:
    """Which node comes first by a policy, the racks aside."""
    node = spot.node
    match policy:
        case PlacePolicy.BEST_FIT:
            return (spot.whole, spot.free, node.size, node.traits, node.node_id)
        case PlacePolicy.FIRST_FIT:
            return (node.node_id,)
        case PlacePolicy.SPREAD:
            return (-spot.free, node.size, node.traits, node.node_id)


def modes(shape: Shape, spots: list[Spot]) -> Iterator[Iterator[list[tuple[Spot, int]]]]:
    """Every way to hold the gang on these nodes of one type: one node, or else whole nodes of the largest size, and so on."""
    if shape.nodes:
        holding = [spot for spot in spots if spot.free >= shape.gpus_per_node]
        yield ([(spot, shape.gpus_per_node) for spot in some] for some in combinations(holding, shape.nodes))
        return
    if shape.gpus < WHOLE_NODES_FROM:
        yield ([(spot, shape.gpus)] for spot in spots if spot.free >= shape.gpus)
    for size in sorted({spot.node.size for spot in spots}, reverse=True):
        yield whole_nodes(shape.gpus, size, spots)


def whole_nodes(gpus: int, size: int, spots: list[Spot]) -> Iterator[list[tuple[Spot, int]]]:
    """Whole nodes of one size, and any other for what remains."""
    count, rest = divmod(gpus, size)
    for some in combinations([spot for spot in spots if spot.whole and spot.node.size == size], count):
        picked = [(spot, size) for spot in some]
        if not rest:
            yield picked
        yield from ([*picked, (spot, rest)] for spot in spots if spot not in some and spot.free >= rest > 0)


def together(some: list[tuple[Spot, int]], within: str) -> bool:
    """Whether it is known that they stand in one such domain; one node always does."""
    places = {spot.node.place for spot, _ in some}
    if len(some) == 1:
        return True
    if within == "rack":
        return len(places) == 1 and all(place.rack for place in places)
    return len({place.spine for place in places}) == 1 and all(place.spine for place in places)


def ways(shape: Shape, spots: list[Spot]) -> list[list[tuple[Spot, int]]]:
    """All ways to hold the gang that are as good by type and size; none where nothing holds it."""
    suiting = [spot for spot in spots if acceptable(spot.node, shape)]
    for gpu_type in shape.gpu_types or sorted({spot.node.gpu_type for spot in suiting}):
        of_type = [spot for spot in suiting if spot.node.gpu_type == gpu_type]
        for mode in modes(shape, of_type):
            found = [some for some in mode if not shape.required or together(some, shape.within)]
            if found:
                return found
    return []


def spread_out(some: list[tuple[Spot, int]]) -> int:
    """0: in one rack, 1: in one spine, 2: in several. Nodes that say nothing stand together."""
    places = {spot.node.place for spot, _ in some}
    return 0 if len(places) == 1 else 1 if len({place.spine for place in places}) == 1 else 2


def named(some: list[tuple[Spot, int]]) -> Places:
    """The nodes of a way and how many GPUs of each."""
    return sorted((spot.node.node_id, gpus) for spot, gpus in some)


def shares_of(placed: Placement) -> Places:
    """Likewise of a placement."""
    return [(share.node_id, share.slots.bit_count()) for share in placed.shares]


def node(name: str, size: int = 8, *, busy: int = 0, broken: int = 0, gpu_type: str = "h100", **said: object) -> Node:
    """A node of which so many GPUs are in use, the lowest, or out of the pool. `said`: labels, taints, cordoned, state."""
    present = (1 << size) - 1
    pool = present & ~((1 << broken) - 1)
    labels, taints = said.pop("labels", {}), said.pop("taints", ())
    assert isinstance(labels, dict)
    assert isinstance(taints, tuple)
    return Node(
        node_id=NodeId(name),
        epoch=NodeEpoch(1),
        gpu_type=gpu_type,
        uuids=tuple(GpuUuid(f"{name}-{slot}") for slot in range(size)),
        present=present,
        pool=pool,
        free=pool & ~((1 << busy) - 1),
        labels=labels,
        taints=taints,
        traits=traits_of(labels, taints),
        **said,  # type: ignore[arg-type]
    )


def racks(**free: int) -> list[Node]:
    """Racks of one spine with so many whole nodes of 8 each, and in each one more node that is busy."""
    return [
        node(f"{rack}-{number}", busy=8 if number == count else 0, labels={"rack": rack, "spine": "s"})
        for rack, count in free.items()
        for number in range(count + 1)
    ]


def by_rack(placed: Placement | Misfit) -> dict[str, int]:
    """How many nodes a gang of the above has in each rack."""
    assert isinstance(placed, Placement), placed
    counts: dict[str, int] = {}
    for share in placed.shares:
        rack = share.node_id.split("-")[0]
        counts[rack] = counts.get(rack, 0) + 1
    return counts


def reason(shape: Shape, found: list[Node]) -> HoldCode:
    """Why a gang that fits nowhere does not, from the gravest to the lightest."""
    of_type = [node for node in found if not shape.gpu_types or node.gpu_type in shape.gpu_types]
    suiting = [node for node in of_type if acceptable(node, shape)]
    spares: list[int] = [0]
    for gpu_type in {node.gpu_type for node in suiting}:
        domains: dict[object, int] = {}
        for spot in free_now([node for node in suiting if node.gpu_type == gpu_type]):
            place = spot.node.place
            key = (
                ((place if place.rack else "") if shape.within == "rack" else place.spine) if shape.required else "all"
            )
            domains[key] = domains.get(key, 0) + spot.free
        spares += [gpus for key, gpus in domains.items() if key]
    reasons: list[tuple[HoldCode, bool]] = [
        (HoldCode.NO_SUCH_GPU, bool(shape.gpu_types) and not of_type),
        (HoldCode.NO_SUCH_NODE, bool(of_type) and not suiting),
        (HoldCode.EXCEEDS_CLUSTER, not ways(shape._replace(required=False), idle(found))),
        (HoldCode.EXCEEDS_DOMAIN, not ways(shape, idle(found))),
        (HoldCode.NODES_UNWELL, not ways(shape, idle([node for node in found if well(node)]))),
        (HoldCode.SCATTERED, max(spares) >= shape.gpus),
    ]
    return next((code for code, holds in reasons if holds), HoldCode.NO_ROOM)


def placement(room: Room, shape: Shape) -> Placement:
    """Where a gang goes that fits."""
    placed = place(room, shape)
    assert isinstance(placed, Placement), placed
    return placed
