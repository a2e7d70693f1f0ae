"""What accounts pay before any new job: debts, downward corrections, and more for runs that go on."""

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from events.accounts import Account
from events.base import AccountId, JobId, TeamId
from events.credit import AdjustCause, AskRefused, CreditAdjusted, CreditRenewed, CreditsRunningOut
from events.head import LeadershipTaken
from events.job import RunStopping
from events.policy import Bearer, Overrun
from projections.cluster.charging import WORD_S
from projections.cluster.credit.keep import put_debt
from projections.cluster.credit.state import Entry
from services.admission.spend import LEAD_MAX_S, RENEWED_MAX, instalment_s, lead_s, spend
from services.admission.till import Till
from tests.clusters import World, names
from tests.purses import CREDIT, A, Purse, told

HOUR_S = 3_600
RENEWED, RUNNING_OUT = "CreditRenewed", "CreditsRunningOut"


def running(granted: int, *, gpus: int = 8, policy: dict[str, Any] | None = None, **spec: Any) -> Purse:
    """A cluster in which `job` runs on GPUs that cost a credit an hour each, from now on; an instalment is an hour."""
    world = Purse({"n1": gpus}, granted=granted, **(policy or {}))
    job = world.submit("job", gpus, **spec)
    world.round()
    world.start(job)
    world.round()
    return world


def renewals(world: Purse, seconds: int, *, step_s: int = 10) -> list[tuple[float, str, float]]:
    """The records of renewals in so much time with a round every so often: after how many seconds, and of how much."""
    found, began = [], world.at
    while (world.at - began).total_seconds() < seconds:
        world.wait(step_s)
        after = (world.at - began).total_seconds()
        found += [(after, kind, amount) for kind, amount in told(world.round()) if kind in (RENEWED, RUNNING_OUT)]
    World.assert_sound(world)
    return found


@pytest.mark.parametrize(
    ("policy_instalment_s", "lead"), [(3_600, 600), (2_400, 600), (60, 15), (3, 1), (1, 1), (0, 1)]
)
def test_more_is_reserved_a_quarter_of_an_instalment_ahead_and_ten_minutes_at_the_most(
    policy_instalment_s: int, lead: int
) -> None:
    """At least a second, so that it is before."""
    world = Purse()
    world.policy(instalment_s=policy_instalment_s)
    assert lead_s(world.cluster.policy) == lead <= LEAD_MAX_S
    assert instalment_s(world.cluster.policy) == max(1, policy_instalment_s)


@pytest.mark.parametrize(("instalment", "away_s"), [(1, 10_000), (60, 10_000), (3_600, 10_000), (3_600, 3_001)])
def test_what_was_used_while_nobody_decided_is_paid_for_at_once(instalment: int, away_s: int) -> None:
    """By one record a run, however short instalments are: a run that ends a moment later has used nothing uncovered."""
    world = running(1_000, policy={"instalment_s": instalment}, stop_grace_s=0)
    world.wait(away_s)
    world.add(LeadershipTaken(at=world.at, instance="a", version=""))
    assert [kind for kind, _ in told(world.round()) if kind == RENEWED] == [RENEWED]
    bill, lead = world.bill(JobId("job")), lead_s(world.cluster.policy)
    assert bill.covered_until is not None
    assert lead <= (bill.covered_until - world.at).total_seconds() <= lead + instalment + WORD_S
    world.end(JobId("job"))
    world.release(JobId("job"))
    world.rounds()

    assert world.book().committed == round(8 * away_s / HOUR_S * CREDIT)
    World.assert_sound(world)


def test_a_clock_that_is_far_ahead_reserves_no_more_than_an_instalment_at_a_time() -> None:
    """By the log, it is not that late."""
    world = running(1_000_000)
    ahead = replace(world.tick(), at=world.at + timedelta(days=400))

    (renewed, *_) = spend(world.cluster, ahead, Till(world.cluster, ahead))
    assert isinstance(renewed, CreditRenewed)
    assert renewed.covers_s == HOUR_S


