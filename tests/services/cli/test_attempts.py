"""Attempts in words, resuming, and what a wait makes of a job that waits for a person."""

from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.attempts import line, print_attempts
from services.cli.failure import ExitCode
from services.cli.jobs import row
from tests.services.cli.network import Network

NOW = datetime(2026, 1, 1, 1, tzinfo=UTC)
RUN: dict[str, Any] = {
    "attempt": 1, "state": "requeued", "category": "node", "cause": "node_lost", "ended_by": "", "held": False,
    "gpus": 8, "node_ids": ["node-3", "node-4"], "started_at": "2026-01-01T00:00:00Z",
    "ended_at": "2026-01-01T00:20:00Z", "checkpoint": None, "lost_gpu_s": None,
}  # fmt: skip
LOST = "node-4 was lost after 92 s of silence"


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (
            {"ended_by": LOST, "checkpoint": 7, "lost_gpu_s": 8 * 840.0},
            f"attempt 1: 8 GPUs on node-3, node-4; ended by node: {LOST}; 14m 00s since checkpoint 7 lost",
        ),
        (
            {"ended_by": LOST, "lost_gpu_s": 8 * 60.0, "held": True},
            f"attempt 1: 8 GPUs on node-3, node-4; ended by node: {LOST}; 1m 00s since its start lost; held",
        ),
        (
            {"ended_by": "node-4 had not started its ranks in time", "started_at": None, "lost_gpu_s": 99.0},
            "attempt 1: 8 GPUs on node-3, node-4; ended by node: node-4 had not started its ranks in time",
        ),
        (
            {"category": "", "cause": "drain", "ended_by": "node-3 was drained", "checkpoint": 2, "lost_gpu_s": 0.0},
            "attempt 1: 8 GPUs on node-3, node-4; ended: node-3 was drained",
        ),
        (
            {"attempt": 2, "state": "succeeded", "category": ""},
            "attempt 2: 8 GPUs on node-3, node-4; succeeded, ran 20m 00s",
        ),
        (
            {"state": "running", "category": "", "ended_at": None},
            "attempt 1: 8 GPUs on node-3, node-4; running for 1h 00m",
        ),
        (
            {"state": "placed", "category": "", "started_at": None, "ended_at": None, "gpus": 1, "node_ids": ["n"]},
            "attempt 1: 1 GPU on n; placed",
        ),
    ],
)
def test_an_attempt_is_a_line_that_says_what_ended_it_and_what_was_lost(said: dict[str, Any], text: str) -> None:
    """As time, not as GPU-seconds; nothing is lost by who never began."""
    assert line(RUN | said, NOW) == text


def test_of_many_attempts_and_nodes_some_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """And how many more there are."""
    print_attempts([RUN | {"attempt": number, "node_ids": [f"n{n}" for n in range(40)]} for number in range(30)], NOW)
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "the last 20 of 30 attempts:"
    assert len(out) == 21
    assert "n7 and 32 more" in out[1]


JOB: dict[str, Any] = {
    "job_id": "jx", "name": "train", "team": "red", "state": "queued", "hold_code": "failed_too_often", "gpus": 8,
    "submitted_at": "2026-01-01T00:00:00Z", "message": "", "reason": "failed_too_often", "exit_code": None,
}  # fmt: skip


def test_a_job_shows_its_attempts_above_its_timeline(network: Network) -> None:
    """With the state that asks for a person."""
    document = JOB | {"attempts": [RUN | {"ended_by": LOST}], "bills": [], "spec": {"command": ["true"]}}
    network.answers.extend([(200, document), (200, {"events": [], "truncated": False})])
    done = CliRunner().invoke(app, ["job", "jx", "--api-url", network.url])
    assert "queued (failed too often)" in done.stdout
    assert f"attempt 1: 8 GPUs on node-3, node-4; ended by node: {LOST}" in done.stdout
    assert row(JOB, NOW)[-1] == "failed too often"


@pytest.mark.parametrize(
    ("repeated", "words"), [(False, "jx: waits for GPUs again; muster why jx"), (True, "jx: was resumed already")]
)
def test_resume_says_what_became_of_the_word_and_waits_until_it_shows(
    network: Network, repeated: bool, words: str
) -> None:
    """Its reason is kept; whoever looks next finds the job resumed."""
    answer = {"job_id": "jx", "team": "red", "position": 77, "repeated": repeated}
    network.answers.extend([(200, answer), (200, JOB)])
    done = CliRunner().invoke(app, ["resume", "jx", "--reason", "mended", "--api-url", network.url])
    assert done.exit_code == 0
    assert words in done.stderr
    assert network.asked == [("/v1/jobs/jx:resume", {"reason": "mended"}), ("/v1/jobs/jx?min_position=77", None)]


def test_a_job_that_is_not_held_is_refused_with_a_hint(network: Network) -> None:
    """As the gate says it."""
    problem = {"code": "conflict", "detail": "job_id: jx is not held for its failures: nothing to resume", "hint": "h"}
    network.answers.append((409, problem))
    done = CliRunner().invoke(app, ["resume", "jx", "--api-url", network.url])
    assert done.exception is not None
    assert "nothing to resume" in str(done.exception)
    assert getattr(done.exception, "code", None) is ExitCode.REFUSED


def test_a_wait_for_a_job_that_waits_for_a_person_ends_with_a_code_of_its_own(network: Network) -> None:
    """A script is told, and does not hang until somebody looks."""
    network.answers.extend([(200, JOB | {"hold_code": "backing_off"}), (200, JOB)])
    done = CliRunner().invoke(app, ["wait", "jx", "--api-url", network.url])
    assert getattr(done.exception, "code", None) is ExitCode.HELD
    assert "muster resume jx" in getattr(done.exception, "hint", "")
