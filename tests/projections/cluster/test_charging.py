"""How the life of jobs and runs moves their bills."""

from events.base import RunId
from events.credit import EndedAs
from events.job import AdmissionWithdrawn, StopCause
from events.policy import ChargeFrom, Overrun
from projections.cluster.charging import WORD_S, charged, count_no_more
from tests.purses import CREDIT, GPU_HOUR_US, Purse


def test_a_bill_knows_what_its_run_was_placed_on() -> None:
    """Fewer GPUs than were reserved for, and how long a stop takes."""
    world = Purse({"n1": 2})
    job = world.reserve(world.submit("job", 8, min_gpus=2, max_runtime_s=3_600))
    assert (world.bill(job).gpus, world.bill(job).gpu_type) == (8, "")
    world.put(job, n1=2)

    assert (world.bill(job).gpus, world.bill(job).gpu_type, world.bill(job).grace_s) == (2, "h100", 10 + WORD_S)


def test_runs_that_may_go_on_are_renewed() -> None:
    """Without a declared runtime, or where the policy lets them run beyond it; until they are told to stop."""
    world = Purse({"n1": 6})
    declared = world.paid("declared", on={"n1": 2}, max_runtime_s=3_600)
    endless = world.paid("endless", on={"n1": 2})
    world.policy(overrun=Overrun.EXTEND)
    extended = world.paid("extended", on={"n1": 2}, max_runtime_s=3_600)

    assert [world.bill(job).renews for job in (declared, endless, extended)] == [False, True, True]
    world.stopped(endless, StopCause.CREDITS)
    assert not world.bill(endless).renews


def test_a_run_counts_once() -> None:
    """From the report that its last share has started; what is said again later changes nothing."""
    world = Purse({"n1": 1, "n2": 1})
    job = world.put(world.reserve(world.submit("job", 2)), n1=1, n2=1)
    world.start(job, "n1")
    assert world.bill(job).counts_from is None
    world.wait(5)
    world.start(job, "n2")
    since = world.at
    world.wait(5)
    world.start(job, "n2")
    world.round()

    assert world.bill(job).counts_from == since


def test_a_run_counts_from_its_placing_where_its_reservation_says_so() -> None:
    """Whatever the policy says by then."""
    world = Purse({"n1": 1}, charge_from=ChargeFrom.PLACED)
    job = world.reserve(world.submit("job", 1))
    world.policy(charge_from=ChargeFrom.STARTED)
    world.put(job, n1=1)

    assert world.bill(job).counts_from == world.at


def test_the_bill_of_a_run_that_is_over_says_how() -> None:
    """What it used and had saved, from when to when."""
    world = Purse({"n1": 2})
    job = world.paid("job", on={"n1": 2}, max_runtime_s=7_200)
    since = world.at
    world.wait(3_600)
    run = world.run(job)
    assert run is not None
    count_no_more(world.cluster, run.run_id, world.records[-1], EndedAs.CANCELLED)
    end = world.bill(job).end

    assert end is not None
    assert (end.outcome, end.began, end.used_us) == (EndedAs.CANCELLED, since, 0)  # the last record is its start
    assert list(world.cluster.credits.settling) == [run.run_id]


def test_what_still_holds_gpus_when_a_run_is_over_counts_until_then() -> None:
    """No report is missing then, but nothing is for free."""
    world = Purse({"n1": 2})
    job = world.paid("job", on={"n1": 2}, max_runtime_s=7_200)
    world.wait(3_600)
    world.grant(CREDIT)
    count_no_more(world.cluster, RunId(f"{job}-1"), world.records[-1], EndedAs.CANCELLED)
    end = world.bill(job).end

    assert end is not None
    assert (end.used_us, end.ended) == (2 * GPU_HOUR_US, world.at)


def test_a_wait_that_is_over_was_never_placed() -> None:
    """Withdrawn, or cancelled; one that was not admitted has no bill."""
    world = Purse()
    job = world.reserve(world.submit("job", 2))
    world.add(AdmissionWithdrawn(at=world.at, team=world.cluster.jobs[job].team, job_id=job))
    end = world.bill(job).end

    assert end is not None
    assert end.outcome is EndedAs.NEVER_PLACED


def test_runs_that_nobody_pays_for_have_no_bill() -> None:
    """And nothing is made of that."""
    world = Purse({"n1": 2})
    world.put(world.submit("job", 2), n1=2)
    (run,) = world.cluster.runs.values()
    charged(world.cluster, run, world.records[-1])
    count_no_more(world.cluster, run.run_id, world.records[-1], EndedAs.CANCELLED)

    assert not world.cluster.credits.bills
