"""The training in examples/: ranks that need each other, and specs that are taken."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from events.base import TeamId
from events.job import JobSpec
from services.gate.spec import checked
from tests.fixtures.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAIN = [sys.executable, "-I", str(EXAMPLES / "train.py")]


def rank_of(rank: int, world: int, folder: Path, port: int, **env: str) -> "subprocess.Popen[str]":
    """One rank, started."""
    told = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_PORT": str(port), "STEP_S": "0.01"}
    environ = {"PATH": os.environ["PATH"], "MUSTER_CHECKPOINT_DIR": str(folder)} | told | env
    return subprocess.Popen(TRAIN, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ends_of(ranks: "list[subprocess.Popen[str]]") -> list[tuple[int, str]]:
    """The exit code and the output of each, once all have ended."""
    outputs = [rank.communicate(timeout=30)[0] for rank in ranks]
    return [(rank.returncode, output) for rank, output in zip(ranks, outputs, strict=True)]


def test_all_ranks_end_with_the_same_weights_and_go_on_from_a_checkpoint(tmp_path: Path, unused_port: int) -> None:
    """A second attempt begins where the first has saved."""
    first = ends_of([rank_of(rank, 3, tmp_path, unused_port, STEPS="10") for rank in range(3)])
    safe = {"MUSTER_CHECKPOINT_FILE": str(tmp_path / "safe")}
    second = ends_of([rank_of(rank, 3, tmp_path, unused_port, STEPS="20", **safe) for rank in range(3)])

    assert [code for code, _ in first + second] == [0] * 6
    assert (tmp_path / "safe").read_text() == "20"
    weights = {output.rpartition("weights ")[2] for _, output in second}
    assert len(weights) == 1
    assert "goes on at step 10" in second[0][1]
    assert "step 20/20" in second[0][1]


def test_a_missing_rank_fails_the_training(tmp_path: Path, unused_port: int) -> None:
    """With a message that names it."""
    [(code, output), _] = ends_of([rank_of(rank, 3, tmp_path, unused_port, MEET_WITHIN_S="1") for rank in (0, 2)])

    assert code == 1
    assert "ranks [1] did not come within 1 s" in output


async def test_a_rank_that_dies_fails_the_others(tmp_path: Path, unused_port: int) -> None:
    """Nobody waits for ever."""
    ranks = [rank_of(rank, 2, tmp_path, unused_port, STEPS="100000") for rank in range(2)]
    await until((tmp_path / "checkpoint.json").exists, what="they train")
    ranks[1].kill()

    [(code, output), _] = ends_of(ranks)

    assert code == 1
    assert "another rank is gone" in output


async def test_a_checkpoint_is_saved_when_asked_for(tmp_path: Path, unused_port: int) -> None:
    """All ranks stop behind the same step, and exit well."""
    ranks = [rank_of(rank, 2, tmp_path, unused_port, STEPS="100000") for rank in range(2)]
    await until((tmp_path / "checkpoint.json").exists, what="they train")
    ranks[1].send_signal(signal.SIGUSR2)

    ends = ends_of(ranks)

    assert [code for code, _ in ends] == [0, 0]
    assert all("as it was told" in output for _, output in ends)


@pytest.mark.parametrize(("name", "gpus"), [("gang", 16), ("small", 1), ("too-large", 64), ("train-numpy", 4)])
def test_example_specs_are_taken(name: str, gpus: int) -> None:
    """They are what a first job is copied from."""
    raw = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    spec = checked(raw | {"workdir": str(EXAMPLES)}, TeamId("red"))

    assert isinstance(spec, JobSpec), spec
    assert (spec.name, spec.gpus, spec.max_runtime_s) == (name, gpus, 300)


@pytest.fixture
def unused_port(tmp_path: Path) -> int:
    """A port that nobody listens at."""
    from runtime.embedded.ports import free_port

    return free_port(tmp_path)
