"""What users and operators of random histories ask for: jobs of every shape, trees of queues, policies."""

from datetime import datetime
from random import Random
from typing import Any, Final

from events.base import TeamId
from events.job import Checkpoint, Domain, JobSpec, OnLost, Priority, Topology
from events.policy import Consolidation, JobOrder, Overrun, PlacePolicy, PolicySet
from events.queues import Bounds, Queue, QueueOrder, QueueStop
from tests.spending import charging

TEAMS: Final = ("t", "t", "t", "u", "v")
SIZES: Final = (4, 4, 4, 4, 8, 2, 1, 8)
TYPES: Final = ("h100", "h100", "h100", "h100", "h100", "a100", "a100", "a100")
TAINT: Final = "own"


def size_of(number: int) -> int:
    """The GPUs of a node."""
    return SIZES[number % len(SIZES)]


PLACES: Final[tuple[dict[str, str], ...]] = (
    {"rack": "r0", "spine": "s0", "net": "ib"},
    {"rack": "r0", "spine": "s0"},
    {"rack": "r1", "spine": "s0"},
    {"rack": "r1", "spine": "s0"},
    {"rack": "r1", "net": "ib"},  # another rack of that name: nobody said on which spine
    {},
    {"rack": "r2", "spine": "s1"},
    {"rack": "r2", "spine": "s1"},
)


def stands(number: int) -> dict[str, Any]:
    """What a node says of itself when it joins: its GPU type, where it stands, and for one of eight a taint."""
    taints = (TAINT,) if number % 8 == 7 else ()
    return {"gpu_type": TYPES[number % len(TYPES)], "labels": PLACES[number % len(PLACES)], "taints": taints}


def a_spec(random: Random, number: int) -> JobSpec:
    """A job: half of them are plain, some elastic, near each other, picky, or not to be stopped."""
    if random.random() < 0.5:
        return a_small_spec(number, random.choice((1, 2, 2, 4, 4)), random.choice(list(Priority)))
    nodes, each = random.choice(((0, 0), (0, 0), (0, 0), (2, 2), (3, 1)))
    gpus = nodes * each or random.choice((1, 1, 2, 2, 3, 4, 4, 8, 12))
    near = Topology(within=random.choice(list(Domain)), required=random.random() < 0.5)
    return JobSpec(
        name=f"job{number}",
        command=("true",),
        gpus=gpus,
        nodes=nodes,
        gpus_per_node=each,
        gpu_types=random.choice(((), (), ("h100",), ("h100",), ("a100", "h100"))),
        priority=random.choice(list(Priority)),
        max_runtime_s=random.choice((0, 0, 60, 300)),
        on_lost=random.choice((OnLost.RESTART, OnLost.RESTART, OnLost.WAIT)),
        retries_application=random.choice((0, 1)),
        retries_infrastructure=number % 3,  # some are held soon
        preemptible=random.random() < 0.9,
        checkpoint=Checkpoint() if random.random() < 0.8 else None,
        min_gpus=random.choice((0, 0, 0, 0, max(1, gpus // 2))),
        topology=random.choice((None, None, None, None, None, near)),
        labels=random.choice(({}, {}, {}, {}, {}, {}, {}, {"net": "ib"})),
        tolerates=random.choice(((), (), (), (TAINT,))),
        account=random.choice(("",) * 14 + ("alpha", "beta")),
    )


def a_small_spec(number: int, gpus: int = 2, priority: Priority = Priority.NORMAL) -> JobSpec:
    """A job like many others, that saves its progress."""
    checkpoint = Checkpoint()
    return JobSpec(name=f"job{number}", command=("true",), gpus=gpus, priority=priority, checkpoint=checkpoint)


def some_queues(random: Random) -> tuple[Queue, ...]:
    """A tree: two teams in one queue, a third beside it; some with bounds, seldom one that is stopped."""

    def bounds() -> tuple[Bounds, ...]:
        return random.choice(
            (
                (),
                (),
                (Bounds(floor=random.randrange(9)),),
                (Bounds(limit=random.randrange(4, 20)),),
                (Bounds(gpu_type="h100", floor=2, lending_limit=1),),
                (Bounds(gpu_type="h100", borrowing_limit=random.randrange(6)),),
            )
        )

    def queue(name: str, parent: str = "") -> Queue:
        return Queue(
            name=TeamId(name),
            parent=parent,
            weight=random.choice((0, 1, 1, 1, 2, 3)),
            bounds=bounds(),
            order=random.choice((QueueOrder.BEST_EFFORT, QueueOrder.BEST_EFFORT, QueueOrder.STRICT)),
            stop=random.choice([QueueStop.NONE] * 8 + list(QueueStop)),
            pending_max=random.choice((None, None, None, 5)),
            running_max=random.choice((None, None, None, 3)),
        )

    return (queue("org"), queue("t", "org"), queue("u", "org"), queue("v"))


def a_policy(random: Random, at: datetime) -> PolicySet:
    """A policy under which something happens soon."""
    return PolicySet(
        at=at,
        placement=random.choice(list(PlacePolicy)),
        order=random.choice([JobOrder.FAIR] * 3 + list(JobOrder)),
        blocking=random.random() < 0.1,
        promises=random.choice((0, 1, 1, 3)),
        overrun=random.choice(list(Overrun)),
        preemption=random.random() < 0.9,
        min_runtime_s=random.choice((0, 0, 0, 30)),
        evictions_max=random.choice((1, 2, 3)),
        cool_down_s=random.choice((0, 0, 60)),
        consolidation=random.choice([Consolidation.DO] * 4 + list(Consolidation)),
        half_life_s=random.choice((0, 0, 600)),
        admitted_ahead=random.choice((1, 100)),
        start_within_s=3_600,  # so that what starts late is mostly preempted or moved before, and sometimes not
        **charging(random),
    )
