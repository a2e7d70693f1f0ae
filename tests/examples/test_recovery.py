"""The trainings in examples/ that go on after any stop: the result is that of a run which nobody disturbed."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from runtime.embedded.ports import free_port
from tests.e2e.user import User, cluster, eventually
from tests.fixtures.waiting import freeze, until

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
NUMPY: Final = EXAMPLES / "train_numpy.py"
DDP: Final = EXAMPLES / "train_ddp.py"
STEPS: Final = 60


class Training:
    """Attempts at one training in a folder, as an agent would start them."""

    def __init__(self, script: Path, folder: Path, *, world: int = 2, env: dict[str, str] | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.safe, self.stop = folder / "safe", folder / "stop.json"
        self._script = script
        self._world = world
        self._env = {"STEPS": str(STEPS), "STEP_S": "0", "SAVE_EVERY": "10"} | (env or {})
        self._ranks: list[subprocess.Popen[str]] = []

    def start(self, **env: str) -> "list[subprocess.Popen[str]]":
        """All ranks are started."""
        told = {
            "PATH": os.environ["PATH"],
            "WORLD_SIZE": str(self._world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port(self.folder)),
            "MUSTER_CHECKPOINT_DIR": str(self.folder),
            "MUSTER_CHECKPOINT_FILE": str(self.safe),
            "MUSTER_STOP_FILE": str(self.stop),
        }
        argv = [sys.executable, "-I", str(self._script)]
        self._ranks = [
            subprocess.Popen(
                argv,
                env=told | self._env | env | {"RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(self._world)
        ]
        return self._ranks

    def ends(self) -> list[tuple[int, str]]:
        """The exit code and the output of each rank, once all have ended."""
        outputs = [rank.communicate(timeout=60)[0] for rank in self._ranks]
        return [(rank.returncode, output) for rank, output in zip(self._ranks, outputs, strict=True)]

    def result(self, **env: str) -> str:
        """What an attempt to the end says of the loss and the weights, the same on every rank."""
        self.start(**env)
        ends = self.ends()
        assert [code for code, _ in ends] == [0] * self._world, ends
        results = {output.rpartition("final ")[2].strip() for _, output in ends}
        assert len(results) == 1, results
        return results.pop()

    async def trains(self) -> None:
        """The first checkpoint is safe."""
        await until(self.safe.exists, what="a checkpoint is safe", within_s=60)


def test_the_result_is_the_same_each_time(tmp_path: Path) -> None:
    """Else there would be nothing to compare."""
    first = Training(NUMPY, tmp_path / "first").result()

    assert first == Training(NUMPY, tmp_path / "second").result()
    assert first != Training(NUMPY, tmp_path / "other", env={"STEPS": str(STEPS + 1)}).result()


async def test_a_run_that_is_told_to_stop_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    """It saves when asked, says why it stops, and ends with the same bits."""
    undisturbed = Training(NUMPY, tmp_path / "a").result()
    training = Training(NUMPY, tmp_path / "b")
    training.stop.write_text(json.dumps({"reason": "preempted", "deadline": "2026-01-01T00:00:20Z"}))
    ranks = training.start(STEP_S="0.02")
    await training.trains()
    ranks[1].send_signal(signal.SIGUSR2)
    ends = training.ends()

    assert [code for code, _ in ends] == [0, 0]
    assert all("(preempted, deadline 2026-01-01T00:00:20Z)" in output for _, output in ends)
    stopped = int(training.safe.read_text())
    assert 10 <= stopped < STEPS
    assert training.result() == undisturbed


async def test_a_run_that_loses_a_rank_goes_on_from_what_is_safe(tmp_path: Path) -> None:
    """What came after the checkpoint is lost, and made again alike; a checkpoint that is damaged is passed over."""
    undisturbed = Training(NUMPY, tmp_path / "a", world=3).result()
    training = Training(NUMPY, tmp_path / "b", world=3)
    ranks = training.start(STEP_S="0.02")
    await until(lambda: len(list(training.folder.glob("step-*.npz"))) == 2, what="two checkpoints", within_s=60)
    ranks[2].kill()
    ends = training.ends()

    assert [code for code, _ in ends] == [1, 1, -signal.SIGKILL]
    assert "another rank is gone" in ends[0][1]
    newest = max(training.folder.glob("step-*.npz"))
    newest.write_bytes(newest.read_bytes()[:100])
    assert training.result() == undisturbed


def test_ranks_that_see_different_folders_do_not_train(tmp_path: Path) -> None:
    """The commonest mistake: checkpoints on the disk of one node."""
    Training(NUMPY, tmp_path / "a", env={"STEPS": "10"}).result()
    port = str(free_port(tmp_path))
    ranks = [
        subprocess.Popen(
            [sys.executable, "-I", str(NUMPY)],
            env={
                "PATH": os.environ["PATH"],
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_PORT": port,
                "MUSTER_CHECKPOINT_DIR": str(tmp_path / ("a" if rank == 0 else "")),
            },
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, 1]
    assert "one folder that all nodes see" in errors[0]


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is not None, reason="what it says without torch cannot be seen: torch is here"
)
def test_without_torch_it_says_what_to_install(tmp_path: Path) -> None:
    """A sentence, no traceback."""
    training = Training(DDP, tmp_path, world=1)
    training.start()
    [(code, output)] = training.ends()
    assert (code, output.count("\n")) == (1, 1)
    assert "pip install torch" in output


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="torch is no dependency of the project: pip install torch, then this runs too",
)
async def test_with_torch_the_loss_is_that_of_an_undisturbed_run(tmp_path: Path) -> None:
    """Told to stop, and then with a rank killed: equal within the last digits."""
    undisturbed = loss_of(Training(DDP, tmp_path / "a").result())
    training = Training(DDP, tmp_path / "b")
    ranks = training.start(STEP_S="0.02")
    await training.trains()
    ranks[1].send_signal(signal.SIGUSR2)
    assert [code for code, _ in training.ends()] == [0, 0]
    stopped = int(training.safe.read_text())
    ranks = training.start(STEP_S="0.02")
    await until(lambda: int(training.safe.read_text()) > stopped, what="it went on", within_s=60)
    ranks[1].kill()
    assert training.ends()[0][0] != 0
    assert loss_of(training.result()) == pytest.approx(undisturbed, rel=1e-9)


def loss_of(result: str) -> float:
    """The number in `loss 0.5`."""
    return float(result.removeprefix("loss ").split(",")[0])


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    """Of a cluster of three nodes that gives a silent one up after three seconds."""
    with cluster(tmp_path, "--nodes", "3", "--gpus-per-node", "1", "--lost-after-s", "3") as user:
        yield user


@pytest.mark.slow
def test_a_gang_that_loses_a_node_ends_with_the_loss_of_one_that_did_not(user: User) -> None:
    """The whole story on a cluster: a node dies, the gang is stopped and starts again with another, from what is safe."""
    env = {"STEPS": "150", "STEP_S": "0.02", "SAVE_EVERY": "10"}
    undisturbed = Training(NUMPY, user.folder / "alone", env=env).result(STEP_S="0")
    saved = user.folder / "saved"
    saved.mkdir()
    spec = {
        "name": "train",
        "command": [sys.executable, "-I", str(NUMPY)],
        "gpus": 2,
        "nodes": 2,
        "gpus_per_node": 1,
        "env": env,
        "checkpoint": {"grace": "5s", "directory": str(saved)},
        "retries_application": 1,
    }
    job_id = user.submit(spec)
    eventually(lambda: list(saved.glob("step-*.npz")), "a checkpoint is safe")
    [placed] = events(user, "job.placed")
    lost = placed["data"]["shares"][1][0]
    frozen = die(user, lost)

    assert user.muster("wait", job_id, "--timeout", "60").code == 0
    os.kill(frozen, signal.SIGCONT)
    said = user.ok("logs", job_id).out
    assert "attempt 2 goes on at step" in said
    assert said.rpartition("final ")[2].splitlines()[0] == undisturbed
    nodes = [[share[0] for share in event["data"]["shares"]] for event in events(user, "job.placed")]
    assert [lost in each for each in nodes] == [True, False]
    [requeued] = events(user, "job.requeued")
    assert requeued["data"]["avoid"] == [lost]
    assert user.muster("verify").code == 0


def events(user: User, kind: str) -> list[dict[str, Any]]:
    """The events of a kind, in order."""
    said = user.ok("events", "--json").documents
    return [event for event in said if event["type"] == f"musterbook.{kind}.v1"]


def die(user: User, node_id: str) -> int:
    """The node is gone at once: its ranks are dead and nobody hears its agent, which is frozen; the agent's process."""
    mark = f"MUSTER_NODE_ID={node_id}".encode()
    (agent,) = [pid for pid in user.pids("agent") if mark in environment_of(pid)]
    freeze(agent)
    data = f"MUSTER_AGENT_DATA={user.folder}".encode()
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        words = environment_of(pid)
        if pid != agent and mark in words and any(word.startswith(data) for word in words):
            os.kill(pid, signal.SIGKILL)
    return agent


def environment_of(pid: int) -> list[bytes]:
    """Its variables; none of a process that is gone, or another user's."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
