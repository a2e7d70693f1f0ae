"""Queue documents drawn at random, and the wishes of the teams in them."""

from collections.abc import Sequence

from hypothesis import strategies as st

from events.base import TeamId
from events.queues import Bounds, Queue
from projections.cluster.quota.tree import ALL_TYPES
from tests.clusters import World

TYPES = ("a100", "h100")
NAMES = ("a", "b", "c", "d", "e")
KNOBS = ("floor", "limit", "borrowing_limit", "lending_limit")
COUNTS = st.none() | st.integers(0, 30)

Wishes = Sequence[tuple[str, str, int]]  # team, type, GPUs


@st.composite
def documents(draw: st.DrawFn, knobs: Sequence[str] = KNOBS) -> tuple[Queue, ...]:
    """A tree of up to five queues."""
    queues: list[Queue] = []
    for name in NAMES[: draw(st.integers(0, 5))]:
        types = draw(st.sets(st.sampled_from((*TYPES, ALL_TYPES)), max_size=3)) if knobs else set()
        bounds = tuple(Bounds(gpu_type=t, **{knob: draw(COUNTS) for knob in knobs}) for t in sorted(types))
        parent = draw(st.sampled_from(["", *(queue.name for queue in queues)]))
        queues.append(Queue(name=TeamId(name), parent=parent, weight=draw(st.integers(0, 4)), bounds=bounds))
    return tuple(queues)


WISHES = st.lists(st.tuples(st.sampled_from((*NAMES, "f")), st.sampled_from(TYPES), st.integers(1, 40)), max_size=8)


def world_of(queues: Sequence[Queue], wishes: Wishes) -> World:
    """Sixteen GPUs of one type, twelve of another, and teams that want some of them."""
    world = World({"n1": 16})
    world.join("m1", 12, gpu_type="a100")
    world.queues(*queues)
    for number, (team, gpu_type, gpus) in enumerate(wishes):
        world.submit(f"j{number}", gpus, team=team, gpu_types=(gpu_type,))
    return world
