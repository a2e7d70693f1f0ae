"""`muster agents rollout`: what would be done, what is wrong with how it was asked, and one wave over HTTP."""

from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli import agents
from services.cli.app import app
from services.cli.failure import ExitCode, Failure
from services.main import rollout
from tests.services.cli.network import Network

NODE: dict[str, Any] = {
    "node_id": "n1", "state": "up", "epoch": 1, "instance": "i", "agent_version": "1.0", "labels": {"rack": "r1"},
    "drain": None, "retired_at": None, "gpus_out": 0, "gpus_sick": 0, "runs": 2, "gpus_used": 8,
}  # fmt: skip
DRAIN = {"cause": "upgrade", "window": "", "reason": "agents rollout", "drained_at": "2026-01-01T00:00:00Z"}


def nodes(*changed: dict[str, Any]) -> tuple[int, Any]:
    """An answer with these nodes."""
    return 200, {"nodes": [NODE | one for one in changed]}


def test_a_dry_run_tells_the_waves_and_writes_nothing(network: Network) -> None:
    """With what runs there, and who is left alone."""
    network.answers.append(nodes({}, {"node_id": "n2", "runs": 0}, {"node_id": "n3", "state": "lost"}))
    done = CliRunner().invoke(app, ["agents", "rollout", "--dry-run", "--api-url", network.url, "--", "true"])
    assert done.stdout == "wave 1  n1  agent 1.0  2 runs, 8 GPUs\nwave 2  n2  agent 1.0\n"
    assert "left alone: n3 is lost" in done.stderr
    assert "2 agents would be replaced" in done.stderr
    assert [path for path, _ in network.asked] == ["/v1/nodes?min_position=0"]


def test_a_wave_over_http(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drained for an upgrade, its command run with its name, used again."""
    monkeypatch.setattr(rollout, "LOOK_EVERY_S", 0.01)
    said = (200, {"nodes": ["n1"], "position": 7, "repeated": False})
    drained = nodes({"drain": DRAIN})
    policy = (200, {"document": {"suspect_after": "30s"}})
    back = nodes({"drain": DRAIN, "epoch": 9, "agent_version": "1.1"})
    network.answers.extend([nodes({}), policy, nodes({}), said, drained, back, said])
    argv = ["agents", "rollout", "--label", "rack=r1", "--to", "1.1", "--api-url", network.url]
    done = CliRunner().invoke(app, [*argv, "--", "sh", "-c", 'test "$MUSTER_NODE" = n1'])
    assert done.exit_code == 0, (done.stderr, done.exception)
    assert done.stdout == "n1\n"
    assert "n1 is back: agent 1.0 -> 1.1" in done.stderr
    posts = [(path, body) for path, body in network.asked if body is not None]
    reason = {"nodes": ["n1"], "reason": "agents rollout"}
    assert posts == [
        ("/v1/nodes/drain", reason | {"deadline": "1h", "cause": "upgrade"}),
        ("/v1/nodes/undrain", reason),
    ]
    assert network.asked[-2][0] == "/v1/nodes?min_position=7"
    assert agents.ByClient.__doc__


def test_a_command_that_fails_is_a_refusal_with_what_to_do(network: Network) -> None:
    """Its node is not used again."""
    said = (200, {"nodes": ["n1"], "position": 7, "repeated": False})
    policy = (200, {"document": {"suspect_after": "30s"}})
    network.answers.extend([nodes({}), policy, nodes({}), said, nodes({"drain": DRAIN})])
    done = CliRunner().invoke(app, ["agents", "rollout", "--api-url", network.url, "--", "sh", "-c", "echo no; exit 4"])
    assert isinstance(done.exception, Failure)
    assert str(done.exception) == "rollout: stopped: n1: the command ended with 4: no"
    assert "start this again" in done.exception.hint
    assert [path for path, body in network.asked if body is not None] == ["/v1/nodes/drain"]


@pytest.mark.parametrize(
    "options", [("--wave", "0"), ("--wave", "x%"), ("--within", "soon"), ("--deadline", "x"), ("--label", "rack")]
)
def test_what_is_wrong_is_said_before_anything_is_asked(network: Network, options: tuple[str, str]) -> None:
    """As wrong usage."""
    done = CliRunner().invoke(app, ["agents", "rollout", *options, "--api-url", network.url, "--", "true"])
    assert isinstance(done.exception, Failure)
    assert done.exception.code is ExitCode.USAGE
    assert network.asked == []
