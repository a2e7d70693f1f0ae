"""What an agent asks of the machine it runs on: its processes. The port behind which they are real, or simulated."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from agent.core.found import Rank, Step
from agent.records import RunRecord
from events.base import RunId


class Life(NamedTuple):
    """A life of a machine's kernel, and a name that no agent ever had: for one that turns out to be new."""

    boot_id: str
    instance: str


class Processes(Protocol):
    """The processes of runs, started in this life of the agent or before."""

    @property
    def boot_id(self) -> str:
        """The id of the kernel's present life."""
        ...

    def cgroup_of(self, name: str) -> str:
        """A new control group for a run; empty where none can be made."""
        ...

    def start(self, record: RunRecord, workdir: Path) -> None:
        """All ranks of a run were begun. One that cannot be started is found so."""
        ...

    def reap(self) -> None:
        """What has ended is taken in."""
        ...

    def ranks(self, record: RunRecord) -> tuple[Rank, ...]:
        """Where each rank of a run stands."""
        ...

    def strays(self, record: RunRecord, ranks: tuple[Rank, ...]) -> bool:
        """Whether processes of a run live that nothing looks after."""
        ...

    def step(self, record: RunRecord, step: Step) -> None:
        """The living ranks were sent what belongs to this rung of a stop."""
        ...

    def watch(self, record: RunRecord, rank: Rank, wake: Callable[[], None]) -> bool:
        """`wake` is called when a living rank has ended; False where that cannot be told, or not yet."""
        ...

    def unwatch(self) -> None:
        """Nothing is watched any more; all live on."""
        ...

    def leftovers(self, known: set[RunId]) -> list[int]:
        """Processes of runs that have no record."""
        ...

    def kill(self, pids: list[int]) -> None:
        """All of them were sent KILL."""
        ...

    def pids(self, record: RunRecord) -> tuple[int, ...]:
        """Processes of a run that live, in order."""
        ...

    def out_of_memory(self, records: Iterable[RunRecord]) -> list[RunRecord]:
        """Those of these runs of which the kernel killed a process for want of memory, as far as it is news."""
        ...

    def forget(self, record: RunRecord) -> None:
        """Nothing is kept of a run that has ended."""
        ...
