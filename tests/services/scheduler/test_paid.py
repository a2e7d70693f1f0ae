"""No run starts at a price that is not the one in force: between admission and placement prices may change."""

from datetime import timedelta

import pytest

from events.accounts import Account
from events.base import AccountId, JobId, TeamId
from events.credit import CreditReserved
from events.job import AdmissionWithdrawn, EarmarkDropped, GpusEarmarked, HoldCode, JobAdmitted, JobPlaced, NodeShare
from events.prices import GpuPrice, PriceList, PricesSet
from projections.cluster.audit.audit import audit
from projections.cluster.job import JobState
from services.admission.decide import decide as admission
from services.admission.withdraw import WITHDRAWN_MAX
from services.scheduler.decide import decide as scheduler
from services.scheduler.paid import Paid
from tests.clusters import names
from tests.purses import CREDIT, A, Purse

HOUR_S = 3_600


def full(granted: int = 1_000) -> Purse:
    """A node that one job has all of, and `job`, which is admitted and waits for it."""
    world = Purse({"n1": 8}, granted=granted)
    world.paid("runs", on={"n1": 8}, max_runtime_s=HOUR_S)
    world.submit("job", 8, max_runtime_s=HOUR_S)
    world.round()
    assert world.cluster.jobs[JobId("job")].state is JobState.ADMITTED
    return world


def free(world: Purse) -> None:
    """What runs is over."""
    world.end(JobId("runs"))
    world.release(JobId("runs"))