def test_what_an_account_cannot_pay_of_that_is_told_of() -> None:
    """As much as it can is paid for."""
    world = running(20, policy={"instalment_s": 60}, stop_grace_s=0)
    world.wait(3 * HOUR_S)
    world.add(LeadershipTaken(at=world.at, instance="a", version=""))
    said = told(world.round())

    assert [entry for entry in said if entry[0] in (RENEWED, RUNNING_OUT)] == [(RENEWED, 19.866667), (RUNNING_OUT, 0.0)]
    assert "RunStopping" in names(world.round())
    assert world.book().balance == 0
    World.assert_sound(world)


def test_a_run_without_a_runtime_is_renewed_before_it_would_be_stopped() -> None:
    """An hour is reserved; ten minutes before its stop would take it to the end of that, one more, and so on."""
    world = running(1_000, stop_grace_s=30)
    assert world.bill("job").covers_s == HOUR_S  # type: ignore[arg-type]
    stop = HOUR_S - 30 - 2
    assert renewals(world, 3 * HOUR_S) == [
        (math.ceil((stop - 600 + after) / 10) * 10, RENEWED, 8.0) for after in (0, HOUR_S, 2 * HOUR_S)
    ]
    assert world.book().reserved == 4 * 8 * CREDIT


def test_a_run_with_a_runtime_that_kills_is_never_renewed() -> None:
    """What it costs is capped."""
    world = running(1_000, max_runtime_s=HOUR_S)
    assert renewals(world, 2 * HOUR_S) == []


def test_a_run_that_may_go_on_beyond_its_runtime_is_renewed_when_that_is_over() -> None:
    """Not before: it may well end by then."""
    world = running(1_000, policy={"overrun": Overrun.EXTEND}, max_runtime_s=HOUR_S, stop_grace_s=28)
    assert renewals(world, HOUR_S - 30 - 10) == []
    assert renewals(world, HOUR_S) == [(10.0, RENEWED, 8.0)]


