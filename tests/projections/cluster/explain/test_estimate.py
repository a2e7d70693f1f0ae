"""When a job may start: from what runs have declared, by the rules of placement, and no better than is known."""

from datetime import timedelta
from typing import Any

import pytest

from events.ask import Basis, Why
from events.base import JobId
from events.job import Domain, HoldCode, JobAdmitted, Topology
from projections.cluster.explain import estimate
from projections.cluster.explain.why import explain
from tests.clusters import World


def waiting(world: World, gpus: int, **spec: Any) -> Why:
    """A job that may run and finds no room."""
    job = world.submit("job", gpus, **spec)
    world.add(JobAdmitted(at=world.at, team=world.cluster.jobs[job].team, job_id=job))
    return explain(world.cluster, job, at=world.at)


def running(world: World, node: str, gpus: int, *, ends_s: int = 0) -> JobId:
    """A run that has these GPUs for so long, its grace counted in; 0: it does not say."""
    number = len(world.cluster.jobs)
    job = world.submit(f"r{number}", gpus, max_runtime_s=ends_s - 10 if ends_s else 0)
    return world.put(job, **{node: gpus})


def two_nodes() -> World:
    """n1 is free after 100 s in part, after 300 s whole; n2 after 200 s whole."""
    world = World({"n1": 8, "n2": 8})
    running(world, "n1", 4, ends_s=100)
    running(world, "n1", 4, ends_s=300)
    running(world, "n2", 8, ends_s=200)
    return world


@pytest.mark.parametrize(
    ("gpus", "spec", "in_s"),
    [
        (1, {}, 100),
        (4, {}, 100),
        (5, {}, 200),
        (8, {}, 200),
        (12, {}, 200),  # a whole node, and the rest on the other
        (16, {}, 300),
        (16, {"min_gpus": 8}, 200),
        (8, {"nodes": 2, "gpus_per_node": 4}, 200),
        (16, {"nodes": 2, "gpus_per_node": 8}, 300),
    ],
)
def test_a_start_is_when_enough_has_ended(gpus: int, spec: dict[str, Any], in_s: int) -> None:
    """By the rules of placement: whole nodes, a remainder, so many on each."""
    world = two_nodes()
    why = waiting(world, gpus, **spec)
    assert (why.basis, why.estimated_start) == (Basis.DECLARED_ENDS, world.at + timedelta(seconds=in_s))
    assert why.estimate == "not before that: enough runs end by then, as declared"


def test_a_gang_that_stays_within_a_rack_waits_for_the_first_rack() -> None:
    """And one whose nodes are not labelled for one that is."""
    world = World()
    for number, rack in enumerate(("r1", "r1", "r2", "r2")):
        world.join(f"n{number}", 8, labels={"rack": rack, "fabric": rack})
        running(world, f"n{number}", 8, ends_s=100 * (number + 1))
    within = waiting(world, 16, topology=Topology(within=Domain.RACK))
    assert within.estimated_start == world.at + timedelta(seconds=200)
    world.submit("other", 16, labels={"fabric": "r2"})
    world.add(JobAdmitted(at=world.at, team=world.cluster.jobs[JobId("other")].team, job_id=JobId("other")))
    labelled = explain(world.cluster, JobId("other"), at=world.at)
    assert labelled.estimated_start == world.at + timedelta(seconds=400)
    assert "unless the job before it takes what they leave" in labelled.estimate


def test_a_run_that_has_not_said_how_long_it_takes_leaves_it_unknown() -> None:
    """With how many they are; the others may be enough for a smaller one."""
    world = World({"n1": 8, "n2": 8})
    running(world, "n1", 8)
    running(world, "n2", 8, ends_s=100)
    assert waiting(world, 8).basis == Basis.DECLARED_ENDS
    world.submit("large", 16)
    world.add(JobAdmitted(at=world.at, team=world.cluster.jobs[JobId("large")].team, job_id=JobId("large")))
    large = explain(world.cluster, JobId("large"), at=world.at)
    assert (large.code, large.basis, large.estimated_start) == (HoldCode.NO_ROOM, Basis.UNKNOWN, None)
    assert large.estimate.startswith("1 of the runs on the nodes it could use")


def test_a_run_that_should_have_ended_may_end_any_moment() -> None:
    """An estimate is never in the past."""
    world = World({"n1": 8})
    running(world, "n1", 8, ends_s=100)
    world.wait(500)
    assert waiting(world, 8).estimated_start == world.at


def test_only_so_many_nodes_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a large cluster an estimate stays cheap, and says where it stopped."""
    monkeypatch.setattr(estimate, "NODES_MAX", 1)
    world = two_nodes()
    assert waiting(world, 8).estimated_start == world.at + timedelta(seconds=300)
    world.submit("large", 16)
    world.add(JobAdmitted(at=world.at, team=world.cluster.jobs[JobId("large")].team, job_id=JobId("large")))
    assert explain(world.cluster, JobId("large"), at=world.at).estimate == "the first 1 nodes never hold it"
