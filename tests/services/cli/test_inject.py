"""`muster node inject`: what was done is said, what cannot be has its exit code."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.simulated import SimulatedGpus
from events.base import NodeId
from services.cli.app import app
from services.cli.failure import ExitCode, Failure


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Of a cluster with one node."""
    SimulatedGpus(NodeId("node-1"), 4, "h100", tmp_path / "nodes" / "node-1")
    return tmp_path


@pytest.mark.parametrize(
    ("runs", "said"), [(True, "takes that in at its next look; muster events -f"), (False, "when it is started")]
)
def test_what_was_injected_and_what_follows_is_said(data_dir: Path, said: str, *, runs: bool) -> None:
    """On stderr: there is no result for a script."""
    (data_dir / "nodes" / "node-1" / "lock").write_text(f"{os.getpid() if runs else 1 << 22}\n")
    argv = ["node", "inject", "node-1", "--signal", "recovery-action", "--gpu", "2", "--data-dir", str(data_dir)]
    done = CliRunner().invoke(app, argv)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "inject: GPU 2 of node-1 will show recovery_action 1: that the driver asks for this" in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["node-1", "--signal", "tired"], ExitCode.USAGE),
        (["node-1"], ExitCode.USAGE),
        (["node-2", "--clear"], ExitCode.NOT_FOUND),
        (["node-1", "--gpu", "9", "--clear"], ExitCode.NOT_FOUND),
    ],
)
def test_what_cannot_be_ends_with_its_code(data_dir: Path, argv: list[str], code: ExitCode) -> None:
    """And a hint."""
    done = CliRunner().invoke(app, ["node", "inject", *argv, "--data-dir", str(data_dir)])
    assert isinstance(done.exception, Failure)
    assert (done.exception.code, done.exception.hint != "") == (code, True)
