"""What is free, and which of it is promised: the rooms in which jobs are tried."""

from bisect import bisect_left, insort
from collections.abc import Container, Iterable, Iterator
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import NamedTuple

from events.base import JobId, NodeId, SlotMask
from events.job import NodeShare
from projections.cluster.job import Shape
from projections.cluster.node import Slots
from projections.cluster.placing.place import Misfit, Placement, place
from projections.cluster.placing.room import Room
from projections.cluster.state import Cluster


class Claim(NamedTuple):
    """What is promised to a job, and until when the job will need it."""

    job_id: JobId
    shares: tuple[NodeShare, ...]  # ordered by node
    start: datetime | None  # None: nobody knows
    end: datetime | None  # likewise

    def after(self, end: datetime | None) -> bool:
        """Whether what ends by then is gone before the job starts."""
        return end is not None and self.start is not None and end <= self.start


class Promised:
    """The free GPUs of a round, with and without those that are promised.

    `open` has all that is free, `closed` what nobody was promised. Both only shrink, but for promises that are dropped.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.open = self.closed = Room(cluster)
        self.claims: dict[JobId, Claim] = {}
        self._nodes = cluster.nodes
        self._aside: list[NodeShare] = []
        self._on: dict[NodeId, list[Claim]] = {}
        self._starts: list[datetime] = []  # of the claims that have one, sorted
        self._misfits: dict[tuple[Shape, int | None], Misfit] = {}  # in `closed`
        self._never: dict[tuple[Shape, int | None], Misfit] = {}  # in `open`
        self._denied: dict[tuple[Shape, int | None], int] = {}  # with so many promised starts that are late enough

    # Promises

    def add(self, claim: Claim) -> None:
        """This is promised: nobody gets it but whom it is promised to, and who is gone before."""
        if self.closed is self.open:
            self.closed = self.open.fork()
        self.closed.take(self._within(self.closed, claim.shares))
        self.claims[claim.job_id] = claim
        for share in claim.shares:
            self._on.setdefault(share.node_id, []).append(claim)
        if claim.start is not None:
            insort(self._starts, claim.start)
        self._denied.clear()

    def drop(self, job_id: JobId) -> None:
        """It is promised no more: what of it is free is anyone's."""
        claim = self.claims.pop(job_id)
        for share in claim.shares:
            self._on[share.node_id].remove(claim)
        for share in claim.shares:
            node = self._nodes[share.node_id]
            back = share.slots & self.open.free(node) & ~self._promised_on(share.node_id)
            if back:
                self.closed.give([NodeShare(node.node_id, node.epoch, SlotMask(back))])
                self._misfits.clear()
        if claim.start is not None:
            del self._starts[bisect_left(self._starts, claim.start)]
        self._denied.clear()

    def _promised_on(self, node_id: NodeId) -> Slots:
        slots = 0
        for claim in self._on.get(node_id, ()):
            slots |= _slots_on(claim, node_id)
        return slots

    # Placing

    def take(self, shares: Iterable[NodeShare]) -> None:
        """These slots, all of them free, are given away."""
        shares = tuple(shares)
        if self.closed is not self.open:
            self.closed.take(self._within(self.closed, shares))
        self.open.take(shares)

    def set_aside(self, shares: Iterable[NodeShare]) -> None:
        """These slots, some of them free, are for one job alone once all are."""
        shares = tuple(shares)
        self._aside += shares
        self.take(tuple(self._within(self.open, shares)))

    def hit(self, shares: Iterable[NodeShare], *, end: datetime | None) -> Iterator[Claim]:
        """The promises that cannot be kept where these slots are in use until `end`; None: nobody knows when."""
        seen: set[JobId] = set()
        for share in shares:
            for claim in self._on.get(share.node_id, ()):
                if claim.job_id in seen or claim.after(end) or not _slots_on(claim, share.node_id) & share.slots:
                    continue
                seen.add(claim.job_id)
                yield claim

    def fit(self, shape: Shape, most: int | None) -> Placement | Misfit:
        """A place on what nobody was promised."""
        return _memo_place(self.closed, shape, most, self._misfits)

    def fit_promised(
        self, shape: Shape, most: int | None, *, end: datetime | None, mine: AbstractSet[JobId]
    ) -> Placement | Misfit | None:
        """A place with GPUs that are promised, for one that is gone by `end`, or may have what was promised to `mine`.

        None: what is free would hold it, but it is promised to others.
        """
        if self.closed is self.open:
            return self._misfits[shape, most]
        anywhere = _memo_place(self.open, shape, most, self._never)
        if isinstance(anywhere, Misfit):
            return anywhere
        late = len(self._starts) - bisect_left(self._starts, end) if end is not None else 0
        owned = not self.claims.keys().isdisjoint(mine)
        if not owned and late <= self._denied.get((shape, most), 0):
            return None
        found = place(self._room_for(end, mine), shape, most=most)
        if isinstance(found, Placement):
            return found
        if not owned:
            self._denied[shape, most] = late
        return None

    def latest(self, shape: Shape, most: int | None) -> datetime | None:
        """By when one without a promise must be gone to have a place on promised GPUs; None: there is none, as far as known."""
        hopeless = self._denied.get((shape, most), 0)
        if (shape, most) in self._never or hopeless >= len(self._starts):
            return None
        return self._starts[-1 - hopeless]

    def _room_for(self, end: datetime | None, mine: Container[JobId]) -> Room:
        """What nobody was promised, and what is promised to `mine`, or not before `end`."""
        room = self.closed.fork()
        for claim in self.claims.values():
            if not (claim.job_id in mine or claim.after(end)):
                continue
            for share in claim.shares:
                node = self._nodes[share.node_id]
                slots = share.slots & self.open.free(node)
                for other in self._on[share.node_id] if slots else ():
                    if not (other.job_id in mine or other.after(end)):
                        slots &= ~_slots_on(other, share.node_id)
                if slots:
                    room.give([NodeShare(node.node_id, node.epoch, SlotMask(slots))])
        return room

    def all_free(self, claim: Claim) -> bool:
        """Whether all that was promised is free."""
        for share in claim.shares:
            node = self._nodes.get(share.node_id)
            if node is None or node.epoch != share.node_epoch or share.slots & ~self.open.free(node):
                return False
        return True

    def some_free(self, claim: Claim) -> bool:
        """Whether a part of what was promised is free."""
        return any(share.slots & self.open.free(self._nodes[share.node_id]) for share in claim.shares)

    def guarded(self, mine: Container[JobId]) -> Room:
        """All that is free, with what is promised to others than `mine` reserved: for searches that also free GPUs."""
        if not self.claims and not self._aside:
            return self.open
        room = self.open.fork()
        room.reserve(self._aside)
        for claim in self.claims.values():
            if claim.job_id not in mine:
                room.reserve(claim.shares)
        return room

    def _within(self, room: Room, shares: Iterable[NodeShare]) -> Iterator[NodeShare]:
        """What of the shares is free in a room."""
        for share in shares:
            node = self._nodes.get(share.node_id)
            if node is not None and node.epoch == share.node_epoch and (slots := share.slots & room.free(node)):
                yield NodeShare(share.node_id, share.node_epoch, SlotMask(slots))


def _slots_on(claim: Claim, node_id: NodeId) -> Slots:
    """What is promised to a job on one node; shares are ordered by node."""
    index = bisect_left(claim.shares, node_id, key=lambda share: share.node_id)
    return claim.shares[index].slots


def _memo_place(
    room: Room, shape: Shape, most: int | None, misfits: dict[tuple[Shape, int | None], Misfit]
) -> Placement | Misfit:
    """A place, looked for once a shape until it does not fit: GPUs only get fewer."""
    if (known := misfits.get((shape, most))) is not None:
        return known
    found = place(room, shape, most=most)
    if isinstance(found, Misfit):
        misfits[shape, most] = found
    return found
