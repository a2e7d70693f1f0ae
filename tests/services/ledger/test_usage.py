"""Usage records: one for each hour of the clock, and the rest at the end; they add up to what is charged."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.base import NodeId
from events.credit import CreditCommitted, UsageRecorded, UsageUncovered
from events.job import OnLost, StopCause
from events.node import EndReason
from events.period import PeriodClosed
from events.policy import Bearer, Waived
from services.control.round import decide_all
from services.ledger import usage
from tests.clusters import names
from tests.purses import CREDIT, GPU_HOUR_US, Purse
from tests.services.ledger.test_settle import save

MINUTE_US = 60_000_000


def records(world: Purse) -> list[UsageRecorded]:
    """All usage records."""
    return [entry for entry in world.entries() if isinstance(entry, UsageRecorded)]


def hours(world: Purse) -> list[tuple[str, str, float, float]]:
    """From when to when they are, on the clock; how many GPU-minutes they say, and how many credits."""
    return [
        (f"{e.began:%H:%M}", f"{e.ended:%H:%M}", e.gpu_us / MINUTE_US, e.amount_micro / CREDIT) for e in records(world)
    ]


def finish(world: Purse, job_id: str) -> None:
    """The job's ranks run to their end and its GPUs come back."""
    (run,) = (run for run in world.cluster.runs.values() if run.job_id == job_id)
    world.end(run.job_id)
    world.release(run.job_id)
    world.round()
    world.assert_sound()


def test_each_hour_of_the_clock_is_recorded_once_it_is_over() -> None:
    """Ten seconds later: the server's clock may be behind ours."""
    world = Purse({"n1": 2})
    world.until("2026-01-01T10:15")
    job = world.paid("job", on={"n1": 2}, max_runtime_s=36_000)
    world.until("2026-01-01T11:00:09")
    world.round()
    assert hours(world) == []
    world.until("2026-01-01T11:00:10")
    world.round()
    assert hours(world) == [("10:15", "11:00", 90, 1.5)]
    world.round()
    assert len(records(world)) == 1
    world.until("2026-01-01T12:10")
    world.round()
    world.until("2026-01-01T12:30")
    finish(world, job)

    assert hours(world) == [("10:15", "11:00", 90, 1.5), ("11:00", "12:00", 120, 2.0), ("12:00", "12:30", 60, 1.0)]
    assert [e.usage_id for e in records(world)] == ["job-1-1", "job-1-2", "job-1-3"]
    assert [e.at for e in records(world)] == [e.began for e in records(world)]
    assert not any(e.corrects for e in records(world))


def test_hours_that_no_round_saw_are_recorded_one_by_one() -> None:
    """The control plane was away for three hours, and the run goes on."""
    world = Purse({"n1": 1})
    world.paid("job", on={"n1": 1}, max_runtime_s=36_000)
    world.wait(3 * 3_600 + 60)
    for _ in range(5):
        world.round()

    assert [(began, ended) for began, ended, *_ in hours(world)] == [
        ("00:00", "01:00"),
        ("01:00", "02:00"),
        ("02:00", "03:00"),
    ]


def test_hours_that_no_round_saw_of_a_run_that_is_over_are_recorded_when_it_is_settled() -> None:
    """As it was then, whatever changed since: one of its two nodes gave its GPU back early."""
    world = Purse({"n1": 1, "n2": 1})
    job = world.paid("job", on={"n1": 1, "n2": 1}, max_runtime_s=36_000)
    world.wait(5_400)
    world.end(job, "n2")
    world.release(job, "n2")
    world.wait(3_600)
    finish(world, job)

    assert hours(world) == [
        ("00:00", "01:00", 120, 2.0),
        ("01:00", "02:00", 90, 1.5),
        ("02:00", "02:30", 30, 0.5),
    ]


