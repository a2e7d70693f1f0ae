"""What is said of the credits of a job: who pays, how much, how that comes about, and what is missing."""

from datetime import timedelta

import pytest

from events.accounts import Account, AccountsSet
from events.ask import Why
from events.base import AccountId, JobId, TeamId
from events.credit import Rate
from projections.cluster.explain.charge import duration, price_of, worked_out
from projections.cluster.explain.why import explain
from tests.purses import CREDIT, Purse

A = AccountId("a")
T = TeamId("t")


def why(world: Purse, job: JobId) -> Why:
    """The answer of the moment."""
    return explain(world.cluster, job, at=world.at)


@pytest.mark.parametrize(
    ("seconds", "text"), [(86_400, "24 h"), (600, "10 min"), (5_400, "90 min"), (61, "61 s"), (0, "0 s")]
)
def test_a_time_is_said_exactly(seconds: int, text: str) -> None:
    """In the largest unit of which it is a whole number."""
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("nano", "gpu_type", "text"),
    [
        (2_500_000_000, "h100", "2.5 credits a GPU-hour (h100)"),
        (1_000_000_000, "h100", "1 credit a GPU-hour (h100)"),
        (1, "", "0.000000001 credits a GPU-hour"),
    ],
)
def test_a_price_is_said_exactly(nano: int, gpu_type: str, text: str) -> None:
    """A price times a factor has nine places."""
    assert price_of(Rate(gpu_type, nano)) == text


def test_what_is_charged_is_said_in_its_steps() -> None:
    """Begun ones are whole."""
    rate = Rate("h100", 1_000_000_000)
    assert worked_out(1, 61, 60, rate, declared=True) == "1 GPU for 2 min at 1 credit a GPU-hour (h100)"
    assert worked_out(2, 61, 0, rate, declared=False) == (
        "2 GPUs for 61 s at 1 credit a GPU-hour (h100); it declares no max_runtime: more is reserved while it runs"
    )


def test_what_is_reserved_is_said_of_jobs_that_wait_for_gpus_and_of_those_that_run() -> None:
    """From the reservation, whatever prices are by then."""
    world = Purse({"n1": 8})
    runs = world.paid("runs", on={"n1": 8}, max_runtime_s=3_600)
    waits = world.submit("waits", 4)
    world.round()
    for job, micro in ((runs, 8 * CREDIT), (waits, 4 * CREDIT)):
        said = why(world, job)
        assert (said.account, said.reserves_micro, said.short_micro) == ("a", micro, 0)
        assert said.has_micro == 988 * CREDIT
        assert said.charge.startswith(f"{micro // CREDIT} GPUs for 1 h at 1 credit a GPU-hour (h100)")


def test_a_job_that_nobody_charges_has_no_account() -> None:
    """Its answer is as it always was."""
    world = Purse({"n1": 8})
    said = why(world, world.submit("job", 4, team="other"))
    assert (said.code, said.account, said.reserves_micro, said.charge) == ("not_evaluated", "", None, "")


def test_an_account_without_a_bound_has_no_number() -> None:
    """Nothing is ever short of it."""
    world = Purse({"n1": 8}, granted=0)
    world.accounts(Account(name=A, queues=(T,), overdraft_micro=None))
    said = why(world, world.submit("job", 8, max_runtime_s=86_400))
    assert (said.code, said.has_micro, said.short_micro) == ("not_evaluated", None, 0)


def test_what_is_graver_or_is_asked_first_is_told_first() -> None:
    """A job of a paused queue that could not be paid for is paused; one that waits for its share is not asked yet."""
    world = Purse({"n1": 8}, granted=0)
    assert why(world, world.submit("large", 9, max_runtime_s=3_600)).code == "exceeds_cluster"
    assert why(world, world.submit("dear", 8, max_runtime_s=3_600)).code == "credits"


@pytest.mark.parametrize(
    ("accounts", "named", "message", "action"),
    [
        ((Account(name=A, queues=(T,), closed=True),), "", "all accounts of queue t are closed", "ask an operator"),
        (
            (Account(name=A, queues=(T,), closed=True),),
            "a",
            "it names account a, which is closed",
            "without an account",
        ),
        ((Account(name=A, queues=(T,)),), "x", "it names account x, which is no account", "with account a"),
        ((), "x", "it names account x, which is no account", "submit it without an account"),
    ],
)
def test_why_an_account_may_not_be_charged(
    accounts: tuple[Account, ...], named: str, message: str, action: str
) -> None:
    """And what to write instead."""
    world = Purse({"n1": 8})
    world.add(AccountsSet(at=world.at, accounts=accounts))
    said = why(world, world.submit("job", 1, account=named))
    assert (said.code, said.message) == ("no_account", message)
    assert action in said.next_action


def test_a_list_that_is_not_in_force_yet_is_no_price() -> None:
    """From its moment on it is one."""
    world = Purse({"n1": 8})
    world.prices(h100=CREDIT, effective_from=world.at + timedelta(seconds=60))
    job = world.submit("job", 1)
    assert why(world, job).message == "no price list is in force"
    world.wait(60)
    assert why(world, job).code == "not_evaluated"
