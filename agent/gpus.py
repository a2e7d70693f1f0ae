"""What an agent asks of the GPUs of its node: the port behind which a driver is real, or simulated."""

from typing import Final, Protocol

from agent.core.signs import Look
from events.base import GpuUuid

GPUS_MAX: Final = 63  # of one node: slots are bits of a mask that is a signed number of 64 bits


class Gpus(Protocol):
    """The GPUs of one node."""

    @property
    def gpu_type(self) -> str:
        """What jobs ask for: the model, in lower case."""
        ...

    @property
    def uuids(self) -> tuple[GpuUuid, ...]:
        """All GPUs of the node, in a fixed order, also those that do not answer."""
        ...

    def busy(self, among: frozenset[GpuUuid]) -> frozenset[GpuUuid]:
        """Those that a living process holds."""
        ...

    async def look(self, since: int) -> Look:
        """What all GPUs show now, and the errors reported since the look whose `mark` was `since`; 0: in this boot.

        May take seconds where a GPU is slow to answer.
        """
        ...

    async def reset(self, gpu_uuid: GpuUuid) -> str:
        """The GPU was reset, or why it could not be. Takes seconds; what asks meanwhile takes GPUs for held."""
        ...
