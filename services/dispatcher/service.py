"""Keeps the desired state of every node as the fold wants it: compares stored with wanted, writes the differences."""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from events.base import START, NodeId, Position, Stretch
from events.desired import Desired, as_of_in, decode_desired
from events.subjects import Subjects
from projections.cluster.desired import desired, fitted
from projections.cluster.patience import waiting
from projections.cluster.state import Cluster
from runtime.fault import Fault
from runtime.last_values import LastValues
from runtime.logging import get_logger
from services.dispatcher.touched import touched
from services.dispatcher.waits import alike, waited_for

logger = get_logger(__name__)

WRITES_AT_ONCE: Final = 64
LOOK_EVERY_S: Final = 0.5  # at active(), while nothing is touched
TRY_AGAIN_AFTER_S: Final = 0.5

_encoder = msgspec.json.Encoder()


class Known(NamedTuple):
    """What is stored for a node, as we read or wrote it last; None where it cannot be read."""

    sequence: int
    desired: Desired | None
    as_of: Position = START


class Dispatcher:
    """Writes for all nodes while `active`. Any number may run: a value carries its position, and none goes back."""

    def __init__(self, values: LastValues, subjects: Subjects, active: Callable[[], bool]) -> None:
        self._values = values
        self._subjects = subjects
        self._active = active
        self._known: dict[NodeId, Known] = {}
        self._due: dict[NodeId, Position] = {}  # to be compared, and where the log last touched them
        self._crowded: set[NodeId] = set()  # told less than all, since one message does not hold it
        self._cluster: Cluster | None = None
        self._woken = asyncio.Event()

    def watch(self, cluster: Cluster, stretch: Stretch) -> None:
        """Note what a stretch touched, after it was folded."""
        self._cluster = cluster
        for recorded in stretch:
            for node_id in touched(cluster, (recorded,), self._crowded):
                self._due[node_id] = recorded.position
                self._woken.set()
            for node_id in waited_for(cluster, recorded):
                if self._misled(cluster, node_id):
                    self._due.setdefault(node_id, START)
                    self._woken.set()

    def _misled(self, cluster: Cluster, node_id: NodeId) -> bool:
        """Whether the node was told of another wait than it is now: not worth a write where the two are close."""
        known = self._known.get(node_id)
        if known is None or known.desired is None:
            return False  # what nobody has looked at yet is compared whole
        return not alike(known.desired.waiting, waiting(cluster, cluster.nodes[node_id]))

    async def run(self) -> None:
        """Write what differs, until cancelled. Beginning to be active, compare every node anew."""
        was_active = False
        while True:
            if not self._active():
                was_active = False
            elif self._cluster is not None:
                if not was_active:
                    self._known.clear()
                    self._due = dict.fromkeys(self._cluster.nodes, START) | self._due
                    was_active = True
                await self._write_due()
            await self._wait()

    async def _wait(self) -> None:
        self._woken.clear()
        try:
            async with asyncio.timeout(LOOK_EVERY_S):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _write_due(self) -> None:
        while self._due and self._active():
            batch = dict(self._due.popitem() for _ in range(min(WRITES_AT_ONCE, len(self._due))))
            done = await asyncio.gather(*(self._write(node_id, at) for node_id, at in batch.items()))
            failed = {node_id: at for (node_id, at), well in zip(batch.items(), done, strict=True) if not well}
            if failed:
                self._due = failed | self._due
                await asyncio.sleep(TRY_AGAIN_AFTER_S)

    async def _write(self, node_id: NodeId, touched_at: Position) -> bool:
        """Whether what is stored for the node is what is wanted, or newer.

        What is the same again after a touch is written all the same: another dispatcher, which may have read only what
        was in between, finds that it is behind.
        """
        assert self._cluster is not None
        subject = self._subjects.desired(node_id)
        try:
            known = self._known.get(node_id) or await self._read(subject)
            self._known[node_id] = known
            wanted = self._wanted(self._cluster, node_id)
            if known.as_of > wanted.as_of:
                return True  # another dispatcher has read further
            if known.desired is not None and known.desired.as_of >= touched_at and _same(known.desired, wanted):
                return True
            sequence = await self._values.put(subject, _encoder.encode(wanted), after=known.sequence)
        except Fault as fault:
            logger.info("desired_not_written", node=node_id, cause=fault.code)
            self._known.pop(node_id, None)  # it may be stored or not
            return False
        if sequence is None:
            del self._known[node_id]
            return False
        self._known[node_id] = Known(sequence, wanted, wanted.as_of)
        return True

    def _wanted(self, cluster: Cluster, node_id: NodeId) -> Desired:
        whole = desired(cluster, node_id)
        wanted = fitted(cluster, whole)
        if wanted is whole:
            self._crowded.discard(node_id)
        else:
            self._crowded.add(node_id)
        return wanted

    async def _read(self, subject: str) -> Known:
        stored = await self._values.get(subject)
        if not stored.sequence:
            return Known(0, None)
        try:
            held = decode_desired(stored.payload)
        except msgspec.DecodeError:  # of another version: overwritten by who has read as far
            held = None
        return Known(stored.sequence, held, held.as_of if held is not None else as_of_in(stored.payload))


def _same(stored: Desired, wanted: Desired) -> bool:
    known = msgspec.structs.replace(stored, as_of=wanted.as_of, waiting=wanted.waiting)
    return known == wanted and alike(stored.waiting, wanted.waiting)
