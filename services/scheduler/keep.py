"""What a gang that lost a member keeps while it is stopped and waits again: the place that it still has, whole if that can be.

docs/requeue.md says the rules, docs/decisions/0029 why a part of a gang may be kept, and until when.
"""

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import Final

from events.base import Event, NodeId, SlotMask, run_id_of
from events.job import Domain, EarmarkCause, EarmarkDropped, GpusEarmarked, HoldCode, NodeShare, StopCause
from projections.cluster.avoid import forgiven
from projections.cluster.evolve import evolve
from projections.cluster.evolve_asides import drop_earmark
from projections.cluster.job import RUNTIME_MAX_S, Earmark, Job, JobState, Run, Shape, grace, lasts
from projections.cluster.node import Node, NodeState, Slots
from projections.cluster.placing.misfit import kept_away, least
from projections.cluster.placing.place import Placement, Room, place
from projections.cluster.placing.windows import Windows
from projections.cluster.quota.entitlement import Standing
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.scheduler.spots import ranks_of

RUNS_MAX: Final = 1_000  # that lost a member, looked at in one round; the rest is the next round's
SEARCHES_MAX: Final = 50  # for replacements, in one round; without one, a gang keeps what it has

Shares = tuple[NodeShare, ...]


def keep(cluster: Cluster, tick: Tick) -> tuple[Cluster, list[Event]]:
    """What is kept from now on, or no longer, and the cluster with that: the one given, if there is nothing to say.

    From when a run is told to stop since it lost a member until `keep_place_s` after its graces, what it has on nodes that
    are well is its job's alone, with GPUs elsewhere for what it lost, if there are any. What is whole is given out by
    `earmark.settle`. A part is given up when the job may run again: the job then has its turn like any other.
    """
    cluster = forgiven(cluster, tick.at)
    keeper = Keeper(cluster, tick)
    for job in keeper.jobs():
        keeper.look_at(job)
    return keeper.cluster, keeper.events


