"""Why a job waits, and what would become of one, as a terminal shows it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.why import local_moment, print_dry_run, print_why
from tests.services.cli.network import Network

NOW = datetime(2026, 3, 1, 14, 30, tzinfo=UTC)
START = NOW + timedelta(minutes=35)
WAITS: dict[str, Any] = {
    "job_id": "jx",
    "team": "red",
    "state": "admitted",
    "code": "no_room",
    "message": "needs 16 GPUs; 12 of 32 are free (4 at most on one node, 1 whole node)",
    "need": {"gpus": 16},
    "have": {"gpus_free": 12},
    "ahead": 2,
    "behind": "jw",
    "blockers": ["jy", "jz"],
    "gpu_type": "h100",
    "entitled": 24,
    "used": 8,
    "basis": "declared_ends",
    "estimated_start": START.isoformat(),
    "estimate": "not before that: enough runs end by then, as declared",
    "next_action": "wait for running jobs to end",
    "position": (1 << 40) + 27,
}


def shown(capsys: pytest.CaptureFixture[str], **changed: Any) -> list[str]:
    """The lines of an answer."""
    print_why(WAITS | changed, NOW)
    return capsys.readouterr().out.splitlines()


def test_a_waiting_job_is_a_sentence_and_a_line_for_each_thing_that_helps(capsys: pytest.CaptureFixture[str]) -> None:
    """No raw numbers: those of the sentence are all, and --json has the rest."""
    at = f"{START.astimezone():%H:%M:%S}"
    assert shown(capsys) == [
        "jx is admitted: no room",
        "  needs 16 GPUs; 12 of 32 are free (4 at most on one node, 1 whole node)",
        f"  start      in 35m 00s, at {at}: not before that: enough runs end by then, as declared",
        "  order      2 jobs before it; jw is first",
        "  team       red has 8 h100 GPUs, and may claim 24 now",
        "  held by    jy, jz",
        "  to do      wait for running jobs to end",
    ]


CHARGED: dict[str, Any] = {
    "account": "a",
    "reserves_micro": 192_000_000,
    "short_micro": 0,
    "charge": "8 GPUs for 24 h at 1 credit a GPU-hour (h100)",
}


def test_the_credits_of_a_job_have_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """What is reserved, on which account, and how that is worked out; where it is to be, what is missing."""
    worked_out = "8 GPUs for 24 h at 1 credit a GPU-hour (h100)"
    assert f"  credits    192 of account a are reserved: {worked_out}" in shown(capsys, **CHARGED)
    waits = CHARGED | {"state": "queued", "short_micro": 42_500_000}
    assert f"  credits    192 of account a would be reserved; short 42.5: {worked_out}" in shown(capsys, **waits)
    print_dry_run(WOULD | CHARGED, NOW)
    assert f"  credits    192 of account a would be reserved: {worked_out}" in capsys.readouterr().out.splitlines()


def test_what_is_not_known_is_said_and_what_is_empty_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Also of answers that only the tables gave."""
    unknown = {"estimated_start": None, "basis": "unknown", "estimate": "2 runs have not declared a max_runtime"}
    assert "  start      unknown: 2 runs have not declared a max_runtime" in shown(capsys, **unknown)
    bare = {"job_id": "jx", "state": "succeeded", "code": "", "need": {"gpus": 1}, "blockers": []}
    print_why(bare, NOW)
    assert capsys.readouterr().out == "jx: succeeded\n"
    assert "  order      1 job before it: jw" in shown(capsys, ahead=1)
    assert "  start      now: nothing is before it" in shown(
        capsys, estimated_start=NOW.isoformat(), basis="next_round", estimate="nothing is before it"
    )
    many = shown(capsys, reserved=[f"n{n}" for n in range(10)], preempting=["ja"], note="old")
    assert "  nodes      n0, n1, n2, n3, n4, n5, n6, n7 and 2 more" in many
    assert "  stopping   ja" in many
    assert "  note       old" in many


def test_a_terminal_gets_lines_as_wide_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes on stands below its first word; a pipe gets whole lines."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    lines = shown(capsys)
    assert max(map(len, lines)) <= 60
    assert any(line.startswith(" " * 13) for line in lines)


def test_the_past_is_asked_for_and_shown_as_such(network: Network) -> None:
    """With the moment and the position that it is of."""
    network.answers.append((200, WAITS | {"source": "log", "at": "2026-03-01T14:00:00Z"}))
    done = CliRunner().invoke(app, ["why", "jx", "--at", "1:27", "--api-url", network.url])
    assert network.asked[0][0] == "/v1/jobs/jx/why?at=1%3A27"
    assert done.stdout.startswith("jx was admitted: no room (at ")
    assert ", position 1:27)" in done.stdout
    network.answers[:] = [(200, WAITS)]
    done = CliRunner().invoke(app, ["why", "jx", "--json", "--api-url", network.url])
    assert json.loads(done.stdout) == WAITS


