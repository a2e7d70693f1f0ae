"""A list of gangs, placed in order on empty nodes: no time passes, and nothing ends."""

from collections.abc import Iterable, Sequence
from typing import Final

from events.policy import PlacePolicy, PolicySet
from projections.cluster.job import Shape
from projections.cluster.placing.place import Placement, Room, place
from services.simulate.engine import Simulation
from services.simulate.fault import BadFile
from services.simulate.replay import Pool, named
from services.simulate.trace import GPUS_MAX

LINES_MAX: Final = 1_000_000


def read_sizes(lines: Iterable[str]) -> list[int]:
    """GPU counts, one a line; empty lines and those that begin with `#` are left out. Raises: `BadFile`."""
    sizes: list[int] = []
    for number, text in enumerate((line.strip() for line in lines), 1):
        if not text or text.startswith("#"):
            continue
        if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= GPUS_MAX):
            raise BadFile(number, f"{text[:40]!r} is no GPU count", hint=f"one whole number a line, 1 to {GPUS_MAX}")
        if len(sizes) == LINES_MAX:
            raise BadFile(number, f"a list has at most {LINES_MAX} jobs")
        sizes.append(int(text))
    return sizes


def fill(sizes: Sequence[int], pool: Pool, policy: PlacePolicy) -> dict[str, int]:
    """How many of the gangs find room, in order, and what is left. One that does not fit is rejected and skipped."""
    simulation = Simulation()
    simulation.join(named(pool.nodes), pool.gpus_per_node)
    simulation.record(PolicySet(at=simulation.begin, placement=policy))
    room, placed = Room(simulation.cluster), 0
    for gpus in sizes:
        match place(room, Shape(gpus)):
            case Placement(shares):
                room.take(shares)
                placed += 1
            case _:
                pass
    free = [room.free(node).bit_count() for node in simulation.cluster.nodes.values()]
    return {
        "jobs": len(sizes),
        "gpus": sum(sizes),
        "placed": placed,
        "rejected": len(sizes) - placed,
        "free_gpus": sum(free),
        "free_whole_nodes": free.count(pool.gpus_per_node),
    }
