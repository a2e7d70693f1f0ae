"""Nodes that failed a job: it keeps away from them for a while, where others could hold it."""

from datetime import timedelta

import pytest

from events.base import JobId, NodeId
from events.fleet import NodeLost
from events.job import HoldCode, JobPlaced, JobRequeued
from events.node import EndReason
from events.operator import NodeCordoned
from projections.cluster.avoid import AVOID_MAX, avoiding, forgiven
from projections.cluster.explain.why import explain
from projections.cluster.snapshot import dump, load
from tests.clusters import World

J = JobId("j")


def failed(nodes: dict[str, int], gpus: int = 8, **policy: int) -> World:
    """A job could not start on n1, and waits out its back-off of 1 s."""
    world = World(nodes)
    world.policy(**{"keep_place_s": 0, **policy})
    world.submit("j", gpus)
    world.rounds()
    assert world.placed["j"][0][0] == "n1"
    world.end(J, "n1", code=127, reason=EndReason.START_FAILED)
    world.rounds()
    world.release(J)
    [requeued] = [event for event in world.rounds() if isinstance(event, JobRequeued)]
    assert requeued.avoid == ("n1",)
    return world


def test_it_starts_elsewhere() -> None:
    """Though the node that failed it is the first by name."""
    world = failed({"n1": 8, "n2": 8})
    world.wait(1)
    world.rounds()
    assert world.placed["j"] == [("n2", 8)]
    world.assert_sound()


def test_it_waits_for_a_node_that_is_in_use_and_why_says_for_what() -> None:
    """Others could hold it, free or not."""
    world = failed({"n1": 8, "n2": 8})
    world.put(world.submit("other", 8), n2=8)
    world.wait(1)
    world.rounds()
    assert world.cluster.jobs[J].hold in {HoldCode.NO_ROOM, HoldCode.PROMISED}
    message = explain(world.cluster, J, at=world.at).message
    assert message.endswith("keeps away from n1, which failed it"), message

    world.finish(JobId("other"))
    world.rounds()
    assert world.placed["j"] == [("n2", 8)]


@pytest.mark.parametrize("leaves", ["smaller", "cordoned", "lost"])
def test_where_only_that_node_could_hold_it_it_goes_back(leaves: str) -> None:
    """Nodes that are too small, closed or gone are no others."""
    world = failed({"n1": 8, "n2": 4 if leaves == "smaller" else 8})
    if leaves == "cordoned":
        world.add(NodeCordoned(at=world.at, node_id=NodeId("n2"), by="ops"))
    if leaves == "lost":
        epoch = world.cluster.nodes[NodeId("n2")].epoch
        world.add(NodeLost(at=world.at, node_id=NodeId("n2"), node_epoch=epoch, silent_s=100))
    world.wait(1)
    world.rounds()
    assert world.cluster.jobs[J].attempt == 2
    assert world.placed["j"] == [("n1", 8)]


def test_others_of_its_shape_do_not_keep_away() -> None:
    """What failed one may well hold another."""
    world = failed({"n1": 8, "n2": 8})
    world.submit("like it", 8)
    world.wait(1)
    world.rounds()
    assert world.placed["like it"] == [("n1", 8)]
    assert world.placed["j"] == [("n2", 8)]


def test_it_is_forgiven_after_a_while_without_a_word_in_the_log() -> None:
    """The time of the policy is over: it goes there in the next round, and `why` does not speak of it."""
    world = failed({"n1": 8, "n2": 8}, avoid_s=60, promises=0)
    world.put(world.submit("other", 8), n2=8)
    world.wait(1)
    world.rounds()
    before = dump(world.cluster)
    world.wait(60)
    assert explain(world.cluster, J, at=world.at).code == HoldCode.NOT_EVALUATED
    assert dump(world.cluster) == before  # asking changes nothing
    [placed] = [event for event in world.rounds() if isinstance(event, JobPlaced)]
    assert [share.node_id for share in placed.shares] == ["n1"]
    assert not world.cluster.avoiding.count(None)


def test_zero_seconds_is_never() -> None:
    """The policy may say that no node is avoided."""
    world = failed({"n1": 8, "n2": 8}, avoid_s=0)
    world.wait(1)
    world.rounds()
    assert world.cluster.jobs[J].attempt == 2
    assert world.placed["j"] == [("n1", 8)]


def test_the_newest_are_remembered() -> None:
    """So many at the most; one that fails it again counts from then on."""
    world = World({"n1": 8})
    world.submit("j", 8)
    job = world.cluster.jobs[J]
    for number in range(AVOID_MAX + 3):
        job = avoiding(world.cluster, job, (NodeId(f"n{number:02d}"),), world.at + timedelta(seconds=number))
    assert list(job.avoid) == [f"n{number:02d}" for number in range(3, AVOID_MAX + 3)]
    job = avoiding(world.cluster, job, (NodeId("n03"),), world.at + timedelta(seconds=100))
    assert list(job.avoid)[-1] == "n03"
    assert job.shape.avoid == tuple(sorted(job.avoid))


def test_a_snapshot_has_it() -> None:
    """Another process keeps away as well."""
    world = failed({"n1": 8, "n2": 8})
    loaded = load(dump(world.cluster), log_id="test")
    assert loaded is not None
    assert loaded.jobs[J] == world.cluster.jobs[J]
    later = world.at + timedelta(seconds=world.cluster.policy.avoid_s)
    assert forgiven(loaded, world.at) is loaded
    assert not forgiven(loaded, later).jobs[J].avoid
    assert loaded.jobs[J].avoid
