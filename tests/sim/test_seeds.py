"""Some worlds hold all laws, each time the same; and the way of finding breaches finds one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.run import run

SEEDS = range(10)
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("seed", SEEDS)
def test_a_world_holds_all_laws(seed: int) -> None:
    """`make sim SEED=…` shows the trace of one that does not."""
    outcome = run(seed)
    assert not outcome.law, "\n".join((*outcome.last, f"{outcome.law}: {outcome.message}", f"make sim SEED={seed}"))
    assert outcome.records > 50


def test_a_replay_is_the_same_to_the_last_line() -> None:
    """In another process, in which names are hashed otherwise: else a seed would name no world."""
    told = []
    for hashes in ("1", "2"):
        command = [sys.executable, "-m", "tests.sim", "--seed", "5", "--until", "40"]
        environ = os.environ | {"PYTHONHASHSEED": hashes}
        ended = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=60)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        told.append(ended.stdout)
    assert "trace " in told[0]
    assert told[0] == told[1]


def test_a_breach_is_found_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that holds a GPU while it is said to be released: one line of the machine lies about who is busy."""
    monkeypatch.setattr("tests.sim.machine.Machine.busy", lambda _machine, _among: frozenset())
    monkeypatch.setattr("agent.core.found.Trace.alive", property(lambda _trace: False))
    outcomes = [run(seed) for seed in range(2)]
    broken = [outcome for outcome in outcomes if outcome.law]
    assert broken
    assert "BROKEN" in "\n".join(broken[0].last)
