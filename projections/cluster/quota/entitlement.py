"""What each team may claim now: its entitlement, its floor, its limits, and how much of them it uses.

It lives with the fold since admission, the scheduler and `why` go by it. `docs/queues.md` says what is meant, in numbers.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from events.base import TeamId
from events.queues import QueueOrder
from projections.cluster.quota.bounds import Bounded
from projections.cluster.quota.shares import UNBOUNDED
from projections.cluster.quota.tree import ALL_TYPES
from projections.cluster.state import Line, Use

NO_CLASS: Final = -1  # of what is less urgent than nothing
PER_WEIGHT: Final = 1_000_000  # use per weight is in so many parts of a GPU


class Standing(Bounded):
    """Where the teams stand at one moment. Counts at once what a round takes and gives; entitlements stay as they were.

    A team that is alone, without queues, is within whatever it asks for: all there is is its own.
    """

    @property
    def turn(self) -> int:
        """A number that grows whenever what teams use changes: while it is the same, `within` and `least` answer as before."""
        return self._claims.changes

    def wants(self, gpu_types: Sequence[str]) -> str:
        """The type for which a job that accepts these counts: the first that the cluster has; empty for none of them.

        One that accepts any wants the type of which there is most, the first by name of equals.
        """
        return self._claims.type_of(gpu_types)

    def entitled(self, team: TeamId, gpu_type: str) -> int:
        """GPUs of the type that the team may claim now: never more than it uses and wants."""
        return self._shares.entitled(gpu_type).get(self._claims.path(team)[0], 0)

    def entitlements(self) -> dict[str, dict[str, int]]:
        """What each queue may claim now with all below it, by name and GPU type; without those that may claim nothing."""
        return self._shares.by_queue()

    def used(self, team: TeamId, gpu_type: str) -> int:
        """GPUs of the type that the team has: of runs that are not leaving, and earmarked for it."""
        return self._claims.used[gpu_type][self._claims.path(team)[0]]

    def floor(self, team: TeamId, gpu_type: str) -> int:
        """GPUs of the type that the team has for sure."""
        return self._shares.floors(gpu_type).get(self._claims.path(team)[0], 0)

    def within(
        self, team: TeamId, gpu_type: str, gpus: int, *, rank: int, besides: AbstractSet[str] = frozenset()
    ) -> bool:
        """Whether `entitles`, and so does each queue above the team, there too without what the team could displace.

        `besides`: queues that are not asked.
        """
        path = (name for name in self._claims.path(team) if name not in besides)
        return self.sole or all(self._spare(team, gpu_type, name, rank) >= gpus for name in path)

    def full(self, team: TeamId, gpu_type: str, gpus: int) -> str:
        """The nearest queue above the team's own whose entitlement does not hold `gpus` more; empty for none."""
        if self.sole:
            return ""
        entitled, used = self._shares.entitled(gpu_type), self._claims.used[gpu_type]
        above = self._claims.path(team)[1:]
        return next((name for name in above if used[name] + gpus > entitled.get(name, 0)), "")

    def sure(self, team: TeamId, gpu_type: str, gpus: int, *, rank: int) -> bool:
        """Whether the floors of the team and of each queue above it hold `gpus` more for a job of this class."""
        floors = self._shares.floors(gpu_type)
        return all(self._spare(team, gpu_type, name, rank, of=floors) >= gpus for name in self._claims.path(team))

    def over(self, team: TeamId, gpu_type: str, above: TeamId, *, floors: bool = False) -> int:
        """GPUs by which the team exceeds its entitlement, as does each queue from it up to the first that has `above` in it.

        The least of these, without that first one; 0 where one of them exceeds nothing, and between a team and itself.
        With `floors`: by which they exceed what they have for sure.
        """
        shared = set(self._claims.path(above))
        sure = self._shares.floors(gpu_type) if floors else self._shares.entitled(gpu_type)
        used = self._claims.used[gpu_type]
        apart = [name for name in self._claims.path(team) if name not in shared]
        return max(0, min((used[name] - sure.get(name, 0) for name in apart), default=0))

    def strict(self, team: TeamId) -> bool:
        """Whether a job of the team that cannot start holds up those behind it that want the same type."""
        queue = self._tree.queues.get(team)
        return queue is not None and queue.order is QueueOrder.STRICT

    def least(self, team: TeamId) -> tuple[int, ...]:
        """What the fair order goes by: use per weight, from the top of the tree down to the team; the least goes first.

        Compared level by level, so that a team of a queue that has little comes before every team of one that has much.

        Source: Slurm's Fair Tree.
        """
        if self.sole:
            return ()
        return tuple(self._per_weight(name) for name in reversed(self._claims.path(team)))

    def take(self, team: TeamId, gpu_type: str, gpus: int, *, rank: int, preemptible: bool) -> None:
        """The round gives the team these, for a job more. For one that has them earmarked: `arrive`."""
        self._claims.use(team, gpu_type, gpus, rank=rank, preemptible=preemptible)
        if not self.sole:
            self._claims.hold(Use(team, gpu_type, rank, preemptible), gpus, jobs=1)

    def set_aside(self, team: TeamId, gpu_type: str, gpus: int, *, rank: int, preemptible: bool) -> None:
        """The round sets these aside for one more job of the team."""
        self._claims.use(team, gpu_type, gpus, rank=rank, preemptible=preemptible)
        self.keep_aside(team, gpu_type, gpus)

    def arrive(self, team: TeamId, gpu_type: str, gpus: int) -> None:
        """The round gives the team what was set aside for a job of it, and counted."""
        if not self.sole:
            self._claims.now.add(self._claims.path(team), gpu_type, gpus, 1)

    def keep_aside(self, team: TeamId, gpu_type: str, gpus: int) -> None:
        """So much is set aside for a job of the team as far as limits count it; negative: it is not any more."""
        if not self.sole:
            self._claims.then.add(self._claims.path(team), gpu_type, gpus, 1 if gpus > 0 else -1)

    def claim(self, line: Line, jobs: int) -> None:
        """So many jobs of a line, which may run and wait, count too; with the fewest GPUs that they start with.

        Not yet against the bounds of one type, if they could go to several.
        """
        types, gpus = line.shape.gpu_types, jobs * (line.shape.min_gpus or line.shape.gpus)
        wanted, certain = self.wants(types), self.certain(types)
        if certain or not line.firm:
            self._claims.use(line.team, wanted, gpus, rank=line.rank, preemptible=not line.firm)
        else:
            self._claims.use(line.team, wanted, gpus, rank=NO_CLASS, preemptible=True)
        if not self.sole:
            counted = wanted if certain else ALL_TYPES
            self._claims.wait(Use(line.team, counted, line.rank, not line.firm), gpus, jobs=jobs)

    def give(self, team: TeamId, gpu_type: str, gpus: int, *, rank: int, preemptible: bool) -> None:
        """The round takes what a run has from the team; negative: back. Limits count it until its agents have given it back."""
        self._claims.use(team, gpu_type, -gpus, rank=rank, preemptible=preemptible)
        if not self.sole:
            self._claims.keep(Use(team, gpu_type, rank, preemptible), -gpus, jobs=-1 if gpus > 0 else 1)

    def _per_weight(self, name: str) -> int:
        used, weight = self._claims.total[name], self._shares.weight(name)
        if not weight:
            return UNBOUNDED * PER_WEIGHT + used
        return (
            (used + (self._cluster.policy.half_life_s > 0)) * PER_WEIGHT // weight
        )  # with a past, none is equal to none