class Keeper:
    """Goes through the gangs that lost a member, in order of the policy; each sees what those before it keep."""

    def __init__(self, cluster: Cluster, tick: Tick) -> None:
        self.cluster = cluster
        self.events: list[Event] = []
        self._tick = tick
        self._searches = 0

    def jobs(self) -> list[Job]:
        """Those that keep something, or might."""
        cluster = self.cluster
        found = {cluster.runs[run_id].job_id for run_id in islice(cluster.recovering, RUNS_MAX)}
        found.update(earmark.job_id for earmark in cluster.earmarks.values() if earmark.until is not None)
        return sorted((cluster.jobs[job_id] for job_id in found), key=lambda job: (cluster.key(job), job.job_id))

    def look_at(self, job: Job) -> None:
        """The job keeps what it may, from now on."""
        run = self.cluster.runs[run_id_of(job.job_id, job.attempt)] if job.state is JobState.PLACED else None
        earmark = self.cluster.earmarks.get(job.job_id)
        if earmark is None:
            if run is not None and (until := self._until(job, run)) is not None and self._may(job, run):
                self._keeps(job, run, until)
        elif earmark.until is None:
            pass  # others end for it
        elif (cause := self._over(job, earmark.until)) is not None:
            self._drop(job, cause)
        elif not self._whole(job, earmark):
            if job.state is JobState.ADMITTED:
                self._drop(job, EarmarkCause.NODE)
            else:
                self._keeps(job, run, earmark.until, earmark)

    # Whether

    def _until(self, job: Job, run: Run) -> datetime | None:
        """How long the job keeps what the run has; None: not at all, or no longer."""
        keep_s = min(self.cluster.policy.keep_place_s, RUNTIME_MAX_S)
        if not keep_s or run.stopped_at is None:
            return None
        until = run.stopped_at + grace(job.spec) + timedelta(seconds=keep_s)
        return until if until > self._tick.at else None

    @cached_property
    def _windows(self) -> Windows:
        return Windows(self.cluster)  # which no word of this round changes

    @cached_property
    def _standing(self) -> Standing:
        return Standing(self.cluster, self._tick.at)

    def _may(self, job: Job, run: Run) -> bool:
        """Whether the job will wait again, and its team may have as much: by its entitlement and its limits."""
        if job.cancel or self.cluster.tree.stopped(job.team):
            return False
        if run.stopping is not StopCause.DRAIN and job.failures_infrastructure >= job.spec.retries_infrastructure:
            return False
        standing = self._standing
        standing.give(run.team, run.gpu_type, run.gpus, rank=run.rank, preemptible=run.preemptible)
        within = standing.within(run.team, run.gpu_type, run.gpus, rank=run.rank)
        within = within and not standing.short(run.team, run.gpu_type, run.gpus)
        standing.give(run.team, run.gpu_type, -run.gpus, rank=run.rank, preemptible=run.preemptible)
        return within

    def _over(self, job: Job, until: datetime) -> EarmarkCause | None:
        """Why nothing is kept for the job any more; None: something may be."""
        if job.cancel or job.hold is HoldCode.FAILED_TOO_OFTEN or self.cluster.tree.stopped(job.team):
            return EarmarkCause.CHANGED
        return EarmarkCause.EXPIRED if until <= self._tick.at else None

    def _whole(self, job: Job, earmark: Earmark) -> bool:
        """Whether the job can start on what is kept, once all of it is free."""
        away = kept_away(self.cluster, job.shape)
        stands = all(self._stands(job, share, away, silent=True) for share in earmark.shares)
        return stands and _gpus(earmark.shares) >= least(job.shape).gpus

    def _stands(self, job: Job, share: NodeShare, away: Container[NodeId], *, silent: bool) -> bool:
        """Whether a share can be used again: its node is well, or no more than `silent`, and its GPUs are the job's or nobody's."""
        node = self.cluster.nodes.get(share.node_id)
        if node is None or node.epoch != share.node_epoch or node.closed or share.node_id in away:
            return False
        if node.state is NodeState.LOST or (node.state is NodeState.SUSPECT and not silent):
            return False
        if not self._windows.spares((share,), job.spec, self._tick.at):
            return False
        held = node.held.get(run_id_of(job.job_id, job.attempt), 0)
        mine = node.earmarked.get(job.job_id, 0) | ((held | node.free) & ~node.marked)
        return not share.slots & ~(node.pool & ~node.sick & mine)

    # What

    def _keeps(self, job: Job, run: Run | None, until: datetime, instead: Earmark | None = None) -> None:
        """Of what it had the job keeps what can be used again, with more if that makes it whole; nothing where nothing can be."""
        had = run.shares if run is not None else instead.shares if instead is not None else ()
        shape = _blaming(job.shape, run.blamed) if run is not None else job.shape
        away, promised = kept_away(self.cluster, shape), self._promised_before(job)
        has = tuple(
            share
            for share in had
            if self._stands(job, share, away, silent=instead is not None)
            and not share.slots & promised.get(share.node_id, 0)
        )
        shares = (self._made_whole(job, shape, had, has) if has else None) or has
        if instead is not None:
            if shares == instead.shares:
                return
            self._drop(job, EarmarkCause.NODE)
        if shares:
            ranks = ranks_of(self.cluster, shares)
            self._say(GpusEarmarked(**self._tick.of_job(job), shares=shares, ranks=ranks, until=until))

    def _promised_before(self, job: Job) -> dict[NodeId, Slots]:
        """GPUs that are promised to jobs before this one in the order: it does not keep them from these."""
        key, slots = self.cluster.key(job), dict[NodeId, Slots]()
        for promise in self.cluster.promises.values():
            if self.cluster.key(self.cluster.jobs[promise.job_id]) < key:
                for share in promise.shares:
                    slots[share.node_id] = slots.get(share.node_id, 0) | share.slots
        return slots

    def _made_whole(self, job: Job, shape: Shape, had: Shares, has: Shares) -> Shares | None:
        """What it has and other nodes for what it lost; or else a place that holds all of it. None: as it is, or not at all."""
        lost = Counter(share.slots.bit_count() for share in had if share not in has)
        enough = _gpus(had) >= least(shape).gpus
        if (enough and not lost) or self._searches >= SEARCHES_MAX:
            return None
        self._searches += 1
        room, nodes = self._room(job, has), [self.cluster.nodes[share.node_id] for share in has]
        if enough:
            others = room.fork()
            others.reserve(NodeShare(node.node_id, node.epoch, SlotMask(node.pool)) for node in nodes)
            for asked in _replacements(shape, nodes, lost):
                if (found := _all_of(others.fork(), asked)) is not None:
                    return tuple(sorted((*has, *found), key=lambda share: share.node_id))
        most = max(_gpus(had), least(shape).gpus)  # as was asked for of limits
        anew = place(room, shape._replace(gpu_types=(nodes[0].gpu_type,)), most=most)
        return anew.shares if isinstance(anew, Placement) else None

    def _room(self, job: Job, has: Shares) -> Room:
        """What is free and promised to nobody, and what the job has, as if it were free."""
        cluster = self.cluster
        if job.job_id in cluster.earmarks:
            cluster = cluster.fork()
            drop_earmark(cluster, job.job_id)
        room, own = Room(cluster), {share.node_id: share.slots for share in has}
        room.give(has)
        for promise in cluster.promises.values():
            for share in promise.shares:
                if slots := share.slots & ~own.get(share.node_id, 0):
                    room.reserve([NodeShare(share.node_id, share.node_epoch, SlotMask(slots))])
        time = lasts(job.spec)
        end = self._tick.at + time if time is not None else None
        return self._windows.without(room, self._windows.class_of(end))

    # What is said

    def _drop(self, job: Job, cause: EarmarkCause) -> None:
        self._say(EarmarkDropped(**self._tick.of_job(job), cause=cause))

    def _say(self, event: Event) -> None:
        if not self.events:
            self.cluster = self.cluster.fork()
        self.events.append(event)
        self.cluster = evolve(self.cluster, self._tick.decided(event))


