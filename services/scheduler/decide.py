"""Which admitted jobs get their GPUs now, and what is promised to, set aside for, and said of those that do not."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

from events.base import Event, JobId, RunId, TeamId, run_id_of
from events.job import GpusEarmarked, HoldCode, JobPlaced, NodeShare, PromiseCause
from events.policy import Consolidation
from projections.cluster.holds import holds
from projections.cluster.index import line_of
from projections.cluster.job import Job, JobState, OrderKey, Shape, lasts
from projections.cluster.placing.misfit import suited
from projections.cluster.placing.place import Misfit, Placement
from projections.cluster.placing.topology import ranks_along
from projections.cluster.quota.bounds import Request
from projections.cluster.quota.entitlement import Standing
from projections.cluster.state import Cluster, Line
from projections.cluster.tick import Tick
from services.scheduler import earmark
from services.scheduler.consolidate import consolidate, said
from services.scheduler.field import Field
from services.scheduler.keep import keep
from services.scheduler.order import Lineup, Next, Stands
from services.scheduler.paid import Paid
from services.scheduler.preempt import preempt, was_stopped_for
from services.scheduler.promise import Promises
from services.scheduler.promised import Claim, Promised
from services.scheduler.scene import Scene

PLACED_MAX: Final = 1_000  # in one round, so that it stays below 100 ms; the rest is the next round's
ASKED_MAX: Final = 200  # times in one round that victims may be looked for; not twice for jobs that are alike
SEARCHES_MAX: Final = 20  # of these, where the counts do not say no at once
FOUND_MAX: Final = 60_000  # runs looked at, in one round, in searches that found victims; the rest is the next round's
MOVES_MAX: Final = 3  # searches for moves in one round, likewise
SHORT_MAX: Final = 10_000  # looked at in one round for being short, behind one that has no place
FEW_PART: Final = 16  # of a line: if no more are short, they are looked up instead of the line gone through

REPLACES: Final = frozenset({HoldCode.OVER_LIMIT, HoldCode.RUNNING_MAX})  # what ends when others of the queue do
ROOM: Final = frozenset({HoldCode.NO_ROOM, HoldCode.SCATTERED, HoldCode.RESERVED})  # what passes by waiting


def decide(cluster: Cluster, tick: Tick) -> list[Event]:
    """The scheduler's part of a round.

    What was set aside is given out where it is complete. Then jobs are tried in order. One that does not fit never
    blocks a smaller one behind it, unless policy or its queue says so, and stands for all that need the same: what did
    not fit will not fit later in the round, since GPUs only get fewer. The first of those that cannot start have nodes
    drained towards them: docs/promises.md.
    """
    cluster, kept = keep(cluster, tick)
    turn = Turn(cluster, tick)
    while turn.goes_on():
        pass
    return [*kept, *turn.said()]


class Turn:
    """What one round of the scheduler has decided so far, and what that leaves."""

    def __init__(self, cluster: Cluster, tick: Tick) -> None:
        self._cluster = cluster
        self._tick = tick
        self._standing = Standing(cluster, tick.at)
        self._limits = not self._standing.sole
        self._all_types = tuple(sorted(cluster.capacity))
        self._promised = Promised(cluster, tick.at)
        self._paid = Paid(cluster, tick.at)
        self._events = earmark.settle(cluster, tick, self._standing, self._paid)
        self._placed: set[JobId] = {e.job_id for e in self._events if isinstance(e, JobPlaced)}
        self._left = PLACED_MAX - len(self._placed)
        self._promises = Promises(cluster, tick, self._promised, self._events)
        holders = self._promises.holders
        self._jobs = {job.job_id: HoldCode.PROMISED for job in holders}
        for job_id in cluster.earmarks:
            if cluster.jobs[job_id].state is JobState.ADMITTED:
                self._jobs[job_id] = HoldCode.WAITS_FOR_PREEMPTED
        self._lines: dict[Line, HoldCode] = {}  # what holds for all that is left of a line
        self._evicted: set[RunId] = set()
        self._fields: dict[str, Field] = {}  # who may be stopped at all, by GPU type
        self._searched: set[tuple[TeamId, Shape, int, frozenset[JobId]]] = set()  # in vain
        self._asked = 0  # for victims
        self._found = 0
        self._scattered: set[Shape] = set()  # for which moves were looked for
        self._shut: set[str] = set()  # GPU types for which a job holds up all behind it
        self._shut_in: dict[TeamId, set[str]] = {}  # likewise, all behind it in its queue
        self._short_left = SHORT_MAX
        self._lineup = Lineup(cluster, self._standing, promised=holders, passed=set(cluster.earmarks))

    def said(self) -> list[Event]:
        """All that was decided, and last what is said of jobs that wait."""
        admitted = self._cluster.admitted
        told = holds(
            self._cluster, self._tick, admitted, self._lines, jobs={**self._jobs, **dict.fromkeys(self._placed)}
        )
        return [*self._events, *told]

    def goes_on(self) -> bool:
        """Whether there was another job to look at, which is done; with it are all that it stands for."""
        following = self._lineup.first() if self._left else None
        if following is None:
            return False
        job = self._cluster.jobs[following.job_id]
        code = self._try(job, following) if self._paid(job) else None
        if code is None:
            self._lineup.advance()
            return True
        if following.stands is Stands.FOR_SHORT:
            self._lineup.advance()  # a shorter one may be luckier
            return True
        self._lineup.drop()
        if following.stands is Stands.FOR_LINE:
            self._lines[following.line] = code
            if code is HoldCode.RESERVED:
                self._try_short(following.line, job)
        else:
            self._jobs[job.job_id] = code
        return True

    def _try(self, job: Job, following: Next) -> HoldCode | None:
        """Why the job waits, and all behind it in its line; None where it does not, or they are to be tried still."""
        line = following.line
        if (barred := self._barred(line)) is not None:
            if barred in REPLACES and following.stands is not Stands.FOR_SHORT and self._preempts(job, following):
                self._jobs[job.job_id] = HoldCode.WAITS_FOR_PREEMPTED
                return None
            behind = barred is HoldCode.BEHIND
            self._promises.lose(job, PromiseCause.POLICY if behind else PromiseCause.CHANGED)
            self._shut_for(line, barred)
            return barred
        found = self._find(job, line)
        if isinstance(found, Placement):
            self._place(job, found)
            return None
        if found not in ROOM:
            self._promises.lose(job, PromiseCause.CHANGED)
            return found
        if following.stands is Stands.FOR_SHORT:
            return found
        if self._preempts(job, following) or (found is HoldCode.SCATTERED and self._consolidates(job, line)):
            self._jobs[job.job_id] = HoldCode.WAITS_FOR_PREEMPTED
            return None
        promised = self._promises.cannot_start(job, self._asks(line)[0])
        shuts = self._shuts(line)
        if not promised and not shuts:
            return found
        self._jobs[job.job_id] = HoldCode.PROMISED if promised else found
        return None

    # What stands against it, whatever room there is

    def _barred(self, line: Line) -> HoldCode | None:
        """The limit, or the job before it, that a line waits for."""
        if (self._shut or self._shut_in) and not self._unshut(line, line.shape.gpu_types):
            return HoldCode.BEHIND
        if not self._limits:
            return None
        shape, preemptible = line.shape, not line.firm
        gpus = shape.min_gpus or shape.gpus
        if open_to_it := self._standing.open_types(line.team, shape.gpu_types, gpus, preemptible=preemptible):
            return None if self._unshut(line, open_to_it) else HoldCode.BEHIND
        block = self._standing.blocked(Request(line.team, shape.gpu_types, gpus, preemptible=preemptible))
        return block.code if block is not None else None

    def _shut_for(self, line: Line, barred: HoldCode) -> None:
        """A strict queue waits with its job that a bound holds up."""
        if barred is not HoldCode.BEHIND and self._standing.strict(line.team):
            self._shut_in.setdefault(line.team, set()).update(self._types(line.shape.gpu_types))

    def _types(self, gpu_types: Iterable[str]) -> tuple[str, ...]:
        return tuple(gpu_types) or self._all_types

    def _unshut(self, line: Line, gpu_types: Iterable[str]) -> tuple[str, ...]:
        """Those of the types for which nobody holds the line up."""
        shut_in = self._shut_in.get(line.team, ())
        return tuple(t for t in self._types(gpu_types) if t not in self._shut and t not in shut_in)

    def _shuts(self, line: Line) -> bool:
        """Whether a job that cannot start holds up others from now on."""
        types = self._types(line.shape.gpu_types)
        if self._cluster.policy.blocking:
            self._shut.update(types)
            return True
        if self._limits and self._standing.strict(line.team):
            self._shut_in.setdefault(line.team, set()).update(types)
            return True
        return False

    def _asks_others(self, line: Line) -> Shape | None:
        """What victims are looked for: the shape on the types that are open to it, or would be without them; None for none."""
        shape = line.shape
        gpus, types = shape.min_gpus or shape.gpus, self._types(shape.gpu_types)
        if self._limits:
            types = self._standing.open_types(line.team, types, gpus, preemptible=not line.firm, rank=line.rank)
        types = self._unshut(line, types) if types else ()
        return shape._replace(gpu_types=types) if types else None

    def _asks(self, line: Line) -> tuple[Shape, int | None]:
        """What may be looked for: the shape on the types that are open to it, and how many GPUs at the most."""
        shape = line.shape
        if not self._limits and not self._shut:
            return shape, None
        gpus, types, most = shape.min_gpus or shape.gpus, shape.gpu_types, None
        if self._limits:
            types = self._standing.open_types(line.team, types, gpus, preemptible=not line.firm) or types
            if shape.min_gpus:
                headrooms = (self._standing.headroom(line.team, gpu_type) for gpu_type in self._types(types))
                most = min(headrooms, default=None)
        if self._shut or self._shut_in:
            types = self._unshut(line, types)
        return shape._replace(gpu_types=types), most if most is not None and most < shape.gpus else None

    # Room

    def _find(self, job: Job, line: Line) -> Placement | HoldCode:
        """A place; or why there is none."""
        shape, most = self._asks(line)
        claim = self._suiting(job, shape)
        if claim is not None and most is None and self._ready(job, claim):
            nodes = [self._cluster.nodes[share.node_id] for share in claim.shares]
            return Placement(claim.shares, ranks_along(nodes) if self._cluster.spares else ())
        found = self._promised.fit(shape, most, end=self._end(job))
        if isinstance(found, Placement):
            return found
        if found.code not in ROOM:
            return self._closed(line) if shape.gpu_types != line.shape.gpu_types else found.code
        if not self._promised.claims:
            return found.code
        mine = self._promises.open_to(job)
        if claim is not None and mine == {job.job_id} and not self._promised.some_free(claim):
            mine = frozenset()  # nothing of its own to go by
        among = self._promised.fit_promised(shape, most, end=self._end(job), mine=mine)
        if among is None:
            return HoldCode.RESERVED
        return among if isinstance(among, Placement) else among.code

    def _suiting(self, job: Job, shape: Shape) -> Claim | None:
        """What the job was promised; nothing any more, if that is of a type closed to it by now, or nodes unlike its shape."""
        if (claim := self._promises.claim_of(job)) is None:
            return None
        if not suited(self._cluster, shape, claim.shares):
            self._promises.lose(job, PromiseCause.CHANGED)
            return None
        return claim

    def _ready(self, job: Job, claim: Claim) -> bool:
        """Whether the job may have what it was promised now: all is free, and nobody's before its end, nor maintenance's."""
        mine, end = self._promises.open_to(job), self._end(job)
        if not (self._promised.all_free(claim) and self._promised.windows.spare(claim.shares, self._tick.at, end)):
            return False
        return all(other.job_id in mine for other in self._promised.hit(claim.shares, end=end))

    def _closed(self, line: Line) -> HoldCode:
        """Why a line waits that the types open to it could never hold: one that is closed to it now could."""
        whole = self._promised.fit(line.shape, None)
        if isinstance(whole, Misfit):
            return whole.code
        return HoldCode.BEHIND if self._shut or self._shut_in.get(line.team) else HoldCode.NO_ROOM

    def _end(self, job: Job) -> datetime | None:
        """When a run of the job that starts now is gone; None: nobody knows."""
        return self._tick.at + time if (time := lasts(job.spec)) is not None else None

    def _place(self, job: Job, found: Placement) -> None:
        attempt = job.attempt + 1
        run_id = run_id_of(job.job_id, attempt)
        self._events.append(
            JobPlaced(**self._tick.of_job(job), run_id=run_id, attempt=attempt, shares=found.shares, ranks=found.ranks)
        )
        self._promises.started(job, found.shares, self._end(job))
        self._count(job, found.shares)
        self._placed.add(job.job_id)
        self._left -= 1

    def _count(self, job: Job, shares: tuple[NodeShare, ...], *, aside: bool = False) -> None:
        """Its team has these from now on, or once they are free."""
        gpu_type = self._cluster.nodes[shares[0].node_id].gpu_type
        gpus = sum(share.slots.bit_count() for share in shares)
        count = self._standing.set_aside if aside else self._standing.take
        count(job.team, gpu_type, gpus, rank=job.rank, preemptible=job.spec.preemptible)

    def _try_short(self, line: Line, first: Job) -> None:
        """Jobs that would be gone before promised starts, and maintenance, have their turn, though the first has no place."""
        shape, most = self._asks(line)
        shortest = next(self._cluster.shortest.line(line.shape), None)
        if shortest is None:
            return
        end = self._tick.at + timedelta(seconds=shortest[0][0])  # if it has no place, none has
        if self._promised.has_place(shape, most, end=end):
            self._lineup.again(line, self._short(line, shape, most, first))

    def _short(self, line: Line, shape: Shape, most: int | None, first: Job) -> Iterator[tuple[OrderKey, JobId]]:
        """The jobs of a line that may be short enough, in order, for as long as there may be a place for one."""
        jobs, cluster = self._cluster.jobs, self._cluster
        for key, job_id in self._shortest(line) or cluster.admitted.line(line):
            latest = self._promised.latest(shape, most)
            if latest is None or not self._short_left:
                return
            self._short_left -= 1
            runtime_s = jobs[job_id].spec.max_runtime_s
            if not runtime_s or runtime_s > (latest - self._tick.at).total_seconds() or job_id == first.job_id:
                continue
            if job_id not in self._placed and job_id not in self._jobs and not jobs[job_id].cancel:
                yield key, job_id

    def _shortest(self, line: Line) -> list[tuple[OrderKey, JobId]]:
        """Those of a line that may be short enough, in order, where they are few; else none."""
        shape, most = self._asks(line)
        latest, cluster = self._promised.latest(shape, most), self._cluster
        if latest is None:
            return []
        within = ((latest - self._tick.at).total_seconds() + 1.0,)
        if cluster.shortest.count_before(line.shape, within) > cluster.admitted.count(line) // FEW_PART:
            return []
        entries = takewhile(lambda entry: entry[0] < within, cluster.shortest.line(line.shape))
        short = (cluster.jobs[job_id] for _, job_id in entries)
        return sorted((cluster.key(job), job.job_id) for job in short if line_of(job) == line)

    # Room that others make

    def _scene(self, job: Job) -> Scene:
        room = self._promised.guarded(self._promises.open_to(job), end=self._end(job))
        return Scene(self._cluster, self._tick, room, self._standing, self._evicted, self._fields)

    def _preempts(self, job: Job, following: Next) -> bool:
        """Whether others end for the job. Where it was itself stopped for those that could, they end for some behind it."""
        if self._stops_for(job, following.line):
            return True
        if following.stands is Stands.FOR_LINE and was_stopped_for(self._cluster, job):
            self._preempt_behind(job, following.line)
        return False

    def _preempt_behind(self, first: Job, line: Line) -> None:
        """Jobs of the line have others stopped, though its first may not; until one that was stopped for nobody fails."""
        for _, job_id in self._cluster.admitted.line(line):
            job = self._cluster.jobs[job_id]
            passed = job_id == first.job_id or job_id in self._jobs or job_id in self._placed
            if passed or job.cancel or not self._paid(job):
                continue
            if self._stops_for(job, line):
                self._jobs[job_id] = HoldCode.WAITS_FOR_PREEMPTED
                self._lineup.skip(job_id)
            elif not was_stopped_for(self._cluster, job):
                return

    def _stops_for(self, job: Job, line: Line) -> bool:
        """Whether others end for the job: what they have is set aside for it, with what is free of its place."""
        alike = (job.team, line.shape, job.rank, was_stopped_for(self._cluster, job))
        if not self._cluster.policy.preemption or self._asked >= ASKED_MAX or alike in self._searched:
            return False
        if sum(field.searches for field in self._fields.values()) >= SEARCHES_MAX:
            return False
        if self._found * len(self._cluster.runs) >= FOUND_MAX:
            return False
        asked = self._asks_others(line) if self._somebody(job) else None
        if asked is None:
            return False
        self._asked += 1
        found = preempt(self._scene(job), job, asked)
        if found is None:
            self._searched.add(alike)
            return False
        self._found += 1
        self._promises.set_aside(job, found.shares)
        self._events.append(
            GpusEarmarked(**self._tick.of_job(job), shares=found.shares, victims=found.victims, ranks=found.ranks)
        )
        self._count(job, found.shares, aside=True)
        for run_id in found.victims:
            run = self._cluster.runs[run_id]
            self._evicted.add(run_id)
            self._standing.give(run.team, run.gpu_type, run.gpus, rank=run.rank, preemptible=run.preemptible)
        return True

    def _somebody(self, job: Job) -> bool:
        """Whether anybody runs who might be stopped for the job: the quick no."""
        return any(use.preemptible and (use.team != job.team or use.rank > job.rank) for use in self._cluster.usage)

    def _consolidates(self, job: Job, line: Line) -> bool:
        """Whether runs move for the job; that they could may be said without."""
        policy = self._cluster.policy.consolidation
        if policy is Consolidation.OFF or line.shape in self._scattered or len(self._scattered) >= MOVES_MAX:
            return False
        self._scattered.add(line.shape)
        scene = self._scene(job)
        found = consolidate(scene, job, self._asks(line)[0])
        if found is None:
            return False
        told = said(scene, job, found)
        if policy is Consolidation.PROPOSE:
            self._events += told
            return False
        self._promises.set_aside(job, found.placement.shares)
        for move in found.moves:
            self._promises.set_aside(self._cluster.jobs[self._cluster.runs[move.run_id].job_id], move.shares)
            self._evicted.add(move.run_id)
        self._events += told
        self._count(job, found.placement.shares, aside=True)
        return True
