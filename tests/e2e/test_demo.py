"""`muster demo`: what `make demo` runs."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.main.background import leftovers
from tests.e2e.user import MUSTER, environment, eventually

pytestmark = [pytest.mark.slow]

LOSS = ("falls off the bus (XID 79)", "drained", "ended by gpu", "attempt 2: 16 GPUs", "goes on at step")


@contextmanager
def started(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo whose data lies below `folder`; with the block it has ended, or is ended."""
    demo = subprocess.Popen(
        (*MUSTER, "demo"), cwd=folder, env={**environment(), "TMPDIR": str(folder)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield demo
    finally:
        if demo.poll() is None:
            demo.terminate()
        demo.communicate(timeout=60)


def test_two_demos_at_once_succeed_or_end_on_ctrl_c_and_leave_nothing(tmp_path: Path) -> None:
    """One runs to its end, the other is interrupted while the gang runs: no process and no file is left of either."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    with started(cut) as interrupted, started(whole) as demo:
        eventually(lambda: list(cut.glob("muster-demo-*/cluster/nodes/*/runs/*")), "ranks run", 60)
        interrupted.send_signal(signal.SIGINT)
        out, err = demo.communicate(timeout=80)
        _, cut_err = interrupted.communicate(timeout=60)

    assert demo.returncode == 0, (out, err)
    for part in (
        "succeeded",
        "job.placed",
        "same as the log says",
        "no GPU twice",
        "muster why",
        "What to try next",
        *LOSS,
    ):
        assert part in out
    assert interrupted.returncode == 130, cut_err
    assert "Traceback" not in err + cut_err
    for folder in (whole, cut):
        assert leftovers(folder) == []
        assert list(folder.iterdir()) == []


def test_a_demo_ends_on_sigterm_before_it_is_ready(tmp_path: Path) -> None:
    """As a CI that gives up sends it: nothing is left."""
    with started(tmp_path) as demo:
        eventually(lambda: list(tmp_path.glob("muster-demo-*/cluster/logs/up.log")), "it starts")
        demo.terminate()
        demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert leftovers(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
