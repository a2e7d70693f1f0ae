"""When a node is told anew how long it is waited for: seldom, and never too late for the promise that it makes."""

from typing import Final

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from events.base import JobId, NodeId, Recorded
from events.desired import Waiting
from events.node import CheckpointSaved
from projections.cluster.evolve import evolve
from projections.cluster.patience import waiting
from projections.cluster.state import Cluster
from services.dispatcher.touched import touched
from services.dispatcher.waits import alike, waited_for
from tests.clusters import BEGIN, World
from tests.histories import History, histories

N1: Final = NodeId("n1")
JOB: Final = JobId("job")
HOUR_S: Final = 3_600


class Told:
    """What nodes were told last by a dispatcher that misses nothing, and how often."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.waits: dict[NodeId, Waiting] = {}
        self.writes = 0
        self._done = 0

    def read(self, world: World) -> None:
        """The records that it has not read yet."""
        for recorded in world.records[self._done :]:
            self.take(recorded)
        self._done = len(world.records)

    def take(self, recorded: Recorded) -> None:
        """The next record."""
        self.cluster = evolve(self.cluster, recorded)
        again = (n for n in waited_for(self.cluster, recorded) if not alike(self.waits.get(n), self.now(n)))
        for node_id in {*touched(self.cluster, (recorded,)), *again}:
            self.waits[node_id] = self.now(node_id)
            self.writes += 1

    def now(self, node_id: NodeId) -> Waiting:
        """What the node would be told now."""
        return waiting(self.cluster, self.cluster.nodes[node_id])


@settings(max_examples=30)
@given(histories())
def test_no_node_is_told_of_a_shorter_wait_than_it_has(grown: History) -> None:
    """Else its ranks would end long before anybody gives it up."""
    told = Told()
    for number, recorded in enumerate(grown.records, 1):
        told.take(recorded)
        if number % 9 and number < len(grown.records):
            continue
        for node_id, wait in told.waits.items():
            now = told.now(node_id)
            passed_s = (now.at - wait.at).total_seconds()
            assert wait.after(passed_s) >= now.after(0.0) - 0.01
            assert (wait.least_s, wait.most_s) == (now.least_s, now.most_s)


@pytest.mark.parametrize(("every_s", "writes"), [(600, 6), (60, 60), (10, 72)])
def test_a_run_that_saves_is_told_of_seldom(every_s: int, writes: int) -> None:
    """Writes for one node in an hour: once for each of ten minutes, and not for each of ten seconds."""
    world, told = World({"n1": 8}), Told()
    world.start(world.put(world.submit("job", 8), n1=8))
    world.round()
    told.read(world)
    before = told.writes
    for number in range(HOUR_S // every_s):
        world.wait(every_s)
        node, run = world.cluster.nodes[N1], world.run(JOB)
        assert run is not None
        ids = {"at": world.at, "node_id": N1, "node_epoch": node.epoch, "run_id": run.run_id}
        world.add(CheckpointSaved(**ids, number=number + 1))  # type: ignore[arg-type]
        told.read(world)
        assert alike(told.waits[N1], told.now(N1))
    assert told.writes - before == writes


def test_another_policy_is_told_to_all() -> None:
    """Its bounds bind them."""
    world, told = World({"n1": 8, "n2": 8}), Told()
    told.read(world)
    before = told.writes
    world.policy(lost_after_s=100.0)
    told.read(world)
    world.policy(lost_after_s=100.0, promises=3)
    told.read(world)
    assert told.writes - before == 2
    assert {wait.least_s for wait in told.waits.values()} == {100.0}


def test_waits_are_alike_within_a_quarter_and_only_with_the_same_bounds() -> None:
    """What was told has grown since."""
    wait = Waiting(at=BEGIN, even_s=150.0, least_s=90.0, most_s=900.0)
    assert alike(wait, replace(wait, even_s=200.0))
    assert not alike(wait, replace(wait, even_s=200.1))
    assert alike(wait, replace(wait, at=BEGIN.replace(minute=10), even_s=750.0))
    assert not alike(wait, replace(wait, least_s=91.0))
    assert not alike(None, wait)
    assert alike(None, None)