def test_what_is_left_is_reserved_to_the_second_and_the_run_is_told_of() -> None:
    """12 credits pay for an hour and a half of 8 GPUs; then for none more."""
    world = running(12, stop_grace_s=8)
    assert renewals(world, HOUR_S) == [(2_990.0, RENEWED, 4.0), (2_990.0, RUNNING_OUT, 0.0)]
    bill = world.bill("job")  # type: ignore[arg-type]
    assert (bill.covers_s, bill.running_out) == (HOUR_S * 3 // 2, bill.covered_until)
    assert world.book().balance == 0


def test_it_is_told_once_where_nothing_is_left() -> None:
    """And runs on for as long as is reserved."""
    world = running(8, stop_grace_s=8)
    assert renewals(world, HOUR_S - 20) == [(2_990.0, RUNNING_OUT, 0.0)]


def test_credits_that_come_in_time_let_it_go_on() -> None:
    """It is running out no more."""
    world = running(8, stop_grace_s=8)
    assert renewals(world, 3_000) == [(2_990.0, RUNNING_OUT, 0.0)]
    world.grant(8 * CREDIT)
    assert renewals(world, HOUR_S) == [(10.0, RENEWED, 8.0), (HOUR_S - 10.0, RUNNING_OUT, 0.0)]
    run = world.run("job")  # type: ignore[arg-type]
    assert run is not None
    assert run.stopping is None


def test_trickles_are_not_written_down_one_by_one() -> None:
    """Until they are worth a tenth of an hour."""
    world = running(8, stop_grace_s=8)
    renewals(world, 3_000)
    found = []
    for _ in range(8):
        world.grant(CREDIT // 4)
        found += renewals(world, 10)
    assert [kind for _, kind, _ in found] == [RENEWED, RUNNING_OUT]
    assert found[0][2] >= 8 * lead_s(world.cluster.policy) / HOUR_S


def test_a_run_that_is_being_stopped_is_not_renewed() -> None:
    """It ends anyway."""
    world = running(1_000, stop_grace_s=HOUR_S)
    world.cancel(world.cluster.runs["job-1"].job_id)  # type: ignore[index]
    world.round()
    assert renewals(world, HOUR_S) == []


def test_what_costs_nothing_is_renewed_without_credits() -> None:
    """Also of an account that is overdrawn."""
    world = Purse({"n1": 8}, granted=0)
    world.prices(h100=0)
    job = world.submit("job", 8)
    world.round()
    world.start(job)
    assert [kind for _, kind, _ in renewals(world, HOUR_S)] == [RENEWED]


def test_no_more_than_so_many_runs_are_renewed_in_one_round() -> None:
    """The first to need it are first."""
    world = Purse({f"n{n:03d}": 8 for n in range(RENEWED_MAX // 8 + 1)}, granted=100_000)
    jobs = [world.submit(f"j{n:04d}", 1) for n in range(RENEWED_MAX + 8)]
    world.rounds()
    for job in jobs:
        world.start(job)
    world.rounds()
    world.wait(3_000)
    for expected in (RENEWED_MAX, 8, 0):
        said = world.round()
        assert sum(isinstance(event, CreditRenewed) for event in said) == expected


def test_of_runs_that_are_running_out_the_first_stands_for_all_of_its_account() -> None:
    """None is looked at one by one while nothing comes in; those of other accounts are."""
    world = Purse({"n1": 8}, granted=4)
    world.accounts(Account(name=A, queues=(TeamId("t"),)), Account(name=AccountId("b"), queues=(TeamId("u"),)))
    world.grant(100 * CREDIT, account=AccountId("b"))
    for number in range(4):
        world.submit(f"t{number}", 1)
        world.submit(f"u{number}", 1, team="u")
    world.round()
    for job in list(world.cluster.jobs):
        world.start(job)
    world.wait(3_000)
    said = told(world.round())
    assert [kind for kind, _ in said].count(RENEWED) == [kind for kind, _ in said].count(RUNNING_OUT) == 4
    world.wait(10)
    asked: list[str] = []

    class Counting(Till):
        """Remembers whose credits were asked about."""

        def covers(self, account: AccountId, amount_micro: int) -> bool:
            """As it is."""
            asked.append(account)
            return super().covers(account, amount_micro)

    assert spend(world.cluster, world.tick(), Counting(world.cluster, world.tick())) == []
    assert 0 < len(asked) <= 13  # for one run: once for all of it, and halving the seconds that are left
    assert set(asked) == {A}


# Operators


def test_a_correction_downward_is_done_where_it_is_covered_and_refused_for_good_where_not() -> None:
    """What is reserved is not there to be taken."""
    world = Purse({"n1": 8}, granted=10)
    world.submit("job", 8, max_runtime_s=HOUR_S)
    world.round()
    world.adjust(-3 * CREDIT)
    world.adjust(-2 * CREDIT)
    said = world.round()
    (refused,) = (event for event in said if isinstance(event, AskRefused))
    (done,) = (event for event in said if isinstance(event, CreditAdjusted))
    assert (refused.code, refused.message) == ("not_covered", "it can pay 2, not 3")
    assert (done.amount_micro, done.cause, done.reason) == (-2 * CREDIT, AdjustCause.OPERATOR, "for tests")
    assert world.book().balance == 0
    assert not world.cluster.credits.asked
    World.assert_sound(world)


def test_two_corrections_do_not_take_the_same_credits() -> None:
    """Nor do they and a new job."""
    world = Purse({"n1": 8}, granted=10)
    for _ in range(2):
        world.adjust(-6 * CREDIT)
    world.submit("job", 8, max_runtime_s=HOUR_S)
    assert sorted(told(world.round())) == [("AskRefused", 0.0), ("CreditAdjusted", -6.0)]
    assert world.book().balance == 4 * CREDIT


def test_a_grant_of_the_same_round_covers_a_correction() -> None:
    """The ledger answers first."""
    world = Purse({"n1": 8}, granted=0)
    world.grant(5 * CREDIT)
    world.adjust(-5 * CREDIT)
    assert told(world.round()) == [("CreditGranted", 5.0), ("CreditAdjusted", -5.0)]


def test_a_correction_may_use_the_overdraft() -> None:
    """As jobs may."""
    world = Purse({"n1": 8}, granted=0)
    world.accounts(Account(name=A, queues=(TeamId("t"),), overdraft_micro=5 * CREDIT))
    world.adjust(-5 * CREDIT)
    world.round()
    assert world.book().balance == -5 * CREDIT


def test_a_run_that_an_account_can_pay_for_goes_on_though_a_larger_one_beside_it_ends() -> None:
    """Both were told of, and both end at the same time; what came since pays for one of them."""
    world = Purse({"n1": 9}, granted=9)
    for name, gpus in (("large", 8), ("small", 1)):
        world.submit(name, gpus)
    world.round()
    for name in ("large", "small"):
        world.start(JobId(name))
    world.wait(HOUR_S - 300)
    assert [kind for kind, _ in told(world.round())].count(RUNNING_OUT) == 2
    world.grant(CREDIT)
    assert told(world.round()) == [("CreditGranted", 1.0), (RENEWED, 1.0)]
    world.wait(290)
    assert [event.job_id for event in world.round() if isinstance(event, RunStopping)] == ["large"]
    World.assert_sound(world)


# Debts


def test_debts_are_paid_before_anything_new_as_far_as_there_is_something() -> None:
    """What a run used beyond what was reserved, where the account bears it: a part now, the rest when there is more."""
    world = running(8, policy={"uncovered": Bearer.ACCOUNT}, max_runtime_s=HOUR_S)
    world.wait(2 * HOUR_S)
    job = world.cluster.runs["job-1"].job_id  # type: ignore[index]
    world.end(job)
    world.release(job)
    world.rounds()
    assert sum(world.cluster.credits.debts.values()) == 8 * CREDIT
    world.submit("new", 4, max_runtime_s=HOUR_S)
    world.grant(5 * CREDIT)
    world.adjust(-1 * CREDIT)
    said = [entry for entry in told(world.round()) if entry[0] != "UsageRecorded"]
    assert said == [("CreditGranted", 5.0), ("CreditAdjusted", -5.0), ("AskRefused", 0.0)]
    world.grant(8 * CREDIT)
    said = told(world.round())
    assert said == [("CreditGranted", 8.0), ("CreditAdjusted", -3.0), ("CreditReserved", 4.0)]
    assert not world.cluster.credits.debts
    World.assert_sound(world)


def test_accounts_that_have_nothing_keep_no_other_from_paying() -> None:
    """However many debts they have."""
    world = Purse({"n1": 1}, granted=0)
    other = AccountId("b")
    world.accounts(Account(name=A, queues=(TeamId("t"),)), Account(name=other))
    for account, debts in ((A, 20_000), (other, 1)):
        for entry in range(1, debts + 1):
            put_debt(world.cluster, Entry(account, entry), 2)
        world.cluster.credits.books[account] = replace(world.book(account), owed=2 * debts, entry=debts)
    world.grant(CREDIT, account=other)

    assert told(world.round()) == [("CreditGranted", 1.0), ("CreditAdjusted", -0.000002)]
    assert world.book(other).owed == 0
    world.grant(5)
    world.rounds()
    assert (world.book(A).balance, world.book(A).owed) == (0, 40_000 - 5)


# Laws


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 30),
    st.integers(1, 8),
    st.integers(1, 3_000),
    st.sampled_from((0, 1, 60, 3_600)),
    st.integers(0, 400),
)
def test_what_is_renewed_adds_up_to_what_all_of_it_costs(
    granted: int, gpus: int, instalment: int, step_s: int, grace_s: int
) -> None:
    """However it is cut into instalments and parts of them: no rounding is lost or won; nor is more spent than there is."""
    world = Purse({"n1": gpus}, granted=granted, instalment_s=instalment)
    world.prices(h100=CREDIT // 7, step_s=step_s)
    job = world.submit("job", gpus, stop_grace_s=grace_s)
    world.round()
    if world.run(job) is None:
        return
    world.start(job)
    for _ in range(20):
        world.wait(min(600, instalment))
        said = world.round()
        if world.run(job) is None or job not in {bill.job_id for bill in world.cluster.credits.bills.values()}:
            break
        bill = world.bill(job)
        assert bill.reserved_micro == bill.needs_micro
        assert world.book().balance >= 0
        if any(isinstance(event, CreditsRunningOut) for event in said):
            assert bill.running_out == bill.covered_until
    World.assert_sound(world)
