"""What is free, and which of it is promised: the rooms in which jobs are tried."""

from bisect import bisect_left, insort
from collections.abc import Container, Iterable, Iterator
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from events.base import JobId, NodeId, SlotMask
from events.job import HoldCode, NodeShare
from projections.cluster.job import Shape
from projections.cluster.node import Slots
from projections.cluster.placing.place import Misfit, Placement, place
from projections.cluster.placing.room import Room
from projections.cluster.placing.windows import Windows
from projections.cluster.state import Cluster

CLASSES_MAX: Final = 4  # of runs, by the maintenance before their end, whose rooms are kept at once


class Claim(NamedTuple):
    """What is promised to a job, and until when the job will need it."""

    job_id: JobId
    shares: tuple[NodeShare, ...]  # ordered by node
    start: datetime | None  # None: nobody knows
    end: datetime | None  # likewise
    lead: timedelta | None = None  # of maintenance: so long before its start it is closed to what declares no end, too

    def after(self, end: datetime | None) -> bool:
        """Whether what ends by then is gone before the job starts."""
        return end is not None and self.start is not None and end <= self.start


class Promised:
    """The free GPUs of a round, with and without those that are promised.

    `open` has all that is free, `closed` what nobody was promised. Both only shrink, but for promises that are dropped.
    """

    def __init__(self, cluster: Cluster, at: datetime) -> None:
        self.open = self.closed = Room(cluster)
        self.windows = Windows(cluster)
        self.claims: dict[JobId, Claim] = {}
        self._at = at
        self._nodes = cluster.nodes
        self._aside: list[NodeShare] = []
        self._on: dict[NodeId, list[Claim]] = {}
        self._starts: list[datetime] = []  # of the claims that have one, sorted
        self._misfits: dict[tuple[Shape, int | None], Misfit] = {}  # in `closed`
        self._never: dict[tuple[Shape, int | None], Misfit] = {}  # in `open`
        self._denied: dict[tuple[Shape, int | None], int] = {}  # with so many promised starts that are late enough
        self._narrow: dict[int, Room] = {}  # what of `closed` has no maintenance too soon, by the class of the run
        self._shut: dict[tuple[Shape, int | None], int] = {}  # the least class for which that has no place
        self._shut_promised: dict[tuple[Shape, int | None, int], int] = {}  # likewise of what is promised, as `_denied`

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
        self._forget()

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
        self._shut.clear()
        self._forget()

    def _forget(self) -> None:
        """What was found out in view of other promises than there are now."""
        self._denied.clear()
        self._narrow.clear()
        self._shut_promised.clear()

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
        for room in self._narrow.values():
            room.take(self._within(room, shares))
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

    def fit(self, shape: Shape, most: int | None, *, end: datetime | None = None) -> Placement | Misfit:
        """A place on what nobody was promised, and where no maintenance is on before `end`."""
        found = _memo_place(self.closed, shape, most, self._misfits)
        if isinstance(found, Misfit) or self.windows.spare(found.shares, self._at, end):
            return found
        return self._fit_around(shape, most, self.windows.class_of(end))

    def _fit_around(self, shape: Shape, most: int | None, class_: int) -> Placement | Misfit:
        """A place on nodes that are not closed to the class: one that is free elsewhere is kept for maintenance."""
        if class_ < self._shut.get((shape, most), class_ + 1):
            if (room := self._narrow.get(class_)) is None:
                if len(self._narrow) >= CLASSES_MAX:
                    self._narrow.pop(next(iter(self._narrow)))
                room = self._narrow[class_] = self.windows.without(self.closed, class_)
            if isinstance(found := place(room, shape, most=most), Placement):
                return found
            self._shut[shape, most] = class_
        return Misfit(HoldCode.RESERVED)

    def has_place(self, shape: Shape, most: int | None, *, end: datetime) -> bool:
        """Whether there is a place for one without a promise that is gone by `end`."""
        if isinstance(self.fit(shape, most, end=end), Placement):
            return True
        return isinstance(self.fit_promised(shape, most, end=end, mine=frozenset()), Placement)

    def fit_promised(
        self, shape: Shape, most: int | None, *, end: datetime | None, mine: AbstractSet[JobId]
    ) -> Placement | Misfit | None:
        """A place with GPUs that are promised, for one that is gone by `end`, or may have what was promised to `mine`.

        None: what is free would hold it, but it is promised to others.
        """
        if self.closed is self.open:
            return self._misfits.get((shape, most))
        anywhere = _memo_place(self.open, shape, most, self._never)
        if isinstance(anywhere, Misfit):
            return anywhere
        late = len(self._starts) - bisect_left(self._starts, end) if end is not None else 0
        owned = not self.claims.keys().isdisjoint(mine)
        class_ = self.windows.class_of(end)
        denied = self._shut_promised.get((shape, most, class_), 0) if class_ else self._denied.get((shape, most), 0)
        if not owned and late <= denied:
            return None
        found = place(self.windows.without(self._room_for(end, mine), class_), shape, most=most)
        if isinstance(found, Placement):
            return found
        if not owned and class_:
            self._shut_promised[shape, most, class_] = late
        elif not owned:
            self._denied[shape, most] = late
        return None

    def latest(self, shape: Shape, most: int | None) -> datetime | None:
        """By when one without a promise must be gone to have a place on GPUs that are promised, or kept for maintenance.

        None: there is none, as far as known.
        """
        closed = self._shut.get((shape, most), 0)
        maintained = self.windows.latest(closed) if closed else None
        hopeless = self._denied.get((shape, most), 0)
        if (shape, most) in self._never or hopeless >= len(self._starts):
            return maintained
        promised = self._starts[-1 - hopeless]
        return promised if maintained is None else max(promised, maintained)

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

    def guarded(self, mine: Container[JobId], *, end: datetime | None = None) -> Room:
        """All that is free, with what is promised to others than `mine` reserved: for searches that also free GPUs.

        Likewise the nodes that have maintenance before `end`.
        """
        return self.windows.without(self._guarded(mine), self.windows.class_of(end))

    def _guarded(self, mine: Container[JobId]) -> Room:
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
