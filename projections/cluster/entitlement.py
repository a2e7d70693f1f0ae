"""What each team may claim now: its entitlement, its floor, its limits, and how much of them it uses.

It lives with the fold since admission, the scheduler and `why` go by it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from events.base import TeamId
from events.job import HoldCode
from projections.cluster.state import Cluster

UNBOUNDED: Final = 1 << 40  # GPUs, in place of a limit that nobody set


class Block(NamedTuple):
    """What stands against a job, whatever room there is."""

    code: HoldCode
    queue: str  # whose bound it is; the team's own queue or one above it
    bound: int  # GPUs, or jobs
    used: int  # of it, without the job


class Standing:
    """Where the teams stand at one moment. Counts at once what is taken and given in the round; nothing else changes it."""

    def __init__(self, cluster: Cluster, at: datetime) -> None:
        self._cluster = cluster
        self._at = at
        self._used: dict[tuple[str, str], int] = {}
        for use, gpus in cluster.usage.items():
            key = use.team, use.gpu_type
            self._used[key] = self._used.get(key, 0) + gpus - cluster.leaving.get(use, 0)

    def wants(self, gpu_types: Sequence[str]) -> str:
        """The type for which a job that accepts these counts: the first that the cluster has; empty for none of them.

        One that accepts any wants the type of which there is most, the first by name of equals.
        """
        capacity = self._cluster.capacity
        if not gpu_types:
            return min(capacity, key=lambda gpu_type: (-capacity[gpu_type], gpu_type), default="")
        return next((gpu_type for gpu_type in gpu_types if capacity.get(gpu_type)), "")

    def entitled(self, team: TeamId, gpu_type: str) -> int:
        """GPUs of the type that the team may claim now: never more than it uses and wants."""
        return self._cluster.capacity.get(gpu_type, 0)

    def used(self, team: TeamId, gpu_type: str) -> int:
        """GPUs of the type that the team has: of runs that are not leaving, and earmarked for it."""
        return self._used.get((team, gpu_type), 0)

    def floor(self, team: TeamId, gpu_type: str) -> int:
        """GPUs of the type that the team has for sure."""
        return self._cluster.capacity.get(gpu_type, 0)

    def entitles(self, team: TeamId, gpu_type: str, gpus: int, *, rank: int) -> bool:
        """Whether the team's entitlement holds `gpus` more for a job of this class, its own less urgent preemptible use aside.

        A preemptor must have this before it looks for victims, and `within` once they are given: a sibling that has too
        much may be the reason that the queue above is not within.
        """
        return True

    def within(self, team: TeamId, gpu_type: str, gpus: int, *, rank: int) -> bool:
        """Whether `entitles`, and so at each queue above the team too."""
        return True

    def over(self, team: TeamId, gpu_type: str, above: TeamId) -> int:
        """GPUs by which the team exceeds its entitlement, and every queue between it and one that is above `above` too.

        The least of these; 0 where one of them exceeds nothing.
        """
        return 0

    def blocked(self, team: TeamId, gpu_types: Sequence[str], gpus: int, *, preemptible: bool) -> Block | None:
        """What stands against a job on all the types it accepts (none: any); None where one of them is open to it."""
        return None

    def open_types(self, team: TeamId, gpu_types: Sequence[str], gpus: int, *, preemptible: bool) -> tuple[str, ...]:
        """The types that a job accepts (none: any) and that no limit closes to it: what it may be placed on."""
        return tuple(gpu_types)

    def headroom(self, team: TeamId, gpu_type: str) -> int:
        """GPUs of the type that the team may have more until a limit, its own or one above; `UNBOUNDED` without."""
        return UNBOUNDED

    def strict(self, team: TeamId) -> bool:
        """Whether a job of the team that cannot start holds up those behind it that want the same type."""
        return False

    def least(self, team: TeamId) -> tuple[int, ...]:
        """What the fair order goes by: use per weight, from the top of the tree down to the team; the least goes first."""
        return (0,)

    def take(self, team: TeamId, gpu_type: str, gpus: int, *, rank: int, preemptible: bool) -> None:
        """The round gave the team these: one run more."""
        key = team, gpu_type
        self._used[key] = self._used.get(key, 0) + gpus

    def give(self, team: TeamId, gpu_type: str, gpus: int, *, rank: int, preemptible: bool) -> None:
        """The round takes these from the team: its use without them. For limits they count until they are given back."""
        key = team, gpu_type
        self._used[key] = self._used.get(key, 0) - gpus