def priced(world: Purse) -> list[int]:
    """What was reserved for the job, in credits, each time."""
    events = [record.event for record in world.records]
    return [e.amount_micro // CREDIT for e in events if isinstance(e, CreditReserved) and e.job_id == "job"]


def test_a_price_that_changes_before_it_starts_is_the_price_it_starts_at() -> None:
    """It is taken back, what was reserved is refunded, and it comes again at the new price: all that may take a round more."""
    world = full()
    world.prices(h100=3 * CREDIT)
    free(world)
    said = world.round()
    assert "AdmissionWithdrawn" in names(said)
    assert "JobPlaced" not in names(said)
    said = world.round()
    assert [name for name in names(said) if name in ("CreditRefunded", "JobAdmitted", "CreditReserved", "JobPlaced")] == [
        "CreditRefunded", "JobAdmitted", "CreditReserved", "JobPlaced",
    ]  # fmt: skip
    assert priced(world) == [8, 24]
    world.assert_sound()


def test_a_list_that_comes_into_force_is_a_change_of_price() -> None:
    """At its moment, without another document."""
    world = Purse({"n1": 8})
    world.prices(h100=CREDIT, effective_from=world.at + timedelta(seconds=60))
    world.wait(60)
    job = world.submit("job", 8, max_runtime_s=HOUR_S)
    world.round()
    assert world.cluster.jobs[job].state is JobState.PLACED
    world.assert_sound()


def test_one_that_cannot_be_paid_for_at_the_new_price_waits() -> None:
    """And starts when it can."""
    world = full(granted=20)
    world.prices(h100=3 * CREDIT)
    free(world)
    world.rounds()
    assert world.cluster.jobs[JobId("job")].state is JobState.QUEUED
    world.grant(20 * CREDIT)
    world.round()
    assert world.cluster.jobs[JobId("job")].state is JobState.PLACED


def test_a_run_keeps_its_price() -> None:
    """Whatever comes."""
    world = full()
    world.prices(h100=5 * CREDIT)
    world.wait(HOUR_S // 2)
    free(world)
    world.rounds()
    assert world.book().committed == 4 * CREDIT


def test_jobs_that_nobody_paid_for_when_they_were_admitted_are_paid_for_before_they_start() -> None:
    """Accounts that come, or begin to pay for a queue, find those that wait."""
    world = Purse({"n1": 8})
    world.accounts()
    world.put(world.submit("runs", 8), n1=8)
    world.start(JobId("runs"))
    world.submit("job", 8, max_runtime_s=HOUR_S)
    world.submit("other", 8, max_runtime_s=HOUR_S, team="u")
    world.round()
    world.accounts(Account(name=A, queues=(TeamId("t"),)))
    free(world)
    assert not Paid(world.cluster, world.at)(world.cluster.jobs[JobId("job")])
    assert Paid(world.cluster, world.at)(world.cluster.jobs[JobId("other")])
    said = world.rounds()
    assert [event.job_id for event in said if isinstance(event, AdmissionWithdrawn)] == ["job"]
    assert priced(world) == [8]
    assert world.round() == []


def test_prices_of_next_month_take_nothing_back() -> None:
    """The list in force is the same one, whatever document it stands in; what is reserved after that says where it came from."""
    world = full()
    first = world.cluster.credits.prices
    assert first is not None
    later = PriceList(effective_from=world.at + timedelta(days=30), prices=(GpuPrice("h100", 9 * CREDIT),))
    world.add(PricesSet(at=world.at, lists=(*first.lists, later)))
    assert world.round() == []
    world.submit("new", 8, max_runtime_s=HOUR_S)
    world.round()
    assert len({bill.prices for bill in world.cluster.credits.bills.values()}) == 1
    free(world)
    assert "JobPlaced" in names(world.round())
    assert [finding for finding in audit(world.records) if "price" in finding.law] == []


def test_no_more_than_so_many_are_taken_back_in_a_round_and_none_of_the_others_starts() -> None:
    """Until it is its turn."""
    world = Purse({"n1": 1}, granted=1_000_000)
    for number in range(WITHDRAWN_MAX + 5):
        world.submit(f"j{number:04d}", 8, gpu_types=("h100",), max_runtime_s=HOUR_S, min_gpus=1)
    runs = world.put(world.reserve(world.submit("runs", 1, max_runtime_s=60)), n1=1)
    world.start(runs)
    world.rounds()
    world.prices(h100=2 * CREDIT)
    world.end(runs)
    world.release(runs)
    first = world.round()
    assert names(first).count("AdmissionWithdrawn") == WITHDRAWN_MAX
    assert "JobPlaced" not in names(first)
    world.rounds()
    bills = world.cluster.credits.bills.values()
    assert {bill.prices for bill in bills if bill.end is None} == set(world.cluster.credits.prices_since)


def test_what_is_set_aside_is_not_given_out_at_an_old_price() -> None:
    """It is let go with the admission."""
    world = full()
    job = world.cluster.jobs[JobId("job")]
    node = world.cluster.nodes[next(iter(world.cluster.nodes))]
    share = NodeShare(node.node_id, node.epoch, 255)  # type: ignore[arg-type]
    world.add(GpusEarmarked(at=world.at, team=job.team, job_id=job.job_id, shares=(share,)))
    free(world)
    world.prices(h100=2 * CREDIT)
    assert not any(isinstance(event, JobPlaced) for event in scheduler(world.cluster, world.tick()))
    assert [
        event.job_id for event in admission(world.cluster, world.tick()) if isinstance(event, AdmissionWithdrawn)
    ] == ["job"]
    said = world.round()
    assert any(isinstance(event, EarmarkDropped) for event in said)
    assert not any(isinstance(event, JobPlaced | JobAdmitted) for event in said)
    assert not world.cluster.unread


@pytest.mark.parametrize("charged", [True, False])
def test_where_nothing_changed_everything_is_paid(charged: bool) -> None:
    """And nobody is looked at where nobody is charged."""
    world = full()
    if not charged:
        world.accounts()
        world.rounds()
    paid = Paid(world.cluster, world.at)
    assert paid.all is not charged
    assert paid(world.cluster.jobs[JobId("job")])


B = AccountId("b")
OTHERS = {
    "another pays": (Account(name=A), Account(name=B, queues=(TeamId("t"),))),
    "closed": (Account(name=A, queues=(TeamId("t"),), closed=True), Account(name=B, queues=(TeamId("t"),))),
    "another is first": (Account(name=B, queues=(TeamId("t"),)), Account(name=A, queues=(TeamId("t"),))),
}


@pytest.mark.parametrize("why", OTHERS)
def test_a_run_is_paid_for_by_who_pays_when_it_starts(why: str) -> None:
    """What was reserved on the account that paid before comes back."""
    world = full()
    world.accounts(*OTHERS[why])
    world.grant(100 * CREDIT, account=B)
    free(world)
    assert "JobPlaced" not in names(world.round())
    world.rounds()

    assert world.cluster.jobs[JobId("job")].state is JobState.PLACED
    assert (world.bill(JobId("job")).account, world.book(A).reserved, world.book(B).reserved) == (B, 0, 8 * CREDIT)
    world.assert_sound()


def test_a_job_that_nobody_is_to_pay_for_any_more_gives_back_what_is_reserved() -> None:
    """And starts without."""
    world = full()
    world.accounts()
    free(world)
    world.rounds()

    assert world.cluster.jobs[JobId("job")].state is JobState.PLACED
    assert not world.cluster.credits.bills
    world.assert_sound()


def test_jobs_that_somebody_pays_for_by_now_are_found_beside_those_that_nobody_does_any_more() -> None:
    """Another team's reservations stand for none of them."""
    world = full()
    world.submit("other", 1, team="u", max_runtime_s=HOUR_S)
    world.round()
    world.accounts(Account(name=A), Account(name=B, queues=(TeamId("u"),)))
    world.grant(10 * CREDIT, account=B)
    world.rounds()

    assert [bill.account for bill in world.cluster.credits.bills.values() if bill.job_id == "other"] == [B]


def test_gpus_that_came_after_its_admission_are_reserved_for_before_it_gets_them() -> None:
    """At their price; and one that does not accept them keeps its place."""
    world = full()
    world.submit("h100-only", 8, gpu_types=("h100",), max_runtime_s=HOUR_S)
    world.round()
    world.prices(h100=CREDIT, b200=9 * CREDIT)
    world.rounds()
    world.join("n2", 8, gpu_type="b200")
    first = world.round()
    assert [event.job_id for event in first if isinstance(event, AdmissionWithdrawn)] == ["job"]
    assert "JobPlaced" not in names(first)
    world.rounds()

    assert priced(world) == [8, 8, 72]
    assert world.bill(JobId("job")).rate.nano_per_gpu_hour == 9_000 * CREDIT
    world.assert_sound()


def test_gpus_of_a_type_without_a_price_are_not_got_at_another_types() -> None:
    """A job that was admitted before they came waits then, as one does that comes after them."""
    world = full()
    world.join("n2", 8, gpu_type="b200")
    world.rounds()
    world.wait(31)
    world.rounds()

    assert world.cluster.jobs[JobId("job")].hold is HoldCode.NO_PRICE
