"""Agents are replaced wave by wave on a real cluster, under a job that moves on; a node that does not come back stops it."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.user import User, cluster, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# What an operator's command is here: a signal to the agent of the node that is named; `muster up` starts it again.
COMMAND = """
import os, signal, sys
from pathlib import Path
named, number = b"MUSTER_NODE_ID=" + os.environ["MUSTER_NODE"].encode(), getattr(signal, sys.argv[1])
for entry in Path("/proc").iterdir():
    try:
        argv = (entry / "cmdline").read_bytes().split(bytes(1))
        folder = (entry / "environ").read_bytes()
    except OSError:
        continue
    if argv[-3:-1] == [b"-m", b"agent"] and named in folder.split(bytes(1)) and sys.argv[2].encode() in folder:
        os.kill(int(entry.name), number)
        print(entry.name)
"""


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    """Of a cluster of three nodes that misses a silent node after seconds."""
    with cluster(tmp_path, "--nodes", "3", "--gpus-per-node", "2", "--lost-after-s", "6") as user:
        yield user


def rollout(user: User, signal_name: str, *options: str) -> tuple[int, list[str], str]:
    """The exit code, the nodes that are done, and what was told."""
    argv = (sys.executable, "-I", "-c", COMMAND, signal_name, str(user.data_dir))
    said = user.muster("agents", "rollout", *options, "--", *argv, within_s=150)
    return said.code, said.out.split(), said.err


def nodes(user: User) -> dict[str, str]:
    """How each node stands."""
    return {node["node_id"]: node["standing"] for node in user.ok("nodes", "--json").documents}


def test_agents_are_replaced_wave_by_wave_and_a_node_that_stays_away_stops_it(user: User) -> None:
    """What runs is moved at the deadline; the node that was broken stays drained, and the next try begins with it."""
    job_id = user.submit({"name": "moves", "gpus": 2, "command": ["sleep", "600"], "stop_grace": "1s"})
    eventually(lambda: user.ok("job", job_id, "--json").document["state"] == "running", "it runs")
    agents = {pid: Path(f"/proc/{pid}/environ").read_bytes() for pid in user.pids("agent")}
    dry = user.ok("agents", "rollout", "--wave", "2", "--dry-run", "--", "true").out.splitlines()
    assert [line.split()[1:3] for line in dry] == [["1", "node-1"], ["1", "node-2"], ["2", "node-3"]]

    code, done, told = rollout(user, "SIGTERM", "--wave", "2", "--deadline", "1s", "--within", "60s")

    assert (code, done) == (0, ["node-1", "node-2", "node-3"]), told
    assert "wave 2 of 2: node-3" in told
    assert set(nodes(user).values()) == {"open"}
    assert not set(agents) & set(user.pids("agent")), "every agent is another process"
    kinds = [event["type"] for event in user.ok("events", "--json").documents]
    assert kinds.count("musterbook.node.drained.v1") == 3
    assert "musterbook.job.requeued.v1" in kinds
    eventually(lambda: user.ok("job", job_id, "--json").document["state"] == "running", "it runs elsewhere")

    code, done, told = rollout(user, "SIGSTOP", "--node", "node-1", "--deadline", "1s", "--within", "12s")
    assert (code, done) == (1, []), told
    assert "node-1 did not come back in time" in told
    assert {name: standing for name, standing in nodes(user).items() if standing != "open"} == {"node-1": "drained"}

    for pid in user.pids("agent"):
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: all(n["state"] == "up" for n in user.ok("nodes", "--json").documents), "it is heard again")
    code, done, told = rollout(
        user, "SIGTERM", "--node", "node-1", "--node", "node-2", "--wave", "50%", "--deadline", "1s"
    )
    assert (code, done) == (0, ["node-1", "node-2"]), told
    assert user.muster("verify").code == 0
