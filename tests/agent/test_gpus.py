"""GPUs: simulated ones are stable and held by what runs; without a driver NVML says so."""

import os
import subprocess
from pathlib import Path

import pytest

from agent.nvml import NvmlGpus, type_of_name
from agent.simulated import SimulatedGpus
from events.base import NodeId
from runtime.fault import Fault
from tests.fixtures.waiting import until


def test_simulated_gpus_are_the_same_for_ever(tmp_path: Path) -> None:
    """By node and number, whatever the data directory; those of another node are others."""
    first = SimulatedGpus(NodeId("a"), 8, "h100", tmp_path)

    assert first.uuids == SimulatedGpus(NodeId("a"), 8, "h100", tmp_path / "other").uuids
    assert len({*first.uuids, *SimulatedGpus(NodeId("b"), 8, "h100", tmp_path).uuids}) == 16
    assert first.uuids[0] == "GPU-d7e98967-056f-4828-8b38-8a7930d88594"


async def test_a_simulated_gpu_is_held_while_a_process_of_the_agents_sees_it(tmp_path: Path) -> None:
    """And one of another data directory's that has the same name is not."""
    gpus = SimulatedGpus(NodeId("a"), 4, "h100", tmp_path)
    others = SimulatedGpus(NodeId("a"), 4, "h100", tmp_path / "other")
    env = {"MUSTER_AGENT_DATA": str(tmp_path), "CUDA_VISIBLE_DEVICES": ",".join(gpus.uuids[1:3])}
    process = subprocess.Popen(["sleep", "60"], env=env | {"PATH": os.environ["PATH"]})  # noqa: ASYNC220 - at once
    try:
        await until(lambda: gpus.busy(frozenset(gpus.uuids)), what="it has its environment")
        assert gpus.busy(frozenset(gpus.uuids)) == set(gpus.uuids[1:3])
        assert gpus.busy(frozenset(gpus.uuids[:2])) == {gpus.uuids[1]}
        assert others.busy(frozenset(others.uuids)) == frozenset()
    finally:
        process.kill()
        process.wait()
    assert gpus.busy(frozenset(gpus.uuids)) == frozenset()


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_without_a_driver_nvml_says_what_is_missing() -> None:
    """A code, a sentence and a hint, instead of an error number."""
    with pytest.raises(Fault, match="cannot be asked") as raised:
        NvmlGpus(mark=b"x")

    assert raised.value.code == "gpus_unreachable"
    assert "driver" in raised.value.hint


@pytest.mark.parametrize(
    ("name", "gpu_type"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
        ("Tesla T4", "tesla-t4"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
    ],
)
def test_a_type_is_the_product_without_its_maker(name: str, gpu_type: str) -> None:
    """What jobs ask for."""
    assert type_of_name(name) == gpu_type
