"""Lists, pages, timelines and reasons, as people and programs see them."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.detail import detail, short_type
from services.cli.events import print_event
from services.cli.jobs import print_timeline, row
from services.cli.logs import print_line
from tests.services.cli.network import Network


def job(number: int, **more: Any) -> dict[str, Any]:
    """A row of the list."""
    return {
        "job_id": f"j{number:013}",
        "name": "train",
        "team": "red",
        "state": "succeeded",
        "gpus": 8,
        "submitted_at": "2026-01-01T00:00:00Z",
        **more,
    }


def test_all_pages_are_read_and_each_job_is_a_line(network: Network) -> None:
    """--all goes on to the last page; with a limit the rest is mentioned on stderr."""
    page = {"jobs": [job(1), job(2)], "next_cursor": "99", "position": 1}
    network.answers.extend([(200, page), (200, {"jobs": [job(3)], "next_cursor": None, "position": 1})])
    done = CliRunner().invoke(app, ["jobs", "--all", "--json", "--team", "red", "--api-url", network.url])
    assert [json.loads(line)["job_id"][-1] for line in done.stdout.splitlines()] == ["1", "2", "3"]
    assert [path for path, _ in network.asked] == [
        "/v1/jobs?team=red&limit=500",
        "/v1/jobs?team=red&limit=500&cursor=99",
    ]
    network.answers[:] = [(200, page)]
    done = CliRunner().invoke(app, ["jobs", "--limit", "2", "--api-url", network.url])
    assert "there are more than these 2" in done.stderr
    assert len(done.stdout.splitlines()) == 3


PLACED = {
    "type": "musterbook.job.placed.v1",
    "position": (1 << 40) + 12,
    "at": "2026-01-01T00:00:01.5Z",
    "by": "",
    "subject": "job.red.jx",
    "data": {"run_id": "jx-1", "attempt": 1, "shares": [["node-1", 3, 255], ["node-2", 4, 255]]},
}
SUBMITTED = {
    "type": "musterbook.job.submitted.v1",
    "position": (1 << 40) + 11,
    "at": "2026-01-01T00:00:00Z",
    "by": "api:red",
}


def test_a_timeline_tells_times_since_the_first_event(capsys: pytest.CaptureFixture[str]) -> None:
    """With short types, who asked, and the nodes of a placement."""
    print_timeline([SUBMITTED, PLACED])
    assert capsys.readouterr().out.splitlines()[1:] == [
        "+0.000s      1:11  job.submitted  by api:red",
        "+1.500s      1:12  job.placed     run_id=jx-1 on node-1, node-2",
    ]
    print_timeline([])


def test_details_of_a_timeline_stay_where_the_terminal_is_narrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wrap: exit codes are what people look for. A node's report needs no second word on who reported."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    data = {"run_id": "jx-1", "node_id": "node-1", "reason": "exited", "exit_code": 9, "rank": 11}
    print_timeline([SUBMITTED, {**PLACED, "type": "musterbook.node.share_ended.v1", "by": "node:node-1", "data": data}])
    header, *_, last = capsys.readouterr().out.splitlines()
    assert header.split() == ["AT", "EVENT", "DETAIL"]
    assert last.endswith("  run_id=jx-1 node_id=node-1 reason=exited exit_code=9 rank=11")


def test_a_job_shows_a_command_that_can_be_pasted_and_who_cancelled_it_why(network: Network) -> None:
    """Words with blanks are quoted; the reason of a cancel is the one that was given."""
    spec = {"command": ["sh", "-c", "exit 3"]}
    cancelled = job(1, state="cancelled", cause="cancel", cancel_reason="too slow", spec=spec)
    network.answers.extend([(200, cancelled), (200, {"events": [], "truncated": False})])
    out = CliRunner().invoke(app, ["job", "j1", "--api-url", network.url]).stdout
    assert "command     sh -c 'exit 3'\n" in out
    assert "cancelled (too slow)\n" in out


def test_an_event_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Its document, or its details for people; an unknown type keeps its name."""
    print_event(PLACED, as_json=True)
    assert json.loads(capsys.readouterr().out) == PLACED
    print_event(PLACED, as_json=False)
    line = capsys.readouterr().out
    assert line.startswith("1:12       2026-01-01T00:00:01.5Z  job.placed ")
    assert line.endswith(" run_id=jx-1 on node-1, node-2\n")
    assert short_type({"type": "odd"}) == "odd"
    assert detail({"type": "odd"}) == ""


def test_lines_say_whose_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Unless one rank was asked for."""
    line = {"rank": 3, "text": "step 1"}
    print_line(line, as_json=False, with_rank=True)
    print_line(line, as_json=False, with_rank=False)
    print_line(line, as_json=True, with_rank=True)
    assert capsys.readouterr().out == '3: step 1\nstep 1\n{"rank": 3, "text": "step 1"}\n'


def test_what_matters_of_a_job_now_is_said() -> None:
    """Why it waits and when it may start; whether it borrows; for whom it stops."""
    now = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)
    for more, info in (
        ({"state": "admitted", "hold_code": "promised", "started_at": "2026-01-01T00:00:00Z"}, "promised"),
        (
            {"state": "admitted", "hold_code": "promised", "promised_start": "2026-01-01T00:13:20Z"},
            "promised, start in 3m 20s",
        ),
        ({"state": "running", "gpus_placed": 8, "borrowing": True, "attempt": 2}, "borrows, attempt 2"),
        ({"state": "running", "gpus_placed": 6, "min_gpus": 4}, "6 GPUs"),
        ({"state": "stopping", "cause": "preempted", "gpus_placed": 8}, "preempted"),
    ):
        *_, time, said = row(job(1, **more), now)
        assert (time, said) == ("", info)


def test_a_job_that_ended_for_others_says_for_whom(network: Network) -> None:
    """With what an elastic gang got, and how close together it must stay."""
    shown = job(1, state="running", min_gpus=4, gpus_placed=6, within="rack", within_required=False, max_runtime_s=7200)
    network.answers.extend(
        [(200, {**shown, "evictions": 2, "evicted_for": "jx"}), (200, {"events": [], "truncated": False})]
    )
    out = CliRunner().invoke(app, ["job", "j1", "--api-url", network.url]).stdout
    for line in (
        "gpus        4 to 8, got 6",
        "within      rack, if there is room",
        "limit       2h 00m",
        "stopped for jx, 2 so far",
    ):
        assert line + "\n" in out
