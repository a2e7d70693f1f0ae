"""A node in its present life: its GPUs by slot, what holds them, and what is set aside."""

from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from events.base import (
    SLOTS_MAX,
    GpuUuid,
    JobId,
    NodeEpoch,
    NodeId,
    RunId,
)
from events.fleet import DrainCause
from events.job import Domain
from projections.cluster.fitness import FIT, Fitness

Slots = int  # bit n is slot n; 0 is none, which no message may carry


PLACE_LABELS: Final = frozenset(Domain)


class NodeState(StrEnum):
    """Whether a node's agent is heard."""

    UP = "up"
    SUSPECT = "suspect"
    LOST = "lost"


class Place(NamedTuple):
    """Where a node stands in the network; empty: nobody said."""

    spine: str = ""
    rack: str = ""


NOWHERE: Final = Place()


class Pool(NamedTuple):
    """Nodes that are alike for placement. `free` GPUs are clean, in the pool, and no run's."""

    gpu_type: str
    size: int  # GPUs of the node that are sound
    free: int  # never 0; without those that are earmarked
    traits: str = ""  # its labels and taints, as one word


class Whole(NamedTuple):
    """Nodes with nothing on them that are alike and stand together."""

    gpu_type: str
    size: int
    traits: str = ""
    place: Place = NOWHERE


class Spare(NamedTuple):
    """Whose spare GPUs are counted: those of nodes that say where they stand."""

    gpu_type: str
    traits: str
    place: Place


