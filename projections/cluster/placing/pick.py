"""Which nodes a gang gets, and how many GPUs of each: by the policy, and close together in the network."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from events.base import NodeId
from events.job import Domain
from events.policy import PlacePolicy
from projections.cluster.job import Shape
from projections.cluster.node import Place
from projections.cluster.placing.room import Room, Sought, sought_by
from projections.cluster.placing.topology import Chosen, Racks

WHOLE_NODES_FROM: Final = 8  # GPUs; a gang of so many, or of more than a node has, takes whole nodes

Picked = list[tuple[NodeId, int]]  # nodes and how many GPUs of each


def most_free(room: Room, shape: Shape) -> int:
    """GPUs that no larger gang of the kind finds in the room, its domain aside: as many whole nodes as there are, and a rest."""
    most = 0
    for gpu_type in shape.gpu_types or room.types:
        pools = list(room.pools_for(sought_by(shape, gpu_type, shape.gpus_per_node or 1)))
        if shape.nodes:
            most = max(most, shape.gpus_per_node * sum(len(room.pools.names(pool)) for pool in pools))
            continue
        for pool in pools:
            whole = pool.size * len(room.pools.names(pool)) if pool.free == pool.size else 0
            rest = max((other.free for other in pools if other != pool), default=0)
            most = max(most, pool.free, whole + rest)
    return most


class Gang(NamedTuple):
    """What is looked for on one GPU type: some nodes that are alike, and one for what remains."""

    nodes: int
    each: Sought
    rest: Sought | None
    within: str  # a `Domain`; empty: anywhere
    required: bool


def pick(room: Room, shape: Shape, gpu_type: str) -> Picked | None:
    """The nodes of this type for a gang, and how many GPUs of each; None where they do not hold it."""
    if shape.nodes:
        each = sought_by(shape, gpu_type, shape.gpus_per_node)
        return _gang(room, Gang(shape.nodes, each, None, shape.within, shape.required))
    if shape.gpus < WHOLE_NODES_FROM:
        single = room.first(sought_by(shape, gpu_type, shape.gpus))
        if single is not None:
            return [(NodeId(single), shape.gpus)]
    for size in sorted({pool.size for pool in room.pools.groups() if pool.gpu_type == gpu_type}, reverse=True):
        nodes, rest = divmod(shape.gpus, size)
        remainder = sought_by(shape, gpu_type, rest) if rest else None
        each = sought_by(shape, gpu_type, size, whole=True)
        if (picked := _gang(room, Gang(nodes, each, remainder, shape.within, shape.required))) is not None:
            return picked
    return None


def _gang(room: Room, gang: Gang) -> Picked | None:
    """Its nodes, if there are any: close together where the network is known, but for a policy that asks for else."""
    if gang.nodes and not room.has(gang.each, gang.nodes):
        return None
    if gang.nodes + (gang.rest is not None) == 1:
        gang = gang._replace(within="", required=False)  # one node is in one rack, whether it says in which or not
        if not _opens_node(room, gang):
            return _anywhere(room, gang)
    if gang.required or ((gang.within or room.policy is PlacePolicy.BEST_FIT) and room.cluster.spares):
        racks = room.racks(gang.each)
        if sum(racks.spines.values()) < gang.nodes:
            return None
        for domain, chosen in _domains(racks, gang, room.policy):
            if (picked := _filled(room, gang, racks, domain, chosen)) is not None:
                return picked
        if gang.required or room.policy is PlacePolicy.BEST_FIT:
            return None
    return _anywhere(room, gang)


def _opens_node(room: Room, gang: Gang) -> bool:
    """Whether the one node of a gang will be one with nothing on it: then it matters in which rack."""
    first = room.first(gang.each) if gang.nodes else None
    return first is not None and (pool := room.pool_of(first)).free == pool.size


def _anywhere(room: Room, gang: Gang) -> Picked | None:
    names = list(islice(room.in_order(gang.each), gang.nodes)) if gang.nodes else []
    if len(names) < gang.nodes:
        return None
    return _with_rest(gang, names, room.in_order(gang.rest) if gang.rest is not None else ())


def _with_rest(gang: Gang, names: list[str], others: Iterable[str]) -> Picked | None:
    """These nodes, and for what remains the first of the others that is none of them."""
    picked: Picked = [(NodeId(name), gang.each.gpus) for name in names]
    if gang.rest is not None:
        taken = set(names)
        remainder = next((name for name in others if name not in taken), None)
        if remainder is None:
            return None
        picked.append((NodeId(remainder), gang.rest.gpus))
    return picked


def _domains(racks: Racks, gang: Gang, policy: PlacePolicy) -> Iterator[tuple[str, list[Chosen]]]:
    """Where the nodes that are alike could be: in one rack, in one spine, in the fewest of them; the best one first."""
    for place in racks.in_one_rack(gang.nodes, policy):
        if not gang.required or _known(place, gang.within):
            yield Domain.RACK, [Chosen(place, gang.nodes)]
    if gang.required and gang.within == Domain.RACK:
        return
    for spine in racks.in_one_spine(gang.nodes, policy):
        if spine or not gang.required:
            yield Domain.SPINE, racks.within(spine, gang.nodes, policy)
    if not gang.required and policy is PlacePolicy.BEST_FIT:
        yield "", racks.across(gang.nodes)


def _known(place: Place, within: str) -> bool:
    """Whether it is known that nodes of this place stand in one such domain."""
    return bool(place.rack if within == Domain.RACK else place.spine)


def _filled(room: Room, gang: Gang, racks: Racks, domain: str, chosen: list[Chosen]) -> Picked | None:
    """Nodes of the chosen racks, and one for what remains in that domain: in these racks if there is one."""
    names = [name for rack in chosen for name in _first(room, gang.each, racks.names[rack.place], rack.nodes)]
    return _with_rest(gang, names, _others(room, gang.rest, domain, chosen) if gang.rest is not None else ())


def _first(room: Room, sought: Sought, names: list[str], nodes: int) -> list[str]:
    """The nodes of a rack that the policy prefers; whole ones are alike."""
    return names[:nodes] if sought.whole or nodes == len(names) else room.sort(names)[:nodes]


def _others(room: Room, rest: Sought, domain: str, chosen: list[Chosen]) -> Iterator[str]:
    """Nodes for what remains: in the chosen racks, then in their spines, then anywhere that the domain allows."""
    near = {rack.place for rack in chosen}
    yield from room.sort(name for place in sorted(near) for name in room.around(rest, place))
    if domain == Domain.RACK:
        return
    spines = {place.spine for place in near}
    nodes = room.cluster.nodes
    for name in room.in_order(rest):
        if nodes[NodeId(name)].place.spine in spines:
            yield name
    if not domain:
        yield from room.in_order(rest)
