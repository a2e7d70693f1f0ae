"""How the use of a run is counted, held to a count GPU by GPU."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.base import JobId, NodeEpoch, NodeId, Position, RunId, SlotMask, TeamId
from events.job import NodeShare
from events.node import CheckpointSaved, GpusReleased
from events.policy import ChargeFrom
from projections.cluster.credit.book import Bill
from projections.cluster.credit.meter import leaving, next_hour, used_by, used_us
from projections.cluster.credit.price import stepped_us
from projections.cluster.job import Run
from tests.purses import GPU_HOUR_US, Purse, a_bill

BEGIN = datetime(2026, 1, 1, 10, 20, tzinfo=UTC)
US = timedelta(microseconds=1)


def a_run(gpus: int, **said: Any) -> Run:
    """A run that counts from the beginning."""
    return Run(
        run_id=RunId("job-1"),
        job_id=JobId("job"),
        attempt=1,
        shares=(NodeShare(NodeId("n1"), NodeEpoch(1), SlotMask((1 << gpus) - 1)),),
        placed_at=BEGIN,
        placed=Position(1),
        gpus=gpus,
        gpu_type="h100",
        team=TeamId("t"),
        rank=2,
        **{"metered_from": BEGIN, "metering": gpus, **said},
    )


def counted(bill: Bill, gone: list[datetime], gpus: int, at: datetime) -> int:
    """What the run had used at a time: of each GPU that is gone up to when it was, of the others up to then."""
    ends = [min(at, max(left, BEGIN)) for left in gone] + [at] * (gpus - len(gone))
    return sum(stepped_us((end - BEGIN) // US, bill.step_s) for end in ends)


@given(
    st.lists(st.tuples(st.integers(0, 5 * 3_600), st.integers(0, 5_400)), max_size=4),
    st.sampled_from((0, 1, 60, 5_000)),
)
def test_each_hour_has_what_was_used_by_then_however_gpus_left(leaves: list[tuple[int, int]], step_s: int) -> None:
    """Released when that was said, or lost and heard last a while before: also before an hour that is marked already."""
    bill = a_bill(gpus=4, step_s=step_s, counts_from=BEGIN)
    run, gone = a_run(4), []
    for after_s, before_s in sorted(leaves):
        until = BEGIN + timedelta(seconds=after_s - before_s)
        run = leaving(run, bill, 1, until)
        gone.append(until)
    last = BEGIN + timedelta(seconds=max((after for after, _ in leaves), default=0))
    if run.metering:
        assert used_us(run, bill, last) == counted(bill, gone, 4, last)
        run = leaving(run, bill, run.metering, last)
        gone += [last] * (4 - len(gone))

    assert run.metered_us == counted(bill, gone, 4, last)
    assert run.metering == 0
    assert run.metered_until == max(BEGIN, *gone)
    hour = next_hour(BEGIN)
    while hour <= last:
        assert used_by(run, bill, hour) == counted(bill, gone, 4, hour)
        hour += timedelta(hours=1)


def test_hours_that_are_marked_lose_what_was_lost_before_them() -> None:
    """One GPU is released, and only then the node of the other lost, which was heard last two hours before."""
    bill = a_bill(gpus=2, counts_from=BEGIN)
    run = leaving(a_run(2), bill, 1, BEGIN + timedelta(hours=3))
    run = leaving(run, bill, 1, BEGIN + timedelta(hours=1))

    assert run.metered_us == 4 * GPU_HOUR_US
    assert [(f"{mark.at:%H:%M}", mark.gpu_us * 60 // GPU_HOUR_US) for mark in run.marks] == [
        ("11:00", 2 * 40),
        ("12:00", 60 + 100),
        ("13:00", 60 + 160),
    ]


def test_what_left_before_it_counted_used_nothing() -> None:
    """A GPU given back before the ranks had started."""
    run = leaving(a_run(2, metered_from=None), a_bill(gpus=2), 1, BEGIN)

    assert (run.metering, run.metered_us, run.metered_until) == (1, 0, None)


def test_nothing_leaves_earlier_than_it_counted() -> None:
    """A node that was heard last before the run began there."""
    run = leaving(a_run(2), a_bill(gpus=2, counts_from=BEGIN), 2, BEGIN - timedelta(minutes=1))

    assert (run.metered_us, run.metered_until) == (0, BEGIN)


def test_hours_that_are_recorded_are_marked_no_more() -> None:
    """What a run carries stays small."""
    bill = a_bill(gpus=2, counts_from=BEGIN, recorded_until=datetime(2026, 1, 1, 12, tzinfo=UTC))
    run = leaving(a_run(2), bill, 1, BEGIN + timedelta(hours=3))

    assert [f"{mark.at:%H}" for mark in run.marks] == ["13"]


def test_a_run_that_nobody_pays_for_is_counted_without_marks() -> None:
    """To the microsecond."""
    run = leaving(a_run(2), None, 2, BEGIN + timedelta(hours=3, microseconds=1))

    assert (run.marks, run.metered_us) == ((), 2 * (3 * GPU_HOUR_US + 1))


def test_hours_are_those_of_utc() -> None:
    """Whatever the zone of the time."""
    zone = datetime.fromisoformat("2026-01-01T12:50:00+05:30")

    assert next_hour(zone) == datetime(2026, 1, 1, 8, tzinfo=UTC)
    assert next_hour(datetime(2026, 1, 1, 8, tzinfo=UTC)) == datetime(2026, 1, 1, 9, tzinfo=UTC)


@pytest.mark.parametrize("since", list(ChargeFrom))
def test_a_run_counts_from_its_placing_or_its_start(since: ChargeFrom) -> None:
    """As the policy was when it was reserved; and until its last GPU came back, in parts here, one report twice."""
    world = Purse({"n1": 2}, charge_from=since)
    job = world.put(world.reserve(world.submit("job", 2)), n1=2)
    world.wait(60)
    world.start(job)
    world.wait(3_600)
    world.end(job)
    (run,) = world.cluster.runs.values()
    ids: dict[str, Any] = {"at": world.at, "node_id": NodeId("n1"), "node_epoch": run.shares[0].node_epoch}
    for slots in (1, 1, 3):
        world.add(GpusReleased(**ids, run_id=run.run_id, slots=SlotMask(slots)))
        world.wait(60)
    (run,) = world.cluster.runs.values()

    assert run.metered_us == 2 * GPU_HOUR_US + 120_000_000 + (since is ChargeFrom.PLACED) * 120_000_000
    assert (run.metering, run.metered_until) == (0, world.at - timedelta(seconds=60))


def test_a_save_that_is_told_late_or_again_is_no_later_save() -> None:
    """Another node of the gang is behind with its word."""
    world = Purse({"n1": 1, "n2": 1})
    job = world.put(world.reserve(world.submit("job", 2)), n1=1, n2=1)
    world.start(job)
    saved: list[int] = []
    for node, number in (("n1", 4), ("n2", 3), ("n1", 4), ("n2", 5)):
        world.wait(60)
        run = world.run(job)
        assert run is not None
        share = next(share for share in run.shares if share.node_id == node)
        ids: dict[str, Any] = {"node_id": share.node_id, "node_epoch": share.node_epoch, "run_id": run.run_id}
        world.add(CheckpointSaved(at=world.at, **ids, number=number))
        run = world.run(job)
        assert run is not None
        saved.append(run.saved_us // 2_000_000)

    assert saved == [60, 60, 60, 240]


def test_a_node_that_joins_anew_counted_until_it_was_heard_last() -> None:
    """It was suspect: what ran there had ended, nobody knows when."""
    world = Purse({"n1": 2})
    world.put(world.reserve(world.submit("job", 2)), n1=2)
    (run,) = world.cluster.runs.values()
    world.start(run.job_id)
    world.wait(100)
    world.round({NodeId("n1"): 40.0})
    world.wait(20)
    world.join("n1", 2)
    (run,) = world.cluster.runs.values()

    assert run.metered_us == 2 * 60_000_000


def test_a_node_that_is_heard_again_counted_all_the_time() -> None:
    """It was only silent."""
    world = Purse({"n1": 2})
    world.put(world.reserve(world.submit("job", 2)), n1=2)
    (run,) = world.cluster.runs.values()
    world.start(run.job_id)
    world.wait(100)
    world.round({NodeId("n1"): 40.0})
    world.round()
    world.wait(20)
    world.join("n1", 2)
    (run,) = world.cluster.runs.values()

    assert run.metered_us == 2 * 120_000_000
