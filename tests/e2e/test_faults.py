"""Real faults on a production-like cell, the short form of `python -m bench.faults --seconds 600`."""

import asyncio
import os
from pathlib import Path
from typing import Final

import pytest

from bench.faults import measure

SECONDS: Final = float(os.environ.get("FAULTS_S", "10"))
SEED: Final = int(os.environ.get("FAULTS_SEED", "3"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(int(SECONDS) + 300)]


def test_a_cell_of_three_servers_and_two_control_planes_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Whatever is killed or frozen: jobs end as they may, no GPU is shared, all GPUs come back, log and tables hold."""
    figures = asyncio.run(measure(tmp_path, seconds=SECONDS, nodes=10, seed=SEED))

    assert figures["wrong"] == []
    assert figures["faults"] >= 2
    assert figures["jobs"] >= 10
    assert figures["decided_s"]["never"] == figures["probed_s"]["never"] == 0
