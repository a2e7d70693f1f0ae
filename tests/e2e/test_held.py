"""A job that a lost node has ended once too often waits for a person, says so, and goes on when one has looked."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.cli.failure import ExitCode
from tests.e2e.user import User, agent_of, cluster, eventually
from tests.fixtures.waiting import freeze

pytestmark = [pytest.mark.slow]


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    """Of a cluster that gives a silent node up after three seconds."""
    with cluster(tmp_path, "--nodes", "2", "--gpus-per-node", "4", "--lost-after-s", "3") as user:
        yield user


def test_a_held_job_tells_whoever_waits_and_goes_on_when_it_is_resumed(user: User) -> None:
    """What ended it is a line of its own, with the node and its silence; and its own failure is another one after that."""
    script = "if [ $MUSTER_ATTEMPT = 1 ]; then touch $MARK; sleep 600; fi; exit 3"
    spec = {
        "name": "held", "gpus": 1, "command": ["sh", "-c", script], "env": {"MARK": f"{user.folder}/began"},
        "retries_infrastructure": 0, "start_within": "1m",
    }  # fmt: skip
    job_id = user.submit(spec)
    assert "nothing to resume" in user.muster("resume", job_id).err
    eventually((user.folder / "began").exists, "it runs")
    (node_id,) = user.ok("job", job_id, "--json").document["node_ids"]
    frozen = agent_of(user, node_id)
    freeze(frozen)

    waited = user.muster("wait", job_id, "--timeout", "40")
    assert waited.code == ExitCode.HELD, waited
    assert f"muster resume {job_id}" in waited.err
    assert "failed_too_often" in user.ok("why", job_id, "--json").out
    shown = user.ok("job", job_id).out
    assert f"attempt 1: 1 GPU on {node_id}; ended by node: {node_id} was lost after" in shown
    assert "since its start lost; held" in shown

    assert "waits for GPUs again" in user.ok("resume", job_id, "--reason", "looked at it").err
    assert user.muster("wait", job_id, "--timeout", "40").code == 3
    first, second = user.ok("job", job_id, "--json").document["attempts"]
    assert (first["category"], second["category"], second["exit_code"]) == ("node", "user", 3)
    assert second["node_ids"] != [node_id]
    assert second["ended_by"] == f"a rank on {second['node_ids'][0]} exited with 3"
    assert "was resumed already" in user.ok("resume", job_id).err

    os.kill(frozen, signal.SIGCONT)
    assert user.muster("verify").code == 0
