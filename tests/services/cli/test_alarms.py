"""`muster alarms` and `muster node return`."""

from typing import Any

from typer.testing import CliRunner

from services.cli.app import app
from services.cli.failure import ExitCode, Failure
from tests.services.cli.network import Network

RAISED: dict[str, Any] = {
    "code": "breaker",
    "message": "20 of 100 GPUs are out",
    "hint": "look",
    "nodes": ["n1", "n2", "n3", "n4"],
    "nodes_total": 9,
    "raised_at": "2026-11-30T08:00:00Z",
    "cleared_at": None,
    "position": 7,
}


def test_what_needs_a_person_is_told_with_what_to_do(network: Network) -> None:
    """Only what is raised, unless the past is asked for."""
    network.answers.append((200, {"alarms": [RAISED], "next_cursor": None, "position": 9}))
    done = CliRunner().invoke(app, ["alarms", "--api-url", network.url], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    for part in ("breaker", "20 of 100 GPUs are out", "look", "n1,n2,n3 +6"):
        assert part in done.stdout
    assert "1 alarm raised" in done.stderr
    assert network.asked[0][0] == "/v1/alarms?raised=true&limit=50"

    network.answers[:] = [(200, {"alarms": [], "next_cursor": None, "position": 9})]
    done = CliRunner().invoke(app, ["alarms", "--past", "--api-url", network.url])
    assert "no alarm is raised" in done.stderr
    assert network.asked[1][0] == "/v1/alarms?raised=false&limit=50"


def test_gpus_are_returned(network: Network) -> None:
    """By slot or UUID, or all that are out; their UUIDs are on stdout."""
    network.answers.append((200, {"node_id": "n1", "gpus": ["GPU-1", "GPU-2"], "position": 9}))
    argv = ["node", "return", "n1", "--gpu", "0", "--gpu", "GPU-2", "--reason", "riser", "--api-url", network.url]
    done = CliRunner().invoke(app, argv)
    assert (done.exit_code, done.stdout) == (0, "GPU-1\nGPU-2\n")
    assert "return: 2 GPUs of n1, at position 0:9" in done.stderr
    assert network.asked == [("/v1/nodes/n1/gpus/return", {"gpus": ["0", "GPU-2"], "reason": "riser"})]
    assert network.headers[0]["muster-operator"]


def test_what_is_refused_is_said_with_its_hint(network: Network) -> None:
    """As the server says it."""
    network.answers.append(
        (404, {"code": "gpu_not_found", "detail": "node 'n1' has no GPU '9'", "hint": "slots 0 to 7"})
    )
    done = CliRunner().invoke(app, ["node", "return", "n1", "--gpu", "9", "--api-url", network.url])
    assert isinstance(done.exception, Failure)
    assert (done.exception.code, done.exception.hint) == (ExitCode.NOT_FOUND, "slots 0 to 7")