class Kind(NamedTuple):
    """Nodes that are counted together: alike in all that says whether a gang could ever be on them."""

    state: NodeState
    gpu_type: str
    size: int  # GPUs of the node that are sound
    closed: bool = False
    traits: str = ""
    place: Place = NOWHERE


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One node in its present life."""

    node_id: NodeId
    epoch: NodeEpoch = NodeEpoch(0)
    state: NodeState = NodeState.UP
    instance: str = ""
    boot_id: str = ""
    gpu_type: str = ""
    address: str = ""
    port_base: int = 0
    uuids: tuple[GpuUuid, ...] = ()  # slot n has uuids[n], for ever
    present: Slots = 0  # slots whose GPU the present life has
    pool: Slots = 0  # of those, found clean in this life
    free: Slots = 0  # of those, held by no run: what may be given away
    held: dict[RunId, Slots] = {}  # by runs of this life; never changed in place
    owed: dict[RunId, Slots] = {}  # slots of runs of earlier lives that were not found clean yet; likewise
    earmarked: dict[JobId, Slots] = {}  # set aside, free or not yet; disjoint; likewise
    marked: Slots = 0  # all of these
    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()
    traits: str = ""  # labels but for its place, and taints, as one word: see `traits_of`
    cordoned: bool = False
    silent_since: datetime | None = None  # of a suspect node: when it was heard last
    fitness: Fitness = FIT
    sick: Slots = 0  # slots whose GPUs are given to nobody, by `fitness`

    @property
    def spare(self) -> Slots:
        """Slots that any job may be given."""
        return self.free & ~self.marked & ~self.sick

    @property
    def closed(self) -> bool:
        """Whether nothing new is placed here: cordoned, drained or retired."""
        return self.cordoned or (
            self.fitness is not FIT and self.fitness.closed
        )  # most nodes are fit, and it is asked often

    @property
    def gone(self) -> bool:
        """Whether it was given up, or is retired: nothing that it does, or leaves undone, says anything."""
        return self.state is NodeState.LOST or self.fitness.retired

    @property
    def empty(self) -> bool:
        """Whether nothing runs here, nor may be running still: of lives before this one, what was not found clean."""
        if self.held:
            return False
        unclean = self.present & ~self.pool
        return self.state is NodeState.LOST or not any(slots & unclean for slots in self.owed.values())

    @property
    def asks(self) -> bool:
        """Whether health may have something to say of it at any moment. Of one that is merely drained, or retired, it has not."""
        if self.fitness.retired:
            return False
        drain = self.fitness.drain
        if drain is None:
            return self.fitness.asks
        said = drain.done and drain.cause not in (DrainCause.RETIRE, DrainCause.UNKILLABLE)  # which something follows
        return self.fitness.asks or (self.empty and not said)

    @property
    def rack(self) -> str:
        """The rack it stands in; empty when nobody said."""
        return self.labels.get(Domain.RACK, "")

    @property
    def spine(self) -> str:
        """The spine its rack hangs on; empty when nobody said."""
        return self.labels.get(Domain.SPINE, "")

    @property
    def place(self) -> Place:
        """Both of these: a rack is one of its spine."""
        labels = self.labels
        return Place(labels.get(Domain.SPINE, ""), labels.get(Domain.RACK, "")) if labels else NOWHERE

    @property
    def doubted(self) -> Slots:
        """Slots whose GPUs are in use only because the breaker held their verdicts back: the last ones to be given."""
        return self.mask(tuple(sign.gpu_uuid for sign in self.fitness.pending if sign.held_back))

    @property
    def size(self) -> int:
        """GPUs of the node that are sound."""
        return (self.present & ~self.sick).bit_count()

    def numbered(self, uuids: tuple[GpuUuid, ...]) -> tuple[GpuUuid, ...]:
        """The GPUs by slot once these are in the node: a known one keeps its own, a new one gets the next never used.

        When all are used up, as where each boot brings other GPUs, it gets that of one that is gone.
        """
        slots, known = list(self.uuids), set(self.uuids)
        gone = (slot for slot, uuid in enumerate(self.uuids) if uuid not in uuids)
        for uuid in dict.fromkeys(uuids):
            if uuid in known:
                continue
            if len(slots) < SLOTS_MAX:
                slots.append(uuid)
            elif (slot := next(gone, None)) is not None:
                slots[slot] = uuid
        return tuple(slots)

    def mask(self, uuids: tuple[GpuUuid, ...]) -> Slots:
        """The slots of some GPUs; those never seen here have none."""
        if not uuids:
            return 0  # of most nodes no GPU is out, nor doubted
        slots = {uuid: slot for slot, uuid in enumerate(self.uuids)}
        return sum(1 << slots[uuid] for uuid in set(uuids) if uuid in slots)

    def being(self, fitness: Fitness) -> "Node":
        """The node as fit as this says: of one that is fit, `FIT` itself, by which it is told quickly."""
        fitness = FIT if fitness == FIT else fitness
        return msgspec.structs.replace(self, fitness=fitness, sick=self.mask(tuple(fitness.ailments)))

    def losing(self) -> "Node":
        """The node without its runs and its GPUs."""
        owed = {**self.owed, **self.held}
        return msgspec.structs.replace(self, state=NodeState.LOST, pool=0, free=0, held={}, owed=owed)

    def pooling(self, slots: Slots) -> "Node":
        """The node with some slots in the pool: those that no run holds are free."""
        pool = self.pool | (slots & self.present)
        unclean = self.present & ~pool  # a GPU that the node has no more holds nothing
        owed = {run_id: mask for run_id, mask in self.owed.items() if mask & unclean}
        taken = sum(self.held.values())  # disjoint
        return msgspec.structs.replace(self, pool=pool, free=pool & ~taken, owed=owed)

    def marking(self, job_id: JobId, slots: Slots) -> "Node":
        """The node with `slots` set aside for a job, instead of what was before; 0: nothing is."""
        earmarked = {**self.earmarked, job_id: slots}
        if not slots:
            del earmarked[job_id]
        return msgspec.structs.replace(self, earmarked=earmarked, marked=sum(earmarked.values()))

    def taking(self, run_id: RunId, slots: Slots) -> "Node":
        """The node with `slots`, which are free, held by a run."""
        held = {**self.held, run_id: slots}
        return msgspec.structs.replace(self, held=held, free=self.free & ~slots)

    def freeing(self, run_id: RunId, slots: Slots) -> "Node":
        """The node with those of `slots` free that the run holds, and no others."""
        freed = self.held.get(run_id, 0) & slots
        held = dict(self.held)
        if not (kept := held.pop(run_id, 0) & ~slots):
            return msgspec.structs.replace(self, held=held, free=self.free | freed)
        held[run_id] = kept
        return msgspec.structs.replace(self, held=held, free=self.free | freed)


def traits_of(labels: dict[str, str], taints: tuple[str, ...]) -> str:
    """Labels, but for the place in the network, and taints as one word: nodes of one word are alike for a filter."""
    if not labels and not taints:
        return ""
    kept = sorted(_label(key, value) for key, value in labels.items() if key not in PLACE_LABELS)
    return ",".join(kept) + "".join(f"|{_plain(taint)}" for taint in sorted(taints))


@lru_cache(maxsize=10_000)
def suits(traits: str, labels: tuple[tuple[str, str], ...], tolerates: tuple[str, ...]) -> bool:
    """Whether nodes of this word have all these labels, but for those of place, and no taint but these."""
    labelled, *taints = traits.split("|")
    has, borne = labelled.split(","), [_plain(taint) for taint in tolerates]
    wanted = (_label(key, value) for key, value in labels if key not in PLACE_LABELS)
    return all(label in has for label in wanted) and all(taint in borne for taint in taints)


def _label(key: str, value: str) -> str:
    return f"{_plain(key)}={_plain(value)}"


def _plain(text: str) -> str:
    """The text without what parts a word of traits."""
    return text.translate(ESCAPES)


ESCAPES: Final = str.maketrans({mark: f"%{ord(mark):02x}" for mark in "%,=|"})
