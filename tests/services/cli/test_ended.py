"""How a job ended, as an exit code and in words."""

from typing import Any

import pytest

from services.cli.client import Client, Server
from services.cli.ended import code_text, exit_code_of, say_end, wait_for
from services.cli.failure import ExitCode, Failure
from tests.services.cli.network import Network


def job(state: str, **more: Any) -> dict[str, Any]:
    """A job's document."""
    return {"job_id": "jx", "state": state, "message": "", "reason": "", "hold_code": "", "exit_code": None, **more}


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (job("succeeded", exit_code=0), 0),
        (job("failed", exit_code=1), 1),
        (job("failed", exit_code=137), 137),
        (job("failed", exit_code=255), 255),
        (job("failed", exit_code=300), 6),
        (job("failed", reason="start_failed"), 6),
        (job("cancelled", exit_code=143), 6),
        (job("timed_out"), 6),
        (job("rejected"), 6),
    ],
)
def test_the_jobs_own_code_where_it_failed_by_one(document: dict[str, Any], code: int) -> None:
    """Every other end has one code of its own; none but success is 0."""
    assert exit_code_of(document) == code


def test_the_end_is_told_with_its_cause(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, with where to look further."""
    say_end(job("failed", exit_code=3, reason="rank_failed"))
    captured = capsys.readouterr()
    assert "jx: failed (exit code 3, rank failed)" in captured.err
    assert "muster logs jx" in captured.err
    assert captured.out == ""


def test_a_cancel_is_told_with_the_reason_that_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    """And without one where none was."""
    say_end(job("cancelled", reason="cancel", cancel_reason="too slow"))
    assert "muster: jx: cancelled (too slow)\n" in capsys.readouterr().err
    say_end(job("cancelled", reason="cancel", cancel_reason=""))
    assert "muster: jx: cancelled\n" in capsys.readouterr().err


def test_each_state_on_the_way_is_told_once_and_the_end_left_to_the_caller(
    network: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wait that also told the end would tell it twice."""
    waits = job("admitted", hold_code="no_room")
    network.answers.extend([(200, waits), (200, waits), (200, job("running")), (200, job("succeeded"))])
    with Client(Server(network.url, "the test")) as client:
        wait_for(client, "jx", tell=True)
    assert capsys.readouterr().err.splitlines() == ["muster: jx: admitted (no room)", "muster: jx: running"]


def test_a_wait_outlives_a_restart_of_the_server_and_ends_in_time(network: Network) -> None:
    """Answers that fail for a while are waited out; a wait with a limit keeps it, and tells each state once."""
    network.answers.extend(
        [(504, {"code": "behind"}), (200, job("queued")), (200, job("running")), (200, job("succeeded"))]
    )
    with Client(Server(network.url, "the test")) as client:
        assert wait_for(client, "jx", tell=True)["state"] == "succeeded"
        network.answers[:] = [(200, job("running"))]
        with pytest.raises(Failure, match=r"has not ended within 0.3 s") as failed:
            wait_for(client, "jx", timeout_s=0.3)
    assert failed.value.code is ExitCode.TIMEOUT


@pytest.mark.parametrize(
    ("code", "text"), [(0, ""), (3, "exit code 3"), (137, "exit code 137 (signal 9)"), (128, "exit code 128")]
)
def test_an_exit_code_says_which_signal_it_was(code: int, text: str) -> None:
    """128 + n after signal n."""
    assert code_text(code) == text
