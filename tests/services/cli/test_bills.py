"""What a job costs, as `muster job` shows it."""

from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.bills import money_line
from tests.services.cli.network import Network
from tests.services.cli.test_jobs import job

BILL: dict[str, Any] = {
    "run_id": "j1-1", "state": "settled", "declared": True, "covers_s": 3_600, "reserved": "5", "charged": "1.25",
    "refunded": "3.75", "uncovered": "0", "uncovered_micro": 0, "given_back": "0",
    "given_back_micro": 0, "bearer": "", "per_gpu_hour": "2.5",
    "gpu_us": 1_800_000_000, "waived_us": 3_600_000_000, "outcome": "interrupted", "running_out": None,
    "evidence": ["main-1", "main-2", "main-3"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ({}, ""),
        ({"account": "", "reserves": None, "cost": "0", "cost_micro": 0}, ""),
        ({"account": "red", "reserves": "192", "state": "queued"}, "red, will reserve 192 credits"),
        ({"account": "red", "reserves": "192", "state": "running"}, "red, 192 credits reserved"),
        ({"account": "red", "reserves": "5", "cost": "2", "cost_micro": 2, "state": "queued"}, "red, will reserve 5 credits, 2 charged"),
        ({"account": "red", "reserves": None, "cost": "12", "cost_micro": 9}, "red, 12 charged"),
        (
            {"account": "red", "reserves": "1", "cost": "0", "cost_micro": 0, "given_back": "2", "given_back_micro": 2_000_000, "state": "running"},
            "red, 1 credit reserved, 2 charged, 2 of that given back",
        ),
    ],
    ids=["old", "nobody", "waits", "runs", "again", "ended", "given back"],
)  # fmt: skip
def test_who_pays_is_a_line(told: dict[str, Any], line: str) -> None:
    """With what is set aside, or will be, and what was charged."""
    assert money_line(job(1, **told)) == line


def test_each_run_has_its_cost_and_why(network: Network) -> None:
    """What is not charged, and by whose word; one that goes on, for how long it is paid for."""
    going = BILL | {"run_id": "j1-2", "state": "reserved", "declared": False, "outcome": "", "evidence": [], "refunded": "0",
                    "waived_us": 0, "running_out": "2026-11-03T10:00:00+00:00"}  # fmt: skip
    over = BILL | {"run_id": "j1-3", "outcome": "succeeded", "evidence": [], "uncovered": "0.5", "uncovered_micro": 5,
                   "bearer": "provider", "waived_us": 0, "given_back": "1", "given_back_micro": 1_000_000}  # fmt: skip
    found = job(1, account="red", reserves="5", cost="1.25", cost_micro=1, state="running", bills=[BILL, going, over])
    network.answers.extend([(200, found), (200, {"events": [], "truncated": False})])
    done = CliRunner().invoke(app, ["job", found["job_id"], "--api-url", network.url])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert "account     red, 5 credits reserved, 1.25 charged" in lines
    at = next(n for n, line in enumerate(lines) if line.startswith("RUN"))
    assert lines[at].split() == [
        "RUN",
        "RESERVED",
        "CHARGED",
        "REFUNDED",
        "GPU-HOURS",
        "NOT",
        "CHARGED",
        "UNCOVERED",
        "WHY",
    ]
    assert lines[at + 1].split() == [
        "j1-1",
        "5",
        "1.25",
        "3.75",
        "0.500",
        "1.000",
        "interrupted,",
        "at",
        "2.5",
        "a",
        "GPU-hour",
    ]
    assert lines[at + 2].split()[:4] == ["j1-2", "5", "0", "0.500"]
    assert "covers 1h 00m, then more, at 2.5 a GPU-hour, credits run out at " in lines[at + 2]
    assert lines[at + 3].endswith("0.5  succeeded, at 2.5 a GPU-hour, 1 given back, borne by the provider")
    assert lines[at + 4] == "j1-1: not charged by the word of main-1, main-2 and 1 more"


def test_the_account_that_pays_can_be_chosen(network: Network) -> None:
    """By `run`, and by `submit` over what the file says."""
    network.answers.append((201, {"job_id": "j1", "position": 1}))
    for args, stdin in (
        (["run", "-d", "--account", "red", "--", "true"], None),
        (["submit", "-", "--account", "red"], "name: a\ncommand: x\ngpus: 1\naccount: blue\n"),
    ):
        done = CliRunner().invoke(app, [*args[:-2], "--api-url", network.url, *args[-2:]], input=stdin)
        assert done.exit_code == 0, done.output
    assert [body["spec"]["account"] for _, body in network.asked] == ["red", "red"]
