"""What the bounds of queues let a team do: limits, borrowing limits, floors, numbers of jobs, stops, at every level of the tree."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from events.base import TeamId
from events.job import HoldCode
from events.queues import Bounds, QueueStop
from projections.cluster.holds import GRAVITY
from projections.cluster.job import PRIORITY_RANK
from projections.cluster.quota.claims import Claims
from projections.cluster.quota.shares import UNBOUNDED, Shares
from projections.cluster.quota.tree import ALL_TYPES
from projections.cluster.state import Cluster, Line

CLASSES: Final = len(PRIORITY_RANK)
LAID: Final = frozenset({HoldCode.OVER_FLOOR, HoldCode.OVER_LIMIT})  # bounds that may follow where floors are laid


class Request(NamedTuple):
    """What a job asks for; or what several do, that need so many GPUs together."""

    team: TeamId
    gpu_types: Sequence[str]  # accepted; none: any
    gpus: int
    preemptible: bool = True
    jobs: int = 1
    rank: int | None = None  # its class, where it is asked what stands against it for good


def request_of(line: Line) -> Request:
    """What the first of a line of waiting jobs asks for, in its class: of an elastic gang, the least."""
    shape = line.shape
    gpus = shape.min_gpus or shape.gpus
    return Request(line.team, shape.gpu_types, gpus, preemptible=not line.firm, rank=line.rank)


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


class Bounded:
    """The bounds at one moment. A team that is alone, without queues, has none: all there is is its own."""

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

    def blocked(self, asked: Request) -> Block | None:
        """What stands against a job on all the types it accepts; None where one of them is open to it.

        With its class, what stands against jobs of that class for good: limits count what will be held once what is
        decided has happened, and where the policy lets others be stopped, neither less urgent preemptible jobs of the
        team, nor, above its own queue, what it is entitled to.

        Of several types it is what stands against the one nearest to open; of one type, what is least likely to pass.
        """
        if self.sole:
            return None
        team = asked.team
        if (stopped := self._stopped(team)) is not None:
            return stopped
        if asked.preemptible and not self._tree.bounded(team):
            return None
        rank = asked.rank if self._cluster.policy.preemption else None
        many = self._too_many(team, asked.jobs, rank)
        accepted, firm = self._accepted(asked.gpu_types), not asked.preemptible
        found = (self._block(team, gpu_type, asked.gpus, firm=firm, rank=rank) for gpu_type in accepted)
        blocks = [block or many for block in found] or [many]
        closed = [block for block in blocks if block is not None]
        return max(closed, key=_gravity) if len(closed) == len(blocks) else None

    def stuck(self, request: Request) -> bool:
        """Whether a job is larger than a bound as floors over all types are laid now, though not however they are laid.

        Not what others use keeps it waiting, but what they want: nobody behind it can wait for that.
        """
        block = self.blocked(request)
        return block is not None and block.code in LAID and request.gpus > block.bound

    def never(self, team: TeamId, gpu_types: Sequence[str], gpus: int, *, preemptible: bool) -> bool:
        """Whether a job is larger than a bound of its team lets any job be, on each type that it accepts (none: any).

        With the floors of now, wherever those over all types are laid. That follows what is wanted, and what is larger
        than a bound wants nothing: a job judged by it could be too large just because it is not.
        """
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

    def entitles(self, team: TeamId, gpu_type: str, gpus: int, *, rank: int) -> bool:
        """Whether the team's entitlement holds `gpus` more for a job of this class, its own less urgent preemptible use aside.

        A preemptor needs this before it looks for victims, and `within` once their GPUs are given: what a sibling has
        too much may be why the queue above is not within.
        """
        return self.sole or self._spare(team, gpu_type, self._claims.path(team)[0], rank) >= gpus

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
                Block(HoldCode.EXCEEDS_FLOOR, name, most, used)
                if gpus > (most := self._firm_most(name, gpu_type))
                else Block(HoldCode.OVER_FLOOR, name, bound, used)
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
                limits = self._limits(name, gpu_type, highest=True) if gpus > bound else ()
                most = min((limit for limit, of in limits if of == counted), default=UNBOUNDED)
                if gpus > most:
                    yield Block(HoldCode.EXCEEDS_LIMIT, name, most, held)
                else:
                    yield Block(HoldCode.OVER_LIMIT, name, bound, held)

    def _most(self, team: TeamId, gpu_type: str, *, firm: bool) -> int:
        """GPUs of the largest job that the bounds of the team, and of the queues above it, allow."""
        if (known := self._largest.get((team, gpu_type, firm))) is None:
            path = self._claims.path(team)
            bounds = [bound for name in path for bound, _ in self._limits(name, gpu_type, highest=True)]
            if firm:
                bounds += [self._firm_most(name, gpu_type) for name in path]
            known = self._largest[team, gpu_type, firm] = min(bounds, default=UNBOUNDED)
        return known

    def _limits(self, name: str, gpu_type: str, *, highest: bool = False) -> Iterator[tuple[int, str]]:
        """The bounds of a queue that use of the type must keep: GPUs, and of which type, `ALL_TYPES` for all.

        With `highest`, the most that they could be, wherever floors over all types are laid.
        """
        shares, of_queue = self._shares, self._tree.bounds.get(name, {})
        if (bounds := of_queue.get(gpu_type)) is not None:
            if bounds.limit is not None:
                yield bounds.limit, gpu_type
            if bounds.borrowing_limit is not None:
                floors = shares.highest_floors(gpu_type) if highest else shares.floors(gpu_type)
                yield floors.get(name, 0) + bounds.borrowing_limit, gpu_type
        if (bounds := of_queue.get(ALL_TYPES)) is not None:
            if bounds.limit is not None:
                yield bounds.limit, ALL_TYPES
            if bounds.borrowing_limit is not None:
                yield shares.floor_of_all(name, highest=highest) + bounds.borrowing_limit, ALL_TYPES

    def _held(self, name: str, gpu_type: str) -> int:
        """What counts against a bound for who would have GPUs at once."""
        return max(self._claims.now.of(name, gpu_type), self._claims.then.of(name, gpu_type))

    def _firm(self, name: str, gpu_type: str) -> tuple[int, int]:
        """What a queue has for sure, and what it has of that for jobs that cannot be preempted."""
        types = self._floor_types(name, gpu_type)
        bound = sum(self._shares.floors(t).get(name, 0) for t in types)
        return bound, sum(self._claims.firm[t][name] for t in types)

    def _firm_most(self, name: str, gpu_type: str) -> int:
        """The most that it could have for sure, wherever floors over all types are laid."""
        most = sum(self._shares.highest_floors(t).get(name, 0) for t in self._floor_types(name, gpu_type))
        of_queue = self._tree.bounds.get(name, {})
        over_all = of_queue[ALL_TYPES].floor if ALL_TYPES in of_queue else None
        return most if over_all is None or _has_floor(of_queue, gpu_type) else min(most, over_all)

    def _floor_types(self, name: str, gpu_type: str) -> Sequence[str]:
        """The types that one floor counts over: a floor over all types, all of them that have none of their own."""
        of_queue = self._tree.bounds.get(name, {})
        over_all = of_queue.get(ALL_TYPES)
        if over_all is None or over_all.floor is None or _has_floor(of_queue, gpu_type):
            return [gpu_type]
        return [t for t in self._types if not _has_floor(of_queue, t)]


def _gravity(block: Block) -> int:
    return GRAVITY[block.code]


def _has_floor(of_queue: Mapping[str, Bounds], gpu_type: str) -> bool:
    bounds = of_queue.get(gpu_type)
    return bounds is not None and bounds.floor is not None
