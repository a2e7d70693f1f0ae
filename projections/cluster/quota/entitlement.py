"""What each team may claim now: its entitlement, its floor, its limits, and how much of them it uses.

It lives with the fold since admission, the scheduler and `why` go by it. `docs/queues.md` says what is meant, in numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
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
from projections.cluster.state import Cluster, Line, Use

CLASSES: Final = len(PRIORITY_RANK)
NO_CLASS: Final = -1  # of what is less urgent than nothing
PER_WEIGHT: Final = 1_000_000  # use per weight is in so many parts of a GPU


class Block(NamedTuple):
    """What stands against a job, whatever room there is."""

    code: HoldCode
    queue: str  # whose bound it is: the team's own queue, or one above it
    bound: int  # GPUs, or jobs
    used: int  # of it, without the job


class Short(NamedTuple):
    """A limit that a job would be beyond, once all that is decided has happened."""

    queue: str
    gpu_type: str  # whose GPUs count; `ALL_TYPES`: of all
    by: int  # GPUs; or jobs
    bound: int
    jobs: bool = False

    def same(self, other: "Short") -> bool:
        """Whether it is the same limit, however far beyond it the job would be."""
        return self._replace(by=other.by) == other


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
        self._types = sorted(cluster.capacity)
        self._claims = Claims(cluster, at, without=without or {})
        self._shares = Shares(cluster, self._claims, at)
        self._largest: dict[tuple[TeamId, str, bool], int] = {}

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

    def entitles(self, team: TeamId, gpu_type: str, gpus: int, *, rank: int) -> bool:
        """Whether the team's entitlement holds `gpus` more for a job of this class, its own less urgent preemptible use aside.

        A preemptor needs this before it looks for victims, and `within` once their GPUs are given: what a sibling has
        too much may be why the queue above is not within.
        """
        return self.sole or self._spare(team, gpu_type, self._claims.path(team)[0], rank) >= gpus

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

    def blocked(
        self,
        team: TeamId,
        gpu_types: Sequence[str],
        gpus: int,
        *,
        preemptible: bool,
        jobs: int = 1,
        rank: int | None = None,
    ) -> Block | None:
        """What stands against a job on all the types it accepts (none: any); None where one of them is open to it.

        Or against several jobs, that need so many GPUs together. With `rank`, what stands against jobs of that class for
        good: limits count what will be held once what is decided has happened, and where the policy lets others be
        stopped, neither less urgent preemptible jobs of the team, nor, above its own queue, what it is entitled to.

        Of several types it is what stands against the one nearest to open; of one type, what is least likely to pass.
        """
        if self.sole:
            return None
        if (stopped := self._stopped(team)) is not None:
            return stopped
        if preemptible and not self._tree.bounded(team):
            return None
        rank = rank if self._cluster.policy.preemption else None
        many = self._too_many(team, jobs, rank)
        accepted = self._accepted(gpu_types)
        found = (self._block(team, gpu_type, gpus, firm=not preemptible, rank=rank) for gpu_type in accepted)
        blocks = [block or many for block in found] or [many]
        closed = [block for block in blocks if block is not None]
        return max(closed, key=_gravity) if len(closed) == len(blocks) else None

    def never(self, team: TeamId, gpu_types: Sequence[str], gpus: int, *, preemptible: bool) -> bool:
        """Whether a job is larger than a bound of its team lets any job be, on each type that it accepts (none: any)."""
        if self.sole or not (accepted := self._accepted(gpu_types)):
            return False
        return all(gpus > self._most(team, gpu_type, firm=not preemptible) for gpu_type in accepted)

    def open_types(
        self, team: TeamId, gpu_types: Sequence[str], gpus: int, *, preemptible: bool, rank: int | None = None
    ) -> tuple[str, ...]:
        """Of the types that a job accepts (none: any), those that the cluster has and that no bound closes to it.

        `rank`: as for `blocked`.
        """
        accepted = self._accepted(gpu_types)
        if self.sole:
            return tuple(accepted)
        if self._stopped(team) is not None:
            return ()
        if preemptible and not self._tree.bounded(team):
            return tuple(accepted)
        rank = rank if self._cluster.policy.preemption else None
        if self._too_many(team, 1, rank) is not None:
            return ()
        return tuple(t for t in accepted if self._block(team, t, gpus, firm=not preemptible, rank=rank) is None)

    def short(self, team: TeamId, gpu_type: str, gpus: int) -> list[Short]:
        """The limits, the team's own first, that one more job would be beyond once what is decided has happened."""
        if self.sole:
            return []
        found = []
        for name in self._claims.path(team):
            for bound, counted in self._limits(name, gpu_type):
                if (by := self._claims.then.of(name, counted) + gpus - bound) > 0:
                    found.append(Short(name, counted, by, bound))
            most = self._running_max(name)
            if most is not None and (by := self._claims.then.jobs[name] + 1 - most) > 0:
                found.append(Short(name, ALL_TYPES, by, most, jobs=True))
        return found

    def holds_now(self, team: TeamId, gpu_type: str, gpus: int) -> bool:
        """Whether no limit stands against one more job beside all that runs, also what is leaving; earmarks aside."""
        return self.sole or all(
            all(self._claims.now.of(name, counted) + gpus <= bound for bound, counted in self._limits(name, gpu_type))
            and ((most := self._running_max(name)) is None or self._claims.now.jobs[name] < most)
            for name in self._claims.path(team)
        )

    def certain(self, gpu_types: Sequence[str]) -> bool:
        """Whether the cluster has but one of the types that a job accepts (none: any): it can only go there."""
        return len(self._accepted(gpu_types)) == 1

    def headroom(self, team: TeamId, gpu_type: str) -> int:
        """GPUs of the type that the team may have more until a limit, its own or one above; `UNBOUNDED` without one."""
        if self.sole:
            return UNBOUNDED
        left = (
            bound - self._held(name, counted)
            for name in self._claims.path(team)
            for bound, counted in self._limits(name, gpu_type)
        )
        return max(0, min(left, default=UNBOUNDED))

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

    # What these ask

    def _accepted(self, gpu_types: Sequence[str]) -> Sequence[str]:
        return [gpu_type for gpu_type in gpu_types if gpu_type in self._types] if gpu_types else self._types

    def _spare(self, team: TeamId, gpu_type: str, name: str, rank: int, *, of: Mapping[str, int] | None = None) -> int:
        """GPUs of a queue's entitlement, or `of` its floor, that only less urgent preemptible jobs of the team use."""
        claims = self._claims
        own = claims.path(team)[0]
        milder = sum(claims.mild.get((own, gpu_type, lower), 0) for lower in range(rank + 1, CLASSES))
        most = self._shares.entitled(gpu_type) if of is None else of
        return most.get(name, 0) - claims.used[gpu_type][name] + milder

    def _stopped(self, team: TeamId) -> Block | None:
        """The stop that holds for the team."""
        stop, by = self._tree.stop(team)
        return Block(HoldCode.QUEUE_PAUSED, by, 0, 0) if stop is not QueueStop.NONE else None

    def _too_many(self, team: TeamId, jobs: int, rank: int | None) -> Block | None:
        """The queue that runs as many jobs as it may, with so many more."""
        own = self._claims.path(team)[0]
        for name in self._claims.path(team):
            if (most := self._running_max(name)) is None:
                continue
            running = max(self._claims.now.jobs[name], self._claims.then.jobs[name])
            counted = running
            if rank is not None:
                gone = sum(held.jobs[own] for held in self._claims.less_urgent(rank))
                counted = self._claims.then.jobs[name] - gone
            if counted + jobs > most:
                return Block(HoldCode.RUNNING_MAX, name, most, running)
        return None

    def _running_max(self, name: str) -> int | None:
        queue = self._tree.queues.get(TeamId(name))
        return queue.running_max if queue is not None else None

    def _block(self, team: TeamId, gpu_type: str, gpus: int, *, firm: bool, rank: int | None) -> Block | None:
        blocks = list(self._over_limits(team, gpu_type, gpus, rank))
        if firm:
            blocks += [
                Block(HoldCode.EXCEEDS_FLOOR if gpus > bound else HoldCode.OVER_FLOOR, name, bound, used)
                for name in self._claims.path(team)
                for bound, used in [self._firm(name, gpu_type)]
                if used + gpus > bound
            ]
        return min(blocks, key=_gravity, default=None)

    def _over_limits(self, team: TeamId, gpu_type: str, gpus: int, rank: int | None) -> Iterator[Block]:
        path, then = self._claims.path(team), self._claims.then
        milder = self._claims.less_urgent(rank) if rank is not None else []
        for name in path:
            for bound, counted in self._limits(name, gpu_type) if name in self._tree.bounds else ():
                if (held := self._held(name, counted)) + gpus <= bound:
                    continue
                if rank is not None and gpus <= bound:
                    if name != path[0] and self.entitles(team, gpu_type, gpus, rank=rank):
                        continue  # what its siblings have too much of makes way for it
                    if then.of(name, counted) - sum(each.of(path[0], counted) for each in milder) + gpus <= bound:
                        continue
                yield Block(HoldCode.EXCEEDS_LIMIT if gpus > bound else HoldCode.OVER_LIMIT, name, bound, held)

    def _most(self, team: TeamId, gpu_type: str, *, firm: bool) -> int:
        """GPUs of the largest job that the bounds of the team, and of the queues above it, allow."""
        if (known := self._largest.get((team, gpu_type, firm))) is None:
            path = self._claims.path(team)
            bounds = [bound for name in path for bound, _ in self._limits(name, gpu_type)]
            if firm:
                bounds += [self._firm(name, gpu_type)[0] for name in path]
            known = self._largest[team, gpu_type, firm] = min(bounds, default=UNBOUNDED)
        return known

    def _limits(self, name: str, gpu_type: str) -> Iterator[tuple[int, str]]:
        """The bounds of a queue that use of the type must keep: GPUs, and of which type, `ALL_TYPES` for all."""
        of_queue = self._tree.bounds.get(name, {})
        if (bounds := of_queue.get(gpu_type)) is not None:
            if bounds.limit is not None:
                yield bounds.limit, gpu_type
            if bounds.borrowing_limit is not None:
                yield self._shares.floors(gpu_type).get(name, 0) + bounds.borrowing_limit, gpu_type
        if (bounds := of_queue.get(ALL_TYPES)) is not None:
            if bounds.limit is not None:
                yield bounds.limit, ALL_TYPES
            if bounds.borrowing_limit is not None:
                yield self._shares.floor_of_all(name) + bounds.borrowing_limit, ALL_TYPES

    def _held(self, name: str, gpu_type: str) -> int:
        """What counts against a bound for who would have GPUs at once."""
        return max(self._claims.now.of(name, gpu_type), self._claims.then.of(name, gpu_type))

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
