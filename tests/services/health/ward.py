"""A world whose GPUs have troubles: what agents say of them, in words of the log."""

from typing import Any, Final

from events.base import Event, GpuUuid, NodeId
from events.gpu import GpuJudged, GpuRecovered, GpuResetFailed, GpuSignal, GpuSignalled, Recovery
from projections.cluster.fitness import Fitness
from services.health.verdicts import decide
from tests.clusters import World

N1: Final = NodeId("n1")


class Ward(World):
    """Nodes by name and size; GPU `n1-0` is slot 0 of `n1`."""

    def of(self, name: str) -> dict[str, Any]:
        """What is said of a node's present life."""
        return {"at": self.at, "node_id": NodeId(name), "node_epoch": self.cluster.nodes[NodeId(name)].epoch}

    def fitness(self, name: str = "n1") -> Fitness:
        """Of a node."""
        return self.cluster.nodes[NodeId(name)].fitness

    def sick(self, name: str = "n1") -> int:
        """Slots of a node that are out."""
        return self.cluster.nodes[NodeId(name)].sick

    def signal(self, code: int, gpu: str = "n1-0", signal: GpuSignal = GpuSignal.XID) -> None:
        """The agent of the GPU's node reports a sign."""
        name, _, _ = gpu.rpartition("-")
        self.add(GpuSignalled(**self.of(name), gpu_uuid=GpuUuid(gpu), signal=signal, code=code))

    def recover(self, means: Recovery = Recovery.RESET, gpu: str = "n1-0") -> None:
        """The agent did something about a GPU."""
        name, _, _ = gpu.rpartition("-")
        self.add(GpuRecovered(**self.of(name), gpu_uuid=GpuUuid(gpu), means=means))

    def fail_reset(self, gpu: str = "n1-0") -> None:
        """The agent could not reset a GPU."""
        name, _, _ = gpu.rpartition("-")
        self.add(GpuResetFailed(**self.of(name), gpu_uuid=GpuUuid(gpu)))

    def reboot(self, name: str = "n1", boot_id: str = "another") -> None:
        """The node begins a new life after another boot, and finds its GPUs clean."""
        self.join(name, len(self.cluster.nodes[NodeId(name)].uuids), boot_id=boot_id)

    def judge(self) -> list[Event]:
        """What verdicts say now, and is now in the log."""
        said = decide(self.cluster, self.tick())
        self.add(*said)
        return said

    def verdict(self, code: int, gpu: str = "n1-0", signal: GpuSignal = GpuSignal.XID) -> GpuJudged:
        """What is said of a sign that comes now."""
        self.signal(code, gpu, signal)
        return next(event for event in self.judge() if isinstance(event, GpuJudged))
