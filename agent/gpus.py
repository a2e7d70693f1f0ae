"""The GPUs of a node and who holds them: by NVML, or simulated ones that any machine can have."""

import hashlib
import uuid
from pathlib import Path
from typing import Any, Final, Protocol

from agent import procfs
from agent.environment import DATA_MARK
from events.base import GpuUuid, NodeId
from runtime.fault import Fault

GPUS_MAX: Final = 63  # of one node: slots are bits of a mask that is a signed number of 64 bits
NVML_HINT: Final = "Is the NVIDIA driver installed and loaded? On a machine without GPUs, simulate some."


class Gpus(Protocol):
    """What an agent asks of GPUs."""

    @property
    def gpu_type(self) -> str:
        """What jobs ask for: the model, in lower case."""
        ...

    @property
    def uuids(self) -> tuple[GpuUuid, ...]:
        """All GPUs of the node, in a fixed order."""
        ...

    def busy(self, among: frozenset[GpuUuid]) -> frozenset[GpuUuid]:
        """Those that a living process holds."""
        ...


class SimulatedGpus:
    """GPUs that exist in name: one is held by each process of this agent's that has it in CUDA_VISIBLE_DEVICES."""

    def __init__(self, node_id: NodeId, count: int, gpu_type: str, data_dir: Path) -> None:
        assert 0 < count <= GPUS_MAX
        self.gpu_type = gpu_type
        self.uuids = tuple(_simulated_uuid(node_id, number) for number in range(count))
        self._mark = f"{DATA_MARK}={data_dir.absolute()}".encode()

    def busy(self, among: frozenset[GpuUuid]) -> frozenset[GpuUuid]:
        """Those that are visible to a living process. Another data directory's GPUs of the same name are others."""
        if not among:
            return among
        held = (env.get(b"CUDA_VISIBLE_DEVICES", b"") for _, env in procfs.marked(self._mark))
        return among & {GpuUuid(name) for names in held for name in names.decode().split(",")}


class NvmlGpus:
    """The GPUs that the NVIDIA driver knows. Raises `Fault` when there is no driver, or none it can use."""

    def __init__(self) -> None:
        import pynvml

        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
            self._handles = {GpuUuid(pynvml.nvmlDeviceGetUUID(handle)): handle for handle in handles}
            names = sorted({str(pynvml.nvmlDeviceGetName(handle)) for handle in handles})
        except pynvml.NVMLError as error:
            raise Fault("gpus_unreachable", f"The GPUs cannot be asked: {error}.", NVML_HINT) from error
        if len(names) != 1 or count > GPUS_MAX:
            found = f"{count} GPUs of {' and '.join(names) or 'no'} type"
            raise Fault("gpus_unsuited", f"Found {found}; a node has 1 to {GPUS_MAX} of one type.", NVML_HINT)
        self.gpu_type = type_of_name(names[0])
        self.uuids = tuple(self._handles)

    def busy(self, among: frozenset[GpuUuid]) -> frozenset[GpuUuid]:
        """Those on which a living process computes; one that the driver cannot answer for counts as held."""
        return frozenset(gpu for gpu in among if gpu in self._handles and self._is_busy(self._handles[gpu]))

    def _is_busy(self, handle: object) -> bool:
        try:
            processes = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except self._nvml.NVMLError:
            return True
        stats = (procfs.stat(process.pid) for process in processes)
        return any(stat is None or stat.state not in "ZX" for stat in stats)  # a pid that we cannot see may live


def type_of_name(name: str) -> str:
    """The type that jobs ask for, from a product name: `NVIDIA H100 80GB HBM3` is `h100-80gb-hbm3`."""
    words = name.lower().replace("nvidia", " ").replace("_", " ").split()
    return "-".join(words)


def _simulated_uuid(node_id: NodeId, number: int) -> GpuUuid:
    """The same for ever for a number on a node."""
    digest = hashlib.sha256(f"{node_id}/{number}".encode()).digest()
    return GpuUuid(f"GPU-{uuid.UUID(bytes=digest[:16], version=4)}")