def test_a_time_without_a_zone_is_the_time_here() -> None:
    """The last one that has come; all else goes to the API as it is."""
    here = NOW.astimezone()
    asked = datetime.fromisoformat(local_moment(f"{here:%H:%M}", NOW))
    assert asked == here
    later = here + timedelta(minutes=1)
    assert datetime.fromisoformat(local_moment(f"{later:%H:%M:%S}", NOW)) == later - timedelta(days=1)
    assert datetime.fromisoformat(local_moment("2026-02-01T10:00", NOW)).tzinfo is not None
    for text in ("10m ago", "1:27", "25:00", "2026-02-01T10:00:00+00:00"):
        moment = local_moment(text, NOW)
        assert moment == text or datetime.fromisoformat(moment) == datetime.fromisoformat(text)


WOULD: dict[str, Any] = {
    "team": "red",
    "outcome": "starts",
    "code": "",
    "message": "16 GPUs start at once",
    "nodes": {"n1": 8, "n2": 8},
    "preempts": [],
    "gpu_type": "h100",
    "gpus": 16,
    "entitled": 24,
    "used": 32,
    "borrowed": 8,
    "why": None,
}


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        (
            {},
            [
                "would start at once",
                "  where      16 h100 GPUs on n1 (8), n2 (8)",
                "  team       red would have 32 h100 GPUs, and may claim 24: 8 of them borrowed",
            ],
        ),
        (
            {"outcome": "preempts", "code": "waits_for_preempted", "preempts": ["ja"], "borrowed": 0, "message": "m"},
            [
                "would start once 1 job stopped for it has ended: waits for preempted",
                "  m",
                "  where      16 h100 GPUs on n1 (8), n2 (8)",
                "  stops      ja",
                "  team       red would have 32 h100 GPUs, and may claim 24: none of them borrowed",
            ],
        ),
        (
            {"outcome": "rejected", "code": "too_many_pending", "message": "queue red lets 1 job wait", "nodes": {}},
            ["would be rejected: too many pending", "  queue red lets 1 job wait"],
        ),
        (
            {"gpus": 1, "nodes": {"n1": 1}, "used": 1, "entitled": 1, "borrowed": 0},
            [
                "would start at once",
                "  where      1 h100 GPU on n1 (1)",
                "  team       red would have 1 h100 GPU, and may claim 1: none of them borrowed",
            ],
        ),
        ({"outcome": "not_evaluated", "message": "m", "nodes": {}}, ["cannot be said", "  m"]),
    ],
)
def test_a_dry_run_says_when_where_and_at_whose_cost(
    capsys: pytest.CaptureFixture[str], changed: dict[str, Any], lines: list[str]
) -> None:
    """One line each."""
    print_dry_run(WOULD | changed, NOW)
    assert capsys.readouterr().out.splitlines() == lines


def test_a_dry_run_that_waits_says_why_and_for_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    """As `muster why` would."""
    print_dry_run(WOULD | {"outcome": "waits", "code": "no_room", "nodes": {}, "message": "m", "why": WAITS}, NOW)
    out = capsys.readouterr().out
    for part in ("would wait: no room", "start      in 35m 00s", "2 jobs before it", "held by    jy, jz"):
        assert part in out


@pytest.mark.parametrize("tier", ["held", "impossible", "over_quota"])
def test_what_a_job_would_cost_is_told_only_if_it_would_get_gpus(capsys: pytest.CaptureFixture[str], tier: str) -> None:
    """Else what its team has now: a job that stays outside borrows nothing."""
    waits = WAITS | {"tier": tier, "code": "over_limit", "gpu_type": "h100", "used": 16, "entitled": 16}
    print_dry_run(WOULD | {"outcome": "waits", "code": "over_limit", "nodes": {}, "why": waits}, NOW)
    out = capsys.readouterr().out
    assert "  team       red has 16 h100 GPUs, and may claim 16 now\n" in out
    assert "cost" not in out


def test_submit_and_run_ask_without_submitting(network: Network, tmp_path: Path) -> None:
    """No key is made, and a rejected job is exit code 1."""
    (tmp_path / "job.yaml").write_text("name: a\ngpus: 16\ncommand: [x]\n")
    network.answers.append((200, WOULD))
    argv = ["submit", str(tmp_path / "job.yaml"), "--dry-run", "--api-url", network.url]
    done = CliRunner().invoke(app, argv)
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "would start at once")
    assert network.asked[0][0] == "/v1/jobs:dry-run"
    assert network.asked[0][1].keys() == {"team", "spec"}
    network.answers[:] = [(200, WOULD | {"outcome": "rejected", "nodes": {}})]
    done = CliRunner().invoke(app, ["run", "--dry-run", "--json", "--api-url", network.url, "--", "x"])
    assert (done.exit_code, json.loads(done.stdout)["outcome"]) == (1, "rejected")