def test_what_was_recorded_and_is_waived_is_taken_back_by_a_record_of_now() -> None:
    """All of it, where the policy waives all; the earlier records stay."""
    world = Purse({"n1": 1}, waived_preempted=Waived.ALL)
    job = world.paid("job", on={"n1": 1}, max_runtime_s=36_000)
    world.wait(5_400)
    world.round()
    world.stopped(job, StopCause.PREEMPTED)
    world.end(job, reason=EndReason.STOPPED)
    world.release(job)
    world.round()

    (hour, correction) = records(world)
    assert (hour.gpu_us, hour.amount_micro) == (GPU_HOUR_US, CREDIT)
    assert (correction.gpu_us, correction.amount_micro) == (-GPU_HOUR_US, -CREDIT)
    assert (correction.corrects, correction.cause, correction.at) == (True, "preempted", world.at)
    assert (correction.began, correction.ended) == (hour.began, hour.ended)
    world.assert_sound()


def test_hours_that_are_waived_before_they_are_recorded_are_not_taken_back() -> None:
    """They say from the beginning what is charged: half of the first, and of the others nothing."""
    world = Purse({"n1": 1})
    job = world.paid("job", on={"n1": 1}, max_runtime_s=36_000)
    world.wait(1_800)
    save(world, job)
    world.wait(3 * 3_600)
    world.stopped(job, StopCause.PREEMPTED)
    world.end(job, reason=EndReason.STOPPED)
    world.release(job)
    world.round()

    assert hours(world) == [("00:00", "01:00", 30, 0.5)]
    world.assert_sound()


