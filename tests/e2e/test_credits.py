"""Credits as people meet them: who pays, what a job reserves and costs, what is left; and jobs that wait for credits."""

import csv
import io
import json
from typing import Any

import pytest

from tests.e2e.user import User, eventually

pytestmark = [pytest.mark.slow]

ACCOUNTS = {"accounts": [{"name": "vision-2026", "queues": ["vision"]}, {"name": "spare", "queues": ["vision"]}]}
PRICES = {"lists": [{"gpu_hour": {"*": 2.5}, "classes": {"urgent": 2}, "step": "60s"}]}
TRAIN: dict[str, Any] = {"name": "train", "gpus": 4, "command": ["sleep", "0.2"], "team": "vision", "max_runtime": "1h"}


@pytest.fixture(scope="module")
def payer(user: User) -> User:
    """A user whose cluster has accounts and prices, and a first grant of 15 credits."""
    for name, document in (("prices", PRICES), ("accounts", ACCOUNTS)):
        user.ok("credits", name, "apply", "-", stdin=json.dumps(document))
    user.ok("credits", "grant", "vision-2026", "15", "--reason", "order 1", "--key", "order-1")
    return user


def account(user: User, name: str = "vision-2026") -> dict[str, Any]:
    """What it has."""
    found: dict[str, Any] = user.ok("credits", "balance", name, "--json").document
    return found


def settled(user: User, job_id: str) -> dict[str, Any]:
    """The job, once its run is paid for."""
    assert user.muster("wait", job_id).code == 0

    def bills() -> bool:
        return [bill["state"] for bill in user.ok("job", job_id, "--json").document["bills"]] == ["settled"]

    eventually(bills, "its run is settled")
    found: dict[str, Any] = user.ok("job", job_id, "--json").document
    return found


def test_a_run_costs_what_it_used(payer: User) -> None:
    """Reserved at the most that it may cost, charged by the minute, the rest given back; every entry is in the statement."""
    before = account(payer)
    job = settled(payer, payer.submit(TRAIN))
    (bill,) = job["bills"]
    assert (job["account"], bill["reserved"], bill["outcome"]) == ("vision-2026", "10", "succeeded")
    assert bill["charged"] == job["cost"] == "0.166667"  # 4 GPUs, a minute that was begun, 2.5 an hour
    assert bill["charged_micro"] + bill["refunded_micro"] == bill["reserved_micro"]
    after = account(payer)
    assert (after["reserved"], before["balance_micro"] - after["balance_micro"]) == ("0", 166_667)

    out = payer.ok("credits", "statement", "vision-2026", "--format", "csv").out
    rows = [row for row in csv.DictReader(io.StringIO(out)) if row["job_id"] == job["job_id"]]
    moved = [(row["kind"], row["change"]) for row in rows if row["kind"] != "usage"]  # of which each hour has its own
    assert moved == [("reserved", "-10"), ("committed", "0"), ("refunded", "9.833333")]
    assert sum(float(row["amount"]) for row in rows if row["kind"] == "usage") == pytest.approx(0.166667)
    table = payer.ok("credits", "statement", "vision-2026").out
    assert all(row["run_id"] in table for row in rows)
    last = payer.ok("credits", "statement", "vision-2026", "--format", "json", "--limit", "1").document
    assert (last["kind"], last["balance"]) == ("refunded", after["balance"])
    told = payer.ok("job", job["job_id"]).out
    assert "vision-2026, 0.166667 charged" in told
    assert "10 credits of vision-2026 for 4 GPUs for 1h 00m" in told


def test_a_key_is_taken_once(payer: User) -> None:
    """The same grant again gives nothing more; another amount under its key is refused."""
    before = account(payer)["balance"]
    again = payer.ok("credits", "grant", "vision-2026", "15", "--reason", "order 1", "--key", "order-1")
    assert (f"balance {before}" in again.out, "nothing more was done" in again.err) == (True, True)
    other = payer.muster("credits", "grant", "vision-2026", "16", "--reason", "order 1", "--key", "order-1")
    assert (other.code, "[conflict]" in other.err) == (1, True)
    assert account(payer)["balance"] == before


def test_who_cannot_pay_waits_until_there_are_credits(payer: User) -> None:
    """`why` has the numbers; a grant is enough."""
    job_id = payer.submit({**TRAIN, "gpus": 8})
    eventually(lambda: payer.ok("why", job_id, "--json").document["code"] == "credits", "it is held")
    told = payer.ok("job", job_id, "--json").document
    assert (told["reserves"], told["cost"], told["bills"]) == ("20", "0", [])
    assert "vision-2026, will reserve 20 credits" in payer.ok("job", job_id).out
    payer.ok("credits", "grant", "vision-2026", "10", "--reason", "order 2")
    assert settled(payer, job_id)["cost"] == "0.333333"


def test_another_account_can_be_named(payer: User) -> None:
    """One of those that pay for the team, and no other."""
    payer.ok("credits", "grant", "spare", "10", "--reason", "order 3")
    job_id = payer.submit(TRAIN, "--account", "spare")
    assert settled(payer, job_id)["account"] == "spare"
    job_id = payer.submit(TRAIN, "--account", "nobodys")
    eventually(lambda: payer.ok("why", job_id, "--json").document["code"] == "no_account", "it is held")
    payer.ok("cancel", job_id)


def test_a_balance_is_corrected_by_a_new_entry(payer: User) -> None:
    """Down as far as there are credits; a run is given back no more than it was charged."""
    before = account(payer)["balance_micro"]
    payer.ok("credits", "adjust", "vision-2026", "-0.5", "--reason", "granted twice")
    assert account(payer)["balance_micro"] == before - 500_000
    refused = payer.muster("credits", "adjust", "vision-2026", "-5000", "--reason", "too much")
    assert (refused.code, "[not_covered]" in refused.err) == (1, True)

    run = settled(payer, payer.submit(TRAIN))["bills"][0]["run_id"]
    payer.ok("credits", "adjust", "vision-2026", "+0.166667", "--refunds", run, "--reason", "slow disk")
    again = payer.muster("credits", "adjust", "vision-2026", "0.1", "--refunds", run, "--reason", "slow disk")
    assert (again.code, "[beyond_commit]" in again.err) == (1, True)
    assert account(payer)["balance_micro"] == before - 500_000


def test_a_month_is_closed_once_it_is_over(payer: User) -> None:
    """One that is not is refused by the gate."""
    done = payer.ok("credits", "close", "2020-01", "--json").document
    assert done["month"] == "2020-01"
    assert payer.ok("credits", "close", "2020-01").out.startswith("2020-01: closed at ")
    early = payer.muster("credits", "close", "2999-01")
    assert (early.code, "is not over" in early.err) == (1, True)


def test_a_team_that_nobody_pays_for_runs_as_before(payer: User) -> None:
    """Nothing is reserved or charged."""
    job_id = payer.submit({**TRAIN, "team": "other"})
    assert payer.muster("wait", job_id).code == 0
    job = payer.ok("job", job_id, "--json").document
    assert (job["account"], job["reserves"], job["cost"], job["bills"]) == ("", None, "0", [])
