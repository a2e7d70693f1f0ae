"""Teams with queues that want GPUs, as words of a test, and what they may claim then."""

from events.base import TeamId
from events.queues import Bounds, Queue
from projections.cluster.quota.entitlement import Standing
from tests.clusters import World

H100, A100 = "h100", "a100"


def queue(name: str, parent: str = "", **knobs: object) -> Queue:
    """A queue; bounds of one type, or over all, by their names."""
    of_bounds = {key: knobs.pop(key) for key in list(knobs) if key in Bounds.__struct_fields__}
    bounds = (Bounds(**of_bounds),) if of_bounds else ()  # type: ignore[arg-type]
    return Queue(name=TeamId(name), parent=parent, **{"bounds": bounds, **knobs})  # type: ignore[arg-type]


def standing(world: World) -> Standing:
    """Where the teams stand now."""
    return Standing(world.cluster, world.at)


def asking(gpus: int, *queues: Queue, **wanted: int) -> World:
    """A cluster of one type with so many GPUs, in which teams want one-GPU gangs of one job each."""
    world = World({f"n{number:04d}": min(10, gpus - 10 * number) for number in range(-(-gpus // 10))})
    world.queues(*queues)
    for team, number in wanted.items():
        world.submit(f"wants-{team}", number, team=team, gpu_types=(H100,))
    return world


def entitled(world: World, *teams: str, gpu_type: str = H100) -> list[int]:
    """What teams may claim."""
    now = standing(world)
    return [now.entitled(TeamId(team), gpu_type) for team in teams]


def floors(world: World, *teams: str, gpu_type: str = H100) -> list[int]:
    """What teams have for sure."""
    now = standing(world)
    return [now.floor(TeamId(team), gpu_type) for team in teams]
