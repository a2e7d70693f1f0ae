"""By when a drain wants each run told: at its deadline, or early enough to be gone when maintenance starts."""

from datetime import timedelta

from events.base import JobId, NodeId
from events.job import Checkpoint
from events.operator import MaintenancePlanned, NodeDrainAsked
from projections.cluster.draining import due
from projections.cluster.fitness import LEAD
from tests.clusters import World

N1 = NodeId("n1")
HOUR = timedelta(hours=1)


def running() -> World:
    """A node with a run that needs eleven minutes to end, one that needs none, and one that would need hours."""
    world = World({"n1": 8})
    world.submit("saves", 1, stop_grace_s=60, checkpoint=Checkpoint(grace_s=600))
    world.submit("quick", 1, stop_grace_s=0)
    world.submit("slow", 1, stop_grace_s=9_000)
    world.rounds()
    for name in ("saves", "quick", "slow"):
        world.start(JobId(name))
    world.rounds()
    return world


def told(world: World, after: timedelta) -> list[str]:
    """Who is to be told so long from now."""
    return sorted(run_id.partition("-")[0] for run_id in due(world.cluster, world.at + after))


def test_an_operators_deadline_is_when_runs_are_told() -> None:
    """All of them; without one, nobody ever is."""
    world = running()
    world.add(NodeDrainAsked(at=world.at, node_id=N1, reason="fan"))
    assert told(world, timedelta(days=999)) == []
    world.add(NodeDrainAsked(at=world.at, node_id=N1, reason="fan", deadline=world.at + 2 * HOUR))
    assert told(world, 2 * HOUR - timedelta(seconds=1)) == []
    assert told(world, 2 * HOUR) == ["quick", "saves", "slow"]


def test_before_maintenance_each_has_its_graces_within_the_lead() -> None:
    """So that the node is empty when it starts; what takes longer than the lead is told when that begins."""
    world = running()
    starts = 5 * HOUR
    at = world.at
    world.add(MaintenancePlanned(at=at, node_id=N1, window="w", starts=at + starts, ends=at + 9 * HOUR))
    world.wait((starts - LEAD).total_seconds())
    assert "NodeDrainBegun" in [type(event).__name__ for event in world.round()]
    assert told(world, timedelta()) == ["slow"]
    assert told(world, LEAD - timedelta(seconds=661)) == ["slow"]
    assert told(world, LEAD - timedelta(seconds=660)) == ["saves", "slow"]
    assert told(world, LEAD) == ["quick", "saves", "slow"]
