"""Promises: which gangs get one, and when one is kept, moved or dropped. docs/promises.md says the rules."""

from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Final

from events.base import Event, JobId, NodeId
from events.job import JobPlaced, NodeShare, PromiseCause, PromiseDropped, PromiseMoved, StartPromised
from events.policy import JobOrder
from projections.cluster.fitness import LEAD
from projections.cluster.job import Job, JobState, Promise, Shape, lasts
from projections.cluster.node import NodeState, Slots
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.scheduler.future import Future, Plan, Taken, expected_end
from services.scheduler.promised import Claim, Promised

PROMISES_MAX: Final = 256  # at once, whatever the policy says: each is looked at in each round
PLANS_MAX: Final = 16  # made in one round; the rest is the next round's
SOONER_MAX: Final = 2  # of these, for promises that are kept as they are if there is no earlier start
MOVED_AGAIN_AFTER: Final = timedelta(seconds=30)  # but for what was taken, and for nodes that went
EARLIER_BY: Final = timedelta(seconds=30)  # a start that is sooner by less is not worth a word
NOBODY: Final = JobId("")


class Promises:
    """What is promised while a round goes through the jobs in order."""

    def __init__(self, cluster: Cluster, tick: Tick, promised: Promised, events: list[Event]) -> None:
        """What is decided is appended to `events`."""
        self._events = events
        self._cluster = cluster
        self._tick = tick
        self._promised = promised
        self._depth = min(cluster.policy.promises, PROMISES_MAX)
        self._kept = 0
        self._plans = 0
        self._sooner = 0
        self._broken: set[JobId] = set()  # by jobs before them in the order
        self._taken: list[Taken] = []
        self._aside: list[Claim] = []  # what this round set aside for preemptors
        self._ahead: set[JobId] = set()  # whose turn has not come
        self._undated: set[JobId] = set()  # of these, those whose promise has no start
        placed = {event.job_id for event in events if isinstance(event, JobPlaced)}  # which says all of their promises
        for promise in sorted(cluster.promises.values(), key=lambda p: (p.position, p.job_id)):
            job = cluster.jobs[promise.job_id]
            if job.job_id in placed:
                continue
            if job.state is not JobState.ADMITTED or job.cancel:
                self._drop(job, PromiseCause.CHANGED)
            elif job.job_id in cluster.earmarks:
                self._drop(job, PromiseCause.PREEMPTION)
            else:
                promised.add(self._claim(job, promise.shares, promise.start))
                self._ahead.add(job.job_id)
                if promise.start is None:
                    self._undated.add(job.job_id)

    @property
    def holders(self) -> list[Job]:
        """The jobs that have a promise when the round begins."""
        return [self._cluster.jobs[job_id] for job_id in self._promised.claims]

    def open_to(self, job: Job) -> AbstractSet[JobId]:
        """Whose promised GPUs a job may take: one without a promise those of all behind it in the order.

        One with a promise has enough in its own: it takes that of others only once its time has come, or where they have
        no time that could be put off.
        """
        claim = self.claim_of(job)
        if claim is None or (claim.start is not None and claim.start <= self._tick.at):
            return self._ahead | {job.job_id}
        return self._undated | {job.job_id}

    def claim_of(self, job: Job) -> Claim | None:
        """What is promised to the job."""
        return self._promised.claims.get(job.job_id)

    # What becomes of a job

    def started(self, job: Job, shares: tuple[NodeShare, ...], end: datetime | None) -> None:
        """The job has got these GPUs, which were free, until `end`."""
        if job.job_id in self._promised.claims:
            self._promised.drop(job.job_id)  # `JobPlaced` says it all
            self._has_turn(job.job_id)
        self._break(shares, end)
        self._promised.take(shares)
        self._taken.append(Taken(shares, end))

    def set_aside(self, job: Job, shares: tuple[NodeShare, ...]) -> None:
        """These GPUs, some of them free, wait for the job: others are stopped for it."""
        self.lose(job, PromiseCause.PREEMPTION)
        self._break(shares, None)
        self._promised.set_aside(shares)
        self._aside.append(Claim(NOBODY, shares, None, None))

    def lose(self, job: Job, cause: PromiseCause) -> None:
        """The job has no promise, whether it had one or not."""
        if job.job_id in self._promised.claims:
            self._promised.drop(job.job_id)
            self._has_turn(job.job_id)
            self._drop(job, cause)

    def cannot_start(self, job: Job, shape: Shape) -> bool:
        """Whether the job, whose turn it is and for which there is no room, has a promise from now on.

        `shape`: what may be looked for, its own on the types that are open to it.
        """
        claim = self.claim_of(job)
        self._has_turn(job.job_id)
        kept = self._keep(job, claim, shape) if claim is not None else self._make(job, shape)
        self._kept += kept
        return kept

    def _has_turn(self, job_id: JobId) -> None:
        self._ahead.discard(job_id)
        self._undated.discard(job_id)

    @property
    def exhausted(self) -> bool:
        """Whether no job behind gets a promise that it does not have."""
        return self._kept >= self._depth or self._plans >= PLANS_MAX

    # Making, keeping, moving

    def _make(self, job: Job, shape: Shape) -> bool:
        later = self._may_give_way(job) if self._kept + len(self._ahead) >= self._depth else None
        if self.exhausted or (later is None and self._kept + len(self._ahead) >= self._depth):
            return False
        plan = self._plan(job, shape, around=self._before())
        if plan is None:
            return False
        if later is not None:
            self.lose(later, PromiseCause.POLICY)
        self._events.append(StartPromised(**self._tick.of_job(job), shares=plan.shares, start=plan.start))
        self._put(job, plan)
        return True

    def _may_give_way(self, job: Job) -> Job | None:
        """The last of those behind the job that would lose their promise to it: under `fair`, one of a lower class."""
        ahead = [self._cluster.jobs[job_id] for job_id in self._ahead]
        if self._cluster.policy.order is JobOrder.FAIR:
            ahead = [other for other in ahead if other.rank > job.rank]
        return max(ahead, key=lambda other: (self._cluster.key(other), other.job_id), default=None)

    def _keep(self, job: Job, claim: Claim, shape: Shape) -> bool:
        if self._kept >= self._depth:
            self.lose(job, PromiseCause.POLICY)
            return False
        promise = self._cluster.promises[job.job_id]
        cause = self._fault(promise)
        urgent = cause in (PromiseCause.OVERTAKEN, PromiseCause.NODE)
        if cause is None and self._late(promise):
            cause = PromiseCause.OVERRUN
        if cause is None:
            self._bring_forward(job, promise, shape)
            return True
        if not urgent and promise.at + MOVED_AGAIN_AFTER > self._tick.at:
            return True
        plan = self._plan(job, shape, around=self._before(), instead=claim)
        if plan is not None:
            self._move(job, promise, plan, cause)
        elif cause is PromiseCause.OVERTAKEN and self._waits_for_others(claim):
            self._put_off(job, promise)
        elif urgent:
            self.lose(job, cause)
            return False
        return True

    def _waits_for_others(self, claim: Claim) -> bool:
        """Whether what was promised is only set aside for others, and not promised to anybody before: it comes back."""
        if any(
            other.job_id not in self._ahead and other is not claim
            for other in self._promised.hit(claim.shares, end=None)
        ):
            return False
        aside: dict[NodeId, Slots] = {}
        for share in (share for other in self._aside for share in other.shares):
            aside[share.node_id] = aside.get(share.node_id, 0) | share.slots
        nodes = self._cluster.nodes
        return any(share.slots & (nodes[share.node_id].marked | aside.get(share.node_id, 0)) for share in claim.shares)

    def _put_off(self, job: Job, promise: Promise) -> None:
        """It stands without a start, until what others have set aside is theirs and it is known for how long.

        Given up, it would be another's until then, and taken from that again.
        """
        if promise.start is not None:
            moved = PromiseMoved(
                **self._tick.of_job(job), shares=promise.shares, start=None, cause=PromiseCause.OVERTAKEN
            )
            self._events.append(moved)
            self._promised.drop(job.job_id)
            self._promised.add(self._claim(job, promise.shares, None))

    def _fault(self, promise: Promise) -> PromiseCause | None:
        """What has happened to the GPUs that were promised."""
        if promise.job_id in self._broken:
            return PromiseCause.OVERTAKEN
        for share in promise.shares:
            node = self._cluster.nodes.get(share.node_id)
            if node is None or node.epoch != share.node_epoch or node.state is not NodeState.UP or node.closed:
                return PromiseCause.NODE
            if share.slots & ~(node.pool & ~node.sick):
                return PromiseCause.NODE
            if share.slots & node.marked:
                return PromiseCause.OVERTAKEN
        job = self._cluster.jobs[promise.job_id]
        claim = self._claim(job, promise.shares, promise.start)
        start = promise.start or self._tick.at
        return None if self._promised.windows.spare(claim.shares, start, claim.end) else PromiseCause.NODE

    def _late(self, promise: Promise) -> bool:
        return promise.start is not None and promise.start < self._tick.at

    def _bring_forward(self, job: Job, promise: Promise, shape: Shape) -> None:
        """The promise is earlier if that is so: looked for where its own GPUs come free sooner, and for the first in order."""
        lately = promise.start is not None and promise.at + MOVED_AGAIN_AFTER > self._tick.at
        if lately or self._sooner >= SOONER_MAX:
            return
        free_at = self._free_at(promise)
        before = promise.start - EARLIER_BY if promise.start is not None else None
        if free_at is None or (self._kept and before is not None and free_at > before):
            return
        self._sooner += 1
        others = [claim for claim in self._promised.claims.values() if claim.job_id != job.job_id]
        plan = self._plan(job, shape, around=[*others, *self._aside], before=before)
        if plan is not None and plan.start is not None:
            self._move(job, promise, plan, PromiseCause.EARLIER)

    def _free_at(self, promise: Promise) -> datetime | None:
        """When all that was promised is free, as it looks now; None: nobody knows."""
        latest = self._tick.at
        for share in promise.shares:
            for run_id, slots in self._cluster.nodes[share.node_id].held.items():
                if slots & share.slots:
                    end = expected_end(self._cluster.runs[run_id], self._tick.at)
                    if end is None:
                        return None
                    latest = max(latest, end)
        return latest

    def _plan(
        self,
        job: Job,
        shape: Shape,
        *,
        around: list[Claim],
        instead: Claim | None = None,
        before: datetime | None = None,
    ) -> Plan | None:
        """A plan, as far as the round's number of them goes. `instead` of a claim: what that has may be in it."""
        if self._plans >= PLANS_MAX:
            return None
        self._plans += 1
        maintained = (Claim(NOBODY, one.shares, one.starts, one.ends, LEAD) for one in self._promised.windows.closed)
        around = [*(claim for claim in around if claim is not instead), *maintained]
        future = Future(self._promised.open, self._tick.at, self._taken)
        return future.plan(shape, lasts(job.spec), around=around, before=before)

    def _before(self) -> list[Claim]:
        """What is promised to those before the job whose turn it is."""
        before = [claim for claim in self._promised.claims.values() if claim.job_id not in self._ahead]
        return [*before, *self._aside]

    def _move(self, job: Job, promise: Promise, plan: Plan, cause: PromiseCause) -> None:
        if (plan.shares, plan.start) == (promise.shares, promise.start):
            return
        moved = PromiseMoved(**self._tick.of_job(job), shares=plan.shares, start=plan.start, cause=cause)
        self._events.append(moved)
        self._promised.drop(job.job_id)
        self._put(job, plan)

    def _put(self, job: Job, plan: Plan) -> None:
        claim = self._claim(job, plan.shares, plan.start)
        self._break(plan.shares, claim.end, start=plan.start)
        self._promised.add(claim)

    def _claim(self, job: Job, shares: tuple[NodeShare, ...], start: datetime | None) -> Claim:
        time = lasts(job.spec)
        end = max(start, self._tick.at) + time if start is not None and time is not None else None
        return Claim(job.job_id, shares, start, end)

    def _break(self, shares: tuple[NodeShare, ...], end: datetime | None, *, start: datetime | None = None) -> None:
        """What was promised of these GPUs to jobs behind, and is not before `start` or after `end`, has to move."""
        if not self._ahead:
            return
        for claim in self._promised.hit(shares, end=end):
            if claim.job_id in self._ahead and not (start is not None and claim.end is not None and claim.end <= start):
                self._broken.add(claim.job_id)

    def _drop(self, job: Job, cause: PromiseCause) -> None:
        self._events.append(PromiseDropped(**self._tick.of_job(job), cause=cause))
