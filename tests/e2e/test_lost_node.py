"""A node that falls silent is given up, its job starts elsewhere, and when it comes back nothing counts twice."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.user import User, agent_of, cluster, eventually
from tests.fixtures.waiting import freeze

pytestmark = [pytest.mark.slow]


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    """Of a cluster that gives a silent node up after three seconds."""
    with cluster(tmp_path, "--nodes", "2", "--gpus-per-node", "4", "--lost-after-s", "3") as user:
        yield user


def test_a_silent_nodes_job_starts_elsewhere_and_its_return_ends_the_old_ranks(user: User) -> None:
    """The agent is frozen, its ranks live on: they are ended when it wakes, before its GPUs are in the pool again."""
    script = f'echo "$MUSTER_ATTEMPT $MUSTER_NODE_ID $$" >> {user.folder}/starts; [ $MUSTER_ATTEMPT = 2 ] || sleep 600'
    job_id = user.submit({"name": "moved", "gpus": 1, "command": ["sh", "-c", script]})
    starts = user.folder / "starts"
    eventually(starts.exists, "it runs")
    attempt, node_id, pid = starts.read_text().split()
    frozen = agent_of(user, node_id)
    freeze(frozen)

    assert user.muster("wait", job_id, "--timeout", "40").code == 0
    assert (attempt, Path(f"/proc/{pid}").exists()) == ("1", True), "the first attempt's rank lives on, out of reach"
    second = starts.read_text().splitlines()[1].split()
    assert second[0] == "2"
    assert second[1] != node_id

    os.kill(frozen, signal.SIGCONT)
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the node has ended what was given up")
    eventually(
        lambda: sum(node["gpus_free"] for node in user.ok("nodes", "--json").documents) == 8, "all its GPUs are back"
    )
    assert len(starts.read_text().splitlines()) == 2
    kinds = [event["type"] for event in user.ok("events", "--json").documents]
    assert kinds.count("musterbook.node.lost.v1") == 1
    assert kinds.count("musterbook.node.joined.v1") == 3
    assert user.muster("verify").code == 0
