"""Days on nodes of two types that are described anew while jobs run: bounds of one type, labels, taints, racks."""

from random import Random
from typing import Final

from msgspec.structs import replace

from events.base import NodeId
from events.job import Domain, Topology
from events.node import NodeDescribed
from events.policy import Consolidation, JobOrder, PolicySet
from events.queues import Bounds, Queue, QueuesSet
from services.simulate.engine import BEGIN
from services.simulate.work import US, Work
from tests.simulation.days import Day, tree, works

TYPES: Final = ("a", "b")


class MixedDay(Day):
    """A day on which, at some instants, a node is another than it was."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.random = random
        self.turns: list[int] = []  # when, in order

    def _settle(self) -> None:
        while self.turns and self.turns[0] <= self.now_us:
            del self.turns[0]
            self.describe()
        super()._settle()

    def describe(self) -> None:
        """A node gets a label or a taint, or loses it; or stands in another rack."""
        random = self.random
        node = random.choice(list(self.cluster.nodes.values()))
        labels = dict(node.labels) | {"rack": random.choice(("r0", "r1"))}
        if random.random() < 0.5:
            labels["disk"] = "fast"
        else:
            labels.pop("disk", None)
        taints = random.choice(((), (), ("odd",)))
        self.record(NodeDescribed(at=BEGIN, node_id=node.node_id, node_epoch=node.epoch, labels=labels, taints=taints))


def mixed_day(seed: int) -> tuple[MixedDay, list[Work]]:
    """A cluster of both types, and jobs that accept one or both of them."""
    random = Random(seed)
    grown = MixedDay(random)
    nodes = random.choice((3, 4, 6))
    for number in range(nodes):
        labels = {"rack": f"r{number % 2}", "spine": "s"}
        grown.join([NodeId(f"n{number}")], 4, gpu_type=TYPES[number % 3 == 2], labels=labels)
    grown.record(
        QueuesSet(at=BEGIN, queues=tuple(_bounded(random, queue, nodes * 2) for queue in tree(random, nodes * 4)))
    )
    grown.record(
        PolicySet(
            at=BEGIN,
            order=random.choice(list(JobOrder)),
            promises=random.choice((0, 1, 3, 9)),
            preemption=random.random() < 0.5,
            min_runtime_s=0,
            cool_down_s=random.choice((0, 20)),
            consolidation=random.choice(list(Consolidation)),
        )
    )
    asked = [_choosy(random, work) for work in works(random, nodes, 40)]
    grown.turns = sorted(random.randrange(asked[-1].arrives_us + 60 * US) for _ in range(8))
    return grown, asked


def _bounded(random: Random, queue: Queue, capacity: int) -> Queue:
    """The queue, perhaps with bounds of one type instead of those over all, or beside them."""
    if random.random() < 0.4:
        return queue
    limit, floor = random.randrange(capacity), random.choice((None, random.randrange(capacity)))
    of_type = Bounds(gpu_type=random.choice(TYPES), limit=limit, floor=floor)
    return replace(queue, bounds=(*random.choice(((), queue.bounds)), of_type))


def _choosy(random: Random, work: Work) -> Work:
    spec = work.spec
    types = random.choice(((), ("a",), ("b",), ("a", "b"), ("b", "a")))
    spec = replace(spec, gpu_types=types, labels=random.choice(({}, {}, {}, {"disk": "fast"})))
    spec = replace(spec, tolerates=random.choice(((), (), ("odd",))))
    if random.random() < 0.3:
        spec = replace(spec, topology=Topology(within=random.choice(list(Domain)), required=random.random() < 0.5))
    return work._replace(spec=spec)
