"""When and where a gang could start: a walk over the ends to come, around what is promised to others.

Source: the shadow time of EASY backfilling (Lifka 1995) and the profile of conservative backfilling (Mu'alem and
Feitelson 2001); here of slots on nodes, since a gang needs more than a number of GPUs.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from events.base import NodeId, SlotMask
from events.job import NodeShare
from projections.cluster.job import Run, Shape
from projections.cluster.node import Node
from projections.cluster.placing.room import Room
from services.scheduler.promised import Claim
from services.scheduler.walk import Walk

OVERRUN_S: Final = 60  # a run that is past its end is thought to go on for so long at the least,
OVERRUN_PART: Final = 4  # or for this part of what it has had
EVER: Final = datetime.min.replace(tzinfo=UTC)


class Plan(NamedTuple):
    """Where a gang will be, and when it starts: at the latest then if all ends hold; None: nobody knows."""

    shares: tuple[NodeShare, ...]
    start: datetime | None


class Taken(NamedTuple):
    """What the round itself gave away, and until when."""

    shares: tuple[NodeShare, ...]
    end: datetime | None  # None: nobody knows


class Change(NamedTuple):
    """Some GPUs come free, or what was promised to another is over."""

    time: datetime
    serial: int  # among those of one time
    shares: Iterable[NodeShare]
    promised: bool = False


class Future:
    """What comes free when, as seen at one moment of a round: `room` has what is free now, `taken` what no longer is."""

    def __init__(self, room: Room, at: datetime, taken: Sequence[Taken]) -> None:
        self._room = room
        self._at = at
        self._taken = taken

    def plan(
        self, shape: Shape, lasts: timedelta | None, *, around: Sequence[Claim], before: datetime | None = None
    ) -> Plan | None:
        """The earliest start found for a gang that lasts so long (None: nobody knows) beside the promises `around`.

        With `before`: one that is no later, or none. Else, where no known end makes room, the nodes that have the least
        running, without a start. None: what is promised to others never leaves room for it.
        """
        types = shape.gpu_types or tuple(sorted(self._room.cluster.capacity))
        walk = Walk(self._room, shape)
        shut = sorted(((_shut_from(claim, lasts), claim) for claim in around), key=itemgetter(0), reverse=True)
        time = None
        for time, changes in groupby(self._changes(types, around), key=itemgetter(0)):
            if before is not None and time > before:
                return None
            while shut and shut[-1][0] < time:
                walk.shut(shut.pop()[1].shares)
            for change in changes:
                (walk.reopen if change.promised else walk.free)(change.shares)
            if (shares := walk.find()) is not None:
                return Plan(shares, time)
        if time is not None and (shares := walk.find(at_once=True)) is not None:
            return Plan(shares, time)
        if before is not None:
            return None
        for _, claim in shut:
            if claim.lead is None:  # whether it will have started when maintenance comes, nobody knows
                walk.shut(claim.shares)
        return self._drained(walk, types)

    def _drained(self, walk: Walk, types: Sequence[str]) -> Plan | None:
        """On the nodes that have the least running, whenever that ends."""
        for node in self._least_busy(types):
            walk.free([NodeShare(node.node_id, node.epoch, SlotMask(node.pool))])
            if (shares := walk.find()) is not None:
                return Plan(shares, None)
        shares = walk.find(at_once=True)
        return Plan(shares, None) if shares is not None else None

    def _least_busy(self, types: Sequence[str]) -> Iterator[Node]:
        nodes = self._room.cluster.nodes
        pools = [pool for pool in self._room.pools.groups() if pool.gpu_type in types]
        for pool in sorted(pools, key=lambda pool: (pool.size - pool.free, pool)):
            yield from (nodes[NodeId(name)] for name in self._room.pools.names(pool))
        for node in nodes.values():
            if node.gpu_type in types and node.pool and not self._room.free(node):
                yield node

    def _changes(self, types: Sequence[str], around: Sequence[Claim]) -> Iterator[Change]:
        """All that is known to come, in order."""
        taken = sorted(
            (
                Change(taken.end, index, taken.shares)
                for index, taken in enumerate(self._taken)
                if taken.end is not None
            ),
            key=itemgetter(0, 1),
        )
        over = sorted(
            (Change(claim.end, index, claim.shares, promised=True) for index, claim in enumerate(around) if claim.end),
            key=itemgetter(0, 1),
        )
        coming = (self._coming(gpu_type) for gpu_type in types)
        return merge(self._overdue(types), taken, over, *coming, key=itemgetter(0, 1))

    def _overdue(self, types: Sequence[str]) -> list[Change]:
        """The runs that should have ended, by when they are thought to."""
        cluster = self._room.cluster
        late: list[Change] = []
        for gpu_type in types:
            for run_id in cluster.ends.until(gpu_type, self._at):
                run = cluster.runs[run_id]
                late.append(Change(expected_end(run, self._at) or self._at, run.placed, self._held(run)))
        return sorted(late, key=itemgetter(0, 1))

    def _coming(self, gpu_type: str) -> Iterator[Change]:
        cluster, now_s = self._room.cluster, self._at.timestamp()
        for (end_s, _), run_id in cluster.ends.line(gpu_type):
            if end_s > now_s:
                run = cluster.runs[run_id]
                assert run.end is not None
                yield Change(run.end, run.placed, self._held(run))

    def _held(self, run: Run) -> Iterator[NodeShare]:
        """What a run holds still: a part of what it had may be another's by now."""
        for share in run.shares:
            node = self._room.cluster.nodes[share.node_id]
            if slots := node.held.get(run.run_id, 0):
                yield NodeShare(node.node_id, node.epoch, SlotMask(slots))


def expected_end(run: Run, at: datetime) -> datetime | None:
    """When a run ends at the latest, as declared; one that should have, after a quarter more than it has had."""
    if run.end is None or run.end > at:
        return run.end
    return at + max(timedelta(seconds=OVERRUN_S), (at - run.placed_at) / OVERRUN_PART)


def _shut_from(claim: Claim, lasts: timedelta | None) -> datetime:
    """From when on what is promised to another is too near for a gang that lasts so long."""
    if claim.start is not None and lasts is None and claim.lead is not None:
        return claim.start - claim.lead
    return EVER if claim.start is None or lasts is None else claim.start - lasts