def _gpus(shares: Shares) -> int:
    return sum(share.slots.bit_count() for share in shares)


def _blaming(shape: Shape, node_id: NodeId) -> Shape:
    """The shape of a job that keeps away from this node too; it may be none."""
    return shape._replace(avoid=tuple(sorted({*shape.avoid, node_id}))) if node_id else shape


def _replacements(shape: Shape, nodes: Sequence[Node], lost: Mapping[int, int]) -> Iterator[list[Shape]]:
    """What to look for in place of shares that were lost (GPUs of each -> how many): near the others first, or only there."""
    wanted = [labels for labels in (_near(shape, nodes),) if labels is not None]
    if not (shape.within and shape.required):
        wanted.append(shape.labels)
    for labels in dict.fromkeys(wanted):
        alike = shape._replace(gpu_types=(nodes[0].gpu_type,), min_gpus=0, within="", required=False, labels=labels)
        yield [
            alike._replace(gpus=number * gpus, nodes=number, gpus_per_node=gpus)
            for gpus, number in sorted(lost.items(), reverse=True)
        ]


def _near(shape: Shape, nodes: Sequence[Node]) -> tuple[tuple[str, str], ...] | None:
    """The labels of the one domain in which a gang wants to be and these nodes are; None where that is not known."""
    places = {node.place if shape.within == Domain.RACK else node.place._replace(rack="") for node in nodes}
    place = places.pop()
    known = {Domain.SPINE.value: place.spine, Domain.RACK.value: place.rack}
    if not shape.within or places or not known[shape.within]:
        return None
    return tuple(sorted({**dict(shape.labels), **{key: value for key, value in known.items() if value}}.items()))


def _all_of(room: Room, asked: Sequence[Shape]) -> Shares | None:
    """A place for each of these on nodes of their own; None where not all have one."""
    found: list[NodeShare] = []
    for shape in asked:
        placed = place(room, shape)
        if not isinstance(placed, Placement):
            return None
        found += placed.shares
        room.reserve(
            NodeShare(s.node_id, s.node_epoch, SlotMask(room.cluster.nodes[s.node_id].pool)) for s in placed.shares
        )
    return tuple(found)
