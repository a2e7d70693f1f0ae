"""What each team may claim now: its entitlement, its floor, its limits, and how much of them it uses.

It lives with the fold since admission, the scheduler and `why` go by it. `docs/queues.md` says what is meant, in numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from events.base import TeamId
from events.job import HoldCode
from events.queues import Bounds, QueueOrder, QueueStop
from projections.cluster.holds import GRAVITY
from projections.cluster.job import PRIORITY_RANK
from projections.cluster.quota.claims import Claims
from projections.cluster.quota.shares import UNBOUNDED, Shares
from projections.cluster.quota.tree import ALL_TYPES
from projections.cluster.state import Cluster, Line

CLASSES: Final = len(PRIORITY_RANK)
NO_CLASS: Final = -1  # of what is less urgent than nothing
PER_WEIGHT: Final = 1_000_000  # use per weight is in so many parts of a GPU


class Block(NamedTuple):
    """What stands against a job, whatever room there is."""

    code: HoldCode
    queue: str  # whose bound it is: the team's own queue, or one above it
    bound: int  # GPUs, or jobs
    used: int  # of it, without the job


class Standing:
    """Where the teams stand at one moment. Counts at once what a round takes and gives; entitlements stay as they were.

    A team that is alone, without queues, is within whatever it asks for: all there is is its own.
    """

    def __init__(
        self, cluster: Cluster, at: datetime, *, without: Mapping[tuple[TeamId, str], int] | None = None
    ) -> None:
        """`without`: GPUs, by team and type, that waiting jobs do not want although the fold says so; negative: they do."""
        self.sole = not cluster.queues and len(cluster.tallies) <= 1
        self._cluster = cluster
        self._tree = cluster.tree
        self._claims = Claims(cluster, at, without=without or {})
        self._shares = Shares(cluster, self._claims, at)
        self._largest: dict[tuple[TeamId, str, bool], int] = {}

    def wants(self, gpu_types: Sequence[str]) -> str:
        """The type for which a job that accepts these counts: the first that the cluster has; empty for none of them.

        One that accepts any wants the type of which there is most, the first by name of equals.
        """
        return self._claims.type_of(gpu_types)

    def entitled(self, team: TeamId, gpu_type: str) -> int:
        """GPUs of the type that the team may claim now: never more than it uses and wants."""
        return self._shares.entitled(gpu_type).get(self._claims.path(team)[0], 0)

    def used(self, team: TeamId, gpu_type: str) -> int:
        """GPUs of the type that the team has: of runs that are not leaving, and earmarked for it."""
        return self._claims.used[gpu_type][self._claims.path(team)[0]]

    def floor(self, team: TeamId, gpu_type: str) -> int:
        """GPUs of the type that the team has for sure."""
        return self._shares.floors(gpu_type).get(self._claims.path(team)[0], 0)

    def entitles(self, team: TeamId, gpu_type: str, gpus: int, *, rank: int) -> bool:
        """Whether the team's entitlement holds `gpus` more for a job of this class, its own less urgent preemptible use aside.

        A preemptor needs this before it looks for victims, and `within` once their GPUs are given: what a sibling has
        too much may be why the queue above is not within.
        """
        return self.sole or self._spare(team, gpu_type, self._claims.path(team)[0], rank) >= gpus

    def within(self, team: TeamId, gpu_type: str, gpus: int, *, rank: int) -> bool:
        """Whether `entitles`, and so does each queue above the team, there too without what the team could displace."""
        path = self._claims.path(team)
        return self.sole or all(self._spare(team, gpu_type, name, rank) >= gpus for name in path)

    def over(self, team: TeamId, gpu_type: str, above: TeamId) -> int:
        """GPUs by which the team exceeds its entitlement, as does each queue from it up to the first that has `above` in it.

        The least of these, without that first one; 0 where one of them exceeds nothing, and between a team and itself.
        """
        shared = set(self._claims.path(above))
        entitled, used = self._shares.entitled(gpu_type), self._claims.used[gpu_type]
        apart = [name for name in self._claims.path(team) if name not in shared]
        return max(0, min((used[name] - entitled.get(name, 0) for name in apart), default=0))

    def blocked(
        self, team: TeamId, gpu_types: Sequence[str], gpus: int, *, preemptible: bool, jobs: int = 1
    ) -> Block | None:
        """What stands against a job on all the types it accepts (none: any); None where one of them is open to it.

        Or against several jobs, that need so many GPUs together.

        Of several types it is what stands against the one nearest to open; of one type, what is least likely to pass.
        """
        if self.sole:
            return None
        if (stopped := self._stopped(team)) is not None:
            return stopped
        many = self._too_many(team, jobs)
        accepted = self._accepted(gpu_types)
        blocks = [self._block(team, gpu_type, gpus, firm=not preemptible) or many for gpu_type in accepted] or [many]
        found = [block for block in blocks if block is not None]
        return max(found, key=_gravity) if len(found) == len(blocks) else None

    def never(self, team: TeamId, gpu_types: Sequence[str], gpus: int, *, preemptible: bool) -> bool:
        """Whether a job is larger than a bound of its team lets any job be, on each type that it accepts (none: any)."""
        if self.sole or not (accepted := self._accepted(gpu_types)):
            return False
        return all(gpus > self._most(team, gpu_type, firm=not preemptible) for gpu_type in accepted)

    def open_types(self, team: TeamId, gpu_types: Sequence[str], gpus: int, *, preemptible: bool) -> tuple[str, ...]:
        """Of the types that a job accepts (none: any), those that the cluster has and that no bound closes to it."""
        accepted = self._accepted(gpu_types)
        if self.sole:
            return tuple(accepted)
        if self._stopped(team) is not None or self._too_many(team, 1) is not None:
            return ()
        return tuple(t for t in accepted if self._block(team, t, gpus, firm=not preemptible) is None)

    def certain(self, gpu_types: Sequence[str]) -> bool:
        """Whether the cluster has but one of the types that a job accepts (none: any): it can only go there."""
        return len(self._accepted(gpu_types)) == 1

    def headroom(self, team: TeamId, gpu_type: str) -> int:
        """GPUs of the type that the team may have more until a limit, its own or one above; `UNBOUNDED` without one."""
        if self.sole:
            return UNBOUNDED
        bounds = (bound - held for name in self._claims.path(team) for bound, held in self._limits(name, gpu_type))
        return max(0, min(bounds, default=UNBOUNDED))

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
        """The round gives the team these, for a job more. Not for one that has them earmarked: it is counted already."""
        self._claims.use(team, gpu_type, gpus, rank=rank, preemptible=preemptible)
        if not self.sole:
            self._claims.hold(team, gpu_type, gpus, jobs=1)

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
            self._claims.hold(line.team, wanted if certain else ALL_TYPES, gpus, jobs=jobs)

    def give(self, team: TeamId, gpu_type: str, gpus: int, *, rank: int, preemptible: bool) -> None:
        """The round takes these from the team. For its limits they count until their agents have given them back."""
        self._claims.use(team, gpu_type, -gpus, rank=rank, preemptible=preemptible)

    # What these ask

    def _accepted(self, gpu_types: Sequence[str]) -> list[str]:
        capacity = self._cluster.capacity
        return [gpu_type for gpu_type in gpu_types if gpu_type in capacity] if gpu_types else sorted(capacity)

    def _spare(self, team: TeamId, gpu_type: str, name: str, rank: int) -> int:
        """GPUs of a queue's entitlement that are not in use but by less urgent preemptible jobs of the team."""
        claims = self._claims
        own = claims.path(team)[0]
        milder = sum(claims.mild.get((own, gpu_type, lower), 0) for lower in range(rank + 1, CLASSES))
        return self._shares.entitled(gpu_type).get(name, 0) - claims.used[gpu_type][name] + milder

    def _stopped(self, team: TeamId) -> Block | None:
        """The stop that holds for the team."""
        stop, by = self._tree.stop(team)
        return Block(HoldCode.QUEUE_PAUSED, by, 0, 0) if stop is not QueueStop.NONE else None

    def _too_many(self, team: TeamId, jobs: int) -> Block | None:
        """The queue that runs as many jobs as it may, with so many more."""
        for name in self._claims.path(team):
            queue = self._tree.queues.get(TeamId(name))
            if queue is None or queue.running_max is None:
                continue
            if (running := self._claims.running[name]) + jobs > queue.running_max:
                return Block(HoldCode.RUNNING_MAX, name, queue.running_max, running)
        return None

    def _block(self, team: TeamId, gpu_type: str, gpus: int, *, firm: bool) -> Block | None:
        blocks = [
            Block(HoldCode.EXCEEDS_LIMIT if gpus > bound else HoldCode.OVER_LIMIT, name, bound, held)
            for name in self._claims.path(team)
            if name in self._tree.bounds
            for bound, held in self._limits(name, gpu_type)
            if held + gpus > bound
        ]
        if firm:
            blocks += [
                Block(HoldCode.EXCEEDS_FLOOR if gpus > bound else HoldCode.OVER_FLOOR, name, bound, used)
                for name in self._claims.path(team)
                for bound, used in [self._firm(name, gpu_type)]
                if used + gpus > bound
            ]
        return min(blocks, key=_gravity, default=None)

    def _most(self, team: TeamId, gpu_type: str, *, firm: bool) -> int:
        """GPUs of the largest job that the bounds of the team, and of the queues above it, allow."""
        if (known := self._largest.get((team, gpu_type, firm))) is None:
            path = self._claims.path(team)
            bounds = [bound for name in path for bound, _ in self._limits(name, gpu_type)]
            if firm:
                bounds += [self._firm(name, gpu_type)[0] for name in path]
            known = self._largest[team, gpu_type, firm] = min(bounds, default=UNBOUNDED)
        return known

    def _limits(self, name: str, gpu_type: str) -> Iterator[tuple[int, int]]:
        """The bounds of a queue that use of the type must keep, and what counts against each: GPUs."""
        of_queue = self._tree.bounds.get(name, {})
        if (bounds := of_queue.get(gpu_type)) is not None:
            held = self._claims.held[gpu_type][name]
            if bounds.limit is not None:
                yield bounds.limit, held
            if bounds.borrowing_limit is not None:
                yield self._shares.floors(gpu_type).get(name, 0) + bounds.borrowing_limit, held
        if (bounds := of_queue.get(ALL_TYPES)) is not None:
            held = self._claims.all[name]
            if bounds.limit is not None:
                yield bounds.limit, held
            if bounds.borrowing_limit is not None:
                yield self._shares.floor_of_all(name) + bounds.borrowing_limit, held

    def _firm(self, name: str, gpu_type: str) -> tuple[int, int]:
        """What a queue has for sure, and what it has of that for jobs that cannot be preempted.

        A floor over all types counts over all of them that have none of their own.
        """
        of_queue = self._tree.bounds.get(name, {})
        over_all = of_queue.get(ALL_TYPES)
        types = [gpu_type]
        if over_all is not None and over_all.floor is not None and not _has_floor(of_queue, gpu_type):
            types = [t for t in sorted(self._cluster.capacity) if not _has_floor(of_queue, t)]
        bound = sum(self._shares.floors(t).get(name, 0) for t in types)
        return bound, sum(self._claims.firm[t][name] for t in types)

    def _per_weight(self, name: str) -> int:
        used, weight = self._claims.total[name], self._shares.weight(name)
        if not weight:
            return UNBOUNDED * PER_WEIGHT + used
        return (
            (used + (self._cluster.policy.half_life_s > 0)) * PER_WEIGHT // weight
        )  # with a past, none is equal to none


def _gravity(block: Block) -> int:
    return GRAVITY[block.code]


def _has_floor(of_queue: Mapping[str, Bounds], gpu_type: str) -> bool:
    bounds = of_queue.get(gpu_type)
    return bounds is not None and bounds.floor is not None
