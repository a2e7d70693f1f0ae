"""What is set aside or promised for a job, as the log says it."""

from datetime import timedelta

import pytest

from events.base import NodeId, SlotMask
from events.job import (
    EarmarkCause,
    EarmarkDropped,
    GpusEarmarked,
    JobAdmitted,
    NodeShare,
    PromiseCause,
    PromiseMoved,
    StartPromised,
)
from projections.cluster.evolve_asides import EARLIEST, LATEST
from tests.clusters import World

N1 = NodeId("n1")


def test_what_is_set_aside_is_nobody_elses_until_it_is_dropped() -> None:
    """And whoever was to end for it has that as evidence."""
    world = World({"n1": 8})
    runs = world.put(world.submit("runs", 4), n1=4)
    job = world.submit("job", 8)
    ids = {"at": world.at, "team": world.cluster.jobs[job].team, "job_id": job}
    node = world.cluster.nodes[N1]
    share = NodeShare(N1, node.epoch, SlotMask(255))
    world.add(
        JobAdmitted(**ids),  # type: ignore[arg-type]
        GpusEarmarked(**ids, shares=(share,), victims=(world.cluster.runs[f"{runs}-1"].run_id,)),  # type: ignore[arg-type, index]
    )
    assert world.cluster.nodes[N1].spare == 0
    run = world.run(runs)
    assert run is not None
    assert (run.evicted_for, len(run.evidence), world.cluster.jobs[runs].evictions) == (job, 1, 1)
    world.add(EarmarkDropped(**ids, cause=EarmarkCause.NODE))  # type: ignore[arg-type]
    assert world.cluster.nodes[N1].spare.bit_count() == 4
    assert not world.cluster.unread


@pytest.mark.parametrize("years", [-1_500, 5_000])
def test_a_start_that_no_clock_shows_is_reckoned_with_as_a_near_one(years: int) -> None:
    """Runtimes are added to it and taken from it."""
    world = World({"n1": 8})
    job = world.submit("job", 8)
    ids = {"at": world.at, "team": world.cluster.jobs[job].team, "job_id": job}
    shares = (NodeShare(N1, world.cluster.nodes[N1].epoch, SlotMask(255)),)
    far = world.at + timedelta(days=years * 366)
    world.add(
        JobAdmitted(**ids),  # type: ignore[arg-type]
        StartPromised(**ids, shares=shares, start=world.at),  # type: ignore[arg-type]
        PromiseMoved(**ids, shares=shares, start=far, cause=PromiseCause.OVERRUN),  # type: ignore[arg-type]
    )
    promise = world.cluster.promises[job]
    assert promise.start in (EARLIEST, LATEST)
    assert (promise.first, promise.moves) == (world.at, 1)