def test_an_hour_costs_no_more_than_what_a_smaller_gang_keeps() -> None:
    """What is too much is given back in the same round; the run goes on beyond what it declared."""
    world = Purse({"n1": 2}, uncovered=Bearer.PROVIDER)
    job = world.paid("job", on={"n1": 2}, gpus=8, min_gpus=2, max_runtime_s=900)
    world.wait(3_700)
    world.round()
    finish(world, job)

    assert [e.amount_micro for e in records(world)] == [CREDIT // 2, 0]
    assert not any(e.corrects for e in records(world))


def test_a_node_that_is_lost_later_than_it_was_heard_is_corrected() -> None:
    """It was heard last at 11:59:30, the hour was recorded at 12:00:10, and the loss is known at 12:01."""
    world = Purse({"n1": 1}, waived_failed=Waived.NONE)
    world.until("2026-01-01T11:00")
    world.paid("job", on={"n1": 1}, max_runtime_s=36_000)
    world.until("2026-01-01T12:00:10")
    world.round()
    world.until("2026-01-01T12:01")
    world.round({NodeId("n1"): 90.0})
    world.round({NodeId("n1"): 90.0})

    hour, correction = records(world)
    assert hour.gpu_us == GPU_HOUR_US
    assert correction.gpu_us == -30_000_000
    assert correction.cause == "interrupted"
    world.assert_sound()


@pytest.mark.parametrize("bearer", list(Bearer))
def test_records_add_up_to_what_is_committed_and_what_the_account_bears(bearer: Bearer) -> None:
    """A run that used an hour more than was reserved."""
    world = Purse({"n1": 1}, uncovered=bearer)
    job = world.paid("job", on={"n1": 1}, max_runtime_s=1_800)
    world.wait(5_400)
    world.round()
    finish(world, job)
    uncovered = sum(e.amount_micro for e in world.entries() if isinstance(e, UsageUncovered))

    assert uncovered == CREDIT
    assert sum(e.gpu_us for e in records(world)) == GPU_HOUR_US * 3 // 2
    assert sum(e.amount_micro for e in records(world)) == CREDIT // 2 + (uncovered if bearer is Bearer.ACCOUNT else 0)


def test_a_policy_that_changes_who_bears_it_leaves_sums_right() -> None:
    """Recorded as the provider's at the hour, charged to the account at the end, which is the same instant."""
    world = Purse({"n1": 1}, uncovered=Bearer.PROVIDER)
    job = world.paid("job", on={"n1": 1}, max_runtime_s=1_800)
    world.wait(3_600)
    world.end(job)
    world.release(job)
    hour = world.at
    world.policy(uncovered=Bearer.ACCOUNT)
    world.wait(60)
    world.round()

    assert sum(e.amount_micro for e in records(world)) == CREDIT
    assert records(world)[-1].ended == hour


def test_hours_never_take_back_what_earlier_ones_said() -> None:
    """A run waits for its lost node to be clean; by what is known now it had used less than was recorded."""
    world = Purse({"n1": 1, "n2": 1}, waived_failed=Waived.NONE)
    world.until("2026-01-01T11:00")
    job = world.paid("job", on={"n1": 1, "n2": 1}, max_runtime_s=36_000, on_lost=OnLost.WAIT)
    world.until("2026-01-01T12:00:12")
    world.end(job, "n1")
    world.until("2026-01-01T12:00:13")
    world.round()
    assert records(world)[-1].gpu_us == 2 * GPU_HOUR_US
    world.release(job, "n1")
    world.until("2026-01-01T12:01")
    world.round({NodeId("n2"): 90.0})
    world.until("2026-01-01T14:05")
    for _ in range(3):
        world.round({NodeId("n2"): 90.0})
    assert [e.gpu_us for e in records(world)[1:]] == [0, 0]
    world.join("n2", 1)
    world.round()

    assert records(world)[-1].corrects
    assert sum(e.gpu_us for e in records(world)) == 2 * GPU_HOUR_US + 13_000_000 - 30_000_000
    world.assert_sound()


def test_a_policy_that_changes_who_bears_it_leaves_sums_right_also_of_a_run_that_ended_before() -> None:
    """It was heard last before the hour that is recorded: what is charged besides is of no time."""
    world = Purse({"n1": 1}, uncovered=Bearer.PROVIDER, waived_failed=Waived.NONE)
    world.paid("job", on={"n1": 1}, max_runtime_s=1_800)
    world.wait(3_612)
    world.round()
    world.policy(uncovered=Bearer.ACCOUNT, waived_failed=Waived.NONE)
    world.wait(48)
    world.round({NodeId("n1"): 90.0})
    world.round({NodeId("n1"): 90.0})
    borne = sum(e.amount_micro for e in world.entries() if isinstance(e, UsageUncovered))

    assert sum(e.amount_micro for e in records(world)) == CREDIT // 2 + borne
    assert borne == CREDIT // 2 - 8_333
    assert all(e.began <= e.ended for e in records(world))


def test_a_round_records_so_many_and_the_next_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs whose hour is over; and the hours of one that is over."""
    monkeypatch.setattr(usage, "RECORDED_MAX", 2)
    world = Purse({"n1": 4})
    jobs = [world.paid(f"job-{number}", on={"n1": 1}, max_runtime_s=360_000) for number in range(3)]
    world.wait(3_700)
    counts = []
    for _ in range(3):
        before = len(records(world))
        world.round()
        counts.append(len(records(world)) - before)
    assert counts == [2, 1, 0]
    world.wait(6 * 3_600)
    world.end(jobs[0])
    world.release(jobs[0])
    for _ in range(10):
        world.round()
    assert [e.usage_id for e in records(world) if e.run_id == "job-0-1"][-1] == "job-0-1-8"
    assert [e.run_id for e in world.entries() if isinstance(e, CreditCommitted)] == ["job-0-1"]
    world.assert_sound()


def test_use_in_a_month_that_is_closed_is_of_this_one() -> None:
    """The server's clock ran behind: the run began in a month that was closed a moment ago."""
    world = Purse({"n1": 1})
    world.until("2026-02-01T00:01")
    world.accounts(*world.cluster.credits.payers.by_name.values(), closed_through="2026-01")
    world.round()
    assert world.cluster.credits.month_closed == "2026-01"
    world.until("2026-01-31T23:59")
    job = world.paid("job", on={"n1": 1}, max_runtime_s=3_600)
    world.until("2026-02-01T00:05")
    world.end(job)
    world.release(job)
    world.round()

    assert [f"{e.began:%m-%d}" for e in records(world)] == ["01-31", "02-01"]
    assert [f"{e.at:%m-%d}" for e in records(world)] == ["02-01", "02-01"]


def test_use_in_a_month_that_the_next_leader_thinks_of_as_now_is_of_the_month_after() -> None:
    """The one that closed it had a clock that ran ahead."""
    world = Purse({"n1": 1}, waived_preempted=Waived.ALL)
    world.until("2026-01-31T22:10")
    job = world.paid("job", on={"n1": 1}, max_runtime_s=36_000)
    world.until("2026-01-31T23:05")
    world.round()
    world.add(PeriodClosed(at=world.at, month="2026-01"))
    world.stopped(job, StopCause.PREEMPTED)
    world.end(job, reason=EndReason.STOPPED)
    world.release(job)
    world.round()

    assert [(f"{e.at:%m-%d %H:%M}", e.corrects) for e in records(world)] == [
        ("01-31 22:10", False),
        ("02-01 00:00", True),
    ]


@given(
    st.lists(st.integers(1, 5_000), min_size=1, max_size=6),
    st.integers(1, 3_000_000_000),
    st.sampled_from((0, 1, 60, 7_200)),
)
def test_however_many_records_there_are_they_add_up_to_one_rounding(waits: list[int], price: int, step_s: int) -> None:
    """Of the whole, half to even; each of them at least 0."""
    world = Purse({"n1": 3}, granted=1_000_000)
    world.prices(h100=price, step_s=step_s)
    job = world.paid("job", on={"n1": 3}, max_runtime_s=100_000)
    for wait in waits:
        world.wait(wait)
        world.round()
    finish(world, job)
    committed = next(e for e in world.entries() if isinstance(e, CreditCommitted))

    assert sum(e.amount_micro for e in records(world)) == committed.amount_micro
    assert sum(e.gpu_us for e in records(world)) == committed.gpu_us
    assert min(e.amount_micro for e in records(world)) >= 0
    assert committed.ended - committed.began == timedelta(seconds=sum(waits))
    assert isinstance(committed.began, datetime)


def test_hours_that_a_node_was_silent_in_add_nothing_to_what_was_recorded_as_far_as_it_was_covered() -> None:
    """The first hour was covered in part; then it is, and by then the node is lost that was heard last in it."""
    world = Purse({"n1": 2}, instalment_s=60, waived_failed=Waived.NONE)
    world.paid("job", on={"n1": 2}, covers_s=60)
    world.round()
    world.wait(2 * 3_600 + 20)
    assert "UsageRecorded" in names(world.round())
    world.round({NodeId("n1"): 5_400.0})
    world.rounds()
    world.join("n1", 2)
    world.rounds()

    assert not world.cluster.credits.bills
    assert sum(record.gpu_us for record in records(world)) == 2 * 1_820 * 1_000_000
    world.assert_sound()


@pytest.mark.parametrize("meanwhile", ["time passes", "it ends", "it joins anew"])
def test_the_round_that_loses_a_node_may_record_an_hour_by_its_own_clock(meanwhile: str) -> None:
    """The log stores it later, or after what the node says of itself; what is missing then is in the next record."""
    world = Purse({"n1": 2}, waived_failed=Waived.NONE)
    job = world.paid("job", on={"n1": 2}, max_runtime_s=7_200)
    world.round()
    world.wait(3_611)
    decided = decide_all(world.cluster, world.tick({NodeId("n1"): 100.0}))
    assert {"NodeLost", "UsageRecorded"} <= set(names(decided))
    world.wait(5)
    if meanwhile == "it ends":
        world.end(job)
        world.release(job)
    elif meanwhile == "it joins anew":
        world.join("n1", 2)
    world.add(*decided)
    world.rounds()
    world.join("n1", 2)
    world.rounds()

    used_s = 3_516 if meanwhile == "time passes" else 3_616
    assert sum(record.gpu_us for record in records(world)) == 2 * used_s * 1_000_000
    assert not [bill for bill in world.cluster.credits.bills.values() if bill.run_id == "job-1"]
    world.assert_sound()
