"""Which nodes a stretch touches: whatever changes in what a node should run, its stretch says so."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from events.base import START, NodeEpoch, NodeId, Position, RunId, SlotMask
from events.desired import Desired
from events.fleet import NodeLost
from events.node import GpusReleased
from projections.cluster.desired import desired
from projections.cluster.evolve import evolve
from projections.cluster.state import Cluster
from services.dispatcher.touched import touched
from tests.clusters import World
from tests.histories import History, histories


def told(cluster: Cluster) -> dict[NodeId, Desired]:
    """What every node should run, whenever it is asked; how long it is waited for has a test of its own."""
    return {node_id: replace(desired(cluster, node_id), as_of=START, waiting=None) for node_id in cluster.nodes}


@given(histories(), st.data())
def test_every_node_whose_desired_state_changes_is_touched(grown: History, data: st.DataObject) -> None:
    """Over random histories cut into random stretches; nodes that join begin with a touch."""
    cluster = Cluster()
    before: dict[NodeId, Desired] = {}
    done = 0
    while done < len(grown.records):
        stretch = tuple(grown.records[done : done + data.draw(st.integers(1, 40))])
        done += len(stretch)
        for recorded in stretch:
            cluster = evolve(cluster, recorded)
        after = told(cluster)
        changed = {node_id for node_id in after if after[node_id] != before.get(node_id)}
        assert changed <= set(touched(cluster, stretch))
        before = after


def test_what_changes_nothing_for_an_agent_touches_nothing() -> None:
    """Submissions, admissions, reports that shares started: most of a log."""
    world = World({"n1": 1})
    seen = len(world.records)
    job = world.submit("job", 1)
    world.submit("other", 1)
    assert list(touched(world.cluster, tuple(world.records[seen:]))) == []
    world.rounds()
    seen = len(world.records)
    world.start(job)
    world.rounds()
    assert list(touched(world.cluster, tuple(world.records[seen:]))) == []


def test_a_gang_that_stops_touches_all_its_nodes() -> None:
    """Also when it is over by the end of the stretch: then by its releases."""
    world = World({"n1": 1, "n2": 1, "n3": 1})
    job = world.submit("job", 2, nodes=2, gpus_per_node=1)
    world.rounds()
    world.start(job)
    world.rounds()
    seen = len(world.records)
    world.cancel(job)
    world.rounds()
    assert set(touched(world.cluster, tuple(world.records[seen:]))) == {"n1", "n2"}
    world.end(job)
    world.release(job)
    world.rounds()
    assert not world.cluster.runs
    assert set(touched(world.cluster, tuple(world.records[seen:]))) == {"n1", "n2"}


def test_a_node_that_never_joined_is_not_told_anything() -> None:
    """Its agent may report all the same: there is nothing to tell it."""
    world = World({"n1": 1})
    ids: dict[str, Any] = {"at": world.at, "node_id": NodeId("ghost"), "node_epoch": NodeEpoch(7)}
    seen = len(world.records)
    world.add(GpusReleased(**ids, run_id=RunId("ghost-1"), slots=SlotMask(1)), NodeLost(**ids, silent_s=91.0))

    assert list(touched(world.cluster, tuple(world.records[seen:]))) == []
    assert Position(world.records[-1].position) == world.cluster.position
