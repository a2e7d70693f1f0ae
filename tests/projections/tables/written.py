"""What tests of the tables share: histories in any order, and tables filled with them."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from events.base import START, Event, NodeId, Position, Recorded, SlotMask, TeamId, position_of, run_id_of
from events.codec import TYPES, type_of
from events.credit import CreditEvent
from events.job import (
    AdmissionWithdrawn,
    EarmarkCause,
    EarmarkDropped,
    GpusEarmarked,
    JobAdmitted,
    JobPlaced,
    JobRequeued,
    JobSucceeded,
    NodeShare,
    PromiseCause,
    PromiseDropped,
    PromiseMoved,
    RunStopping,
    StartPromised,
    StopCause,
)
from events.node import CheckpointSaved, NodeDescribed
from events.operator import NodeCordoned, NodeUncordoned
from events.queues import Bounds, Queue, QueuesSet
from events.subjects import family_subject
from projections.cluster.job import Job
from projections.tables import schema
from projections.tables.fold import Tables
from projections.tables.verify import KEYS
from runtime.postgres import Connection
from tests.events import drawn
from tests.histories import BEGIN, History
from tests.projections.tables.paid import Paying, paying


def recorded(events: Iterable[Event]) -> list[Recorded]:
    """The events as a log would hold them, one every 7 ms."""
    return [
        Recorded(
            event, position_of(1, number), BEGIN + timedelta(milliseconds=7 * number), f"id-{number}", _home(event)
        )
        for number, event in enumerate(events, 1)
    ]


def _home(event: Event) -> str:
    return family_subject(event) if hasattr(event, "family") else type_of(type(event))


def lived(seed: int, steps: int) -> History:
    """What happened in a cluster, by its own rules."""
    history = History(seed)
    for _ in range(steps):
        history.step()
    return history


class Eventful(History):
    """A history in which others decide: more is said of nodes, promises and earmarks than rounds say, and never by one."""

    def say(self) -> None:
        """One random thing happens, or is decided."""
        facts = (self.submit, self.join, self.find_clean, self.start_share, self.end_share, self.release)
        says = (self.set_queues, self.cordon, self.describe, self.save_twice, self.promise, self.earmark, self.withdraw)
        self.random.choice((*facts, *says, self.admit, self.place, self.place, self.stop, self.cancel))()

    def admit(self) -> None:
        """A job that waits may run, perhaps on others' account."""
        jobs = self.cluster.jobs
        for job in [jobs[job_id] for job_id in sorted(jobs) if jobs[job_id].state == "queued"][:2]:
            self.add(JobAdmitted(**self._of(job), borrowing=self.random.random() < 0.5))

    def place(self) -> None:
        """A job gets what is set aside for it, or what is free."""
        for job in self._waiting()[:1]:
            free = [
                NodeShare(node_id, node.epoch, SlotMask(mask & -mask))
                for node_id, node in sorted(self.cluster.nodes.items())
                if (mask := node.free & ~(node.marked & ~node.earmarked.get(job.job_id, 0))) and node.state == "up"
            ]
            if free:
                attempt = job.attempt + 1
                run_id = run_id_of(job.job_id, attempt)
                self.add(JobPlaced(**self._of(job), run_id=run_id, attempt=attempt, shares=tuple(free[:2])))

    def stop(self) -> None:
        """A run is told to end, for others where that was decided; one that is over is requeued, or has succeeded."""
        for run_id in sorted(self.cluster.runs)[:2]:
            run = self.cluster.runs[run_id]
            of = self._of(self.cluster.jobs[run.job_id])
            cause = StopCause.PREEMPTED if run.evicted_for else StopCause.RANK_FAILED
            if run.over and self.random.random() < 0.5:
                self.add(JobRequeued(**of, run_id=run_id, cause=cause, not_before=self.at))
            elif run.over:
                self.add(JobSucceeded(**of, run_id=run_id))
            elif run.stopping is None:
                self.add(RunStopping(**of, run_id=run_id, cause=cause))

    def set_queues(self) -> None:
        """Other queues, one of them perhaps the team's."""
        names = [name for name in ("a", "b", "t") if self.random.random() < 0.6]
        weight = self.random.randrange(5)
        bounds = (Bounds(gpu_type="h100", limit=self.random.randrange(20, 50)),)
        queues = tuple(Queue(name=TeamId(name), weight=weight, bounds=bounds) for name in names)
        self.add(QueuesSet(at=self.at, queues=queues))

    def cordon(self) -> None:
        """An operator has something against a node, or nothing any more."""
        kind = self.random.choice((NodeCordoned, NodeUncordoned))
        self.add(kind(at=self.at, by="ops", node_id=NodeId(f"n{self.random.randrange(9)}"), reason="fan"))

    def describe(self) -> None:
        """A node has other labels, in this life or the one before."""
        if self.epochs:
            node_id, epoch, _ = self.random.choice(self.epochs[-6:])
            labels = {"rack": self.random.choice("xy")}
            self.add(NodeDescribed(at=self.at, node_id=node_id, node_epoch=epoch, labels=labels, taints=("new",)))

    def save_twice(self) -> None:
        """A run says that its progress is safe, perhaps from a life that is over."""
        for found in filter(None, (self.share(), self.share())):
            run, share = found
            ids: dict[str, Any] = {"node_id": share.node_id, "node_epoch": share.node_epoch, "run_id": run.run_id}
            self.add(CheckpointSaved(at=self.at, number=self.random.randrange(9), **ids))

    def _of(self, job: Job) -> dict[str, Any]:
        return {"at": self.at, "team": job.team, "job_id": job.job_id}

    def _waiting(self) -> list[Job]:
        jobs = self.cluster.jobs
        return [jobs[job_id] for job_id in sorted(jobs) if jobs[job_id].state == "admitted"]

    def _shares(self) -> tuple[NodeShare, ...]:
        """One slot each of some nodes, not set aside yet."""
        nodes = [node for _, node in sorted(self.cluster.nodes.items()) if node.pool & 1 and not node.marked]
        some = nodes[: self.random.randrange(1, 4)]
        return tuple(NodeShare(node.node_id, node.epoch, SlotMask(1)) for node in some)

    def promise(self) -> None:
        """A job gets a promise, or the one it has moves or goes."""
        for job in self._waiting():
            if not (shares := self._shares()):
                return  # none without GPUs
            start = self.random.choice((None, self.at + timedelta(seconds=self.random.randrange(100))))
            cause = self.random.choice((PromiseCause.NODE, PromiseCause.OVERRUN))
            match self.random.randrange(4) if job.job_id in self.cluster.promises else 9:
                case 0:
                    self.add(PromiseDropped(**self._of(job), cause=cause))
                case 1 | 2:
                    self.add(PromiseMoved(**self._of(job), shares=shares, start=start, cause=cause))
                case 9:
                    self.add(StartPromised(**self._of(job), shares=shares, start=start))
                case _:
                    pass

    def earmark(self) -> None:
        """GPUs are set aside for a job, and their runs are to end; or that is taken back."""
        for job in self._waiting():
            if job.job_id in self.cluster.earmarks:
                if self.random.random() < 0.5:
                    self.add(EarmarkDropped(**self._of(job), cause=EarmarkCause.CHANGED))
            elif shares := self._shares():
                held = {
                    run_id for s in shares for run_id, mask in self.cluster.nodes[s.node_id].held.items() if mask & 1
                }
                victims = tuple(sorted(run_id for run_id in held if not self.cluster.runs[run_id].evicted_for))
                moved = self.random.random() < 0.3
                self.add(GpusEarmarked(**self._of(job), shares=shares, victims=victims, moved=moved))

    def withdraw(self) -> None:
        """A job may not run any more; one that waits may, on others' account."""
        for job in self._waiting()[:1]:
            self.add(AdmissionWithdrawn(**self._of(job)), JobAdmitted(**self._of(job), borrowing=True))


def eventful(seed: int, steps: int) -> Eventful:
    """What happened in a cluster by its own rules, and then by others'. As many things each."""
    history = Eventful(seed)
    for _ in range(steps // 2):
        history.step()
    for _ in range(steps // 2):
        history.say()
    return history


# Amounts are up to the end of what a column holds, so that two of them together would not fit into one.
ODD = st.one_of([drawn.structs(cls) for cls in TYPES if not issubclass(cls, CreditEvent)])


@st.composite
def histories(draw: st.DrawFn, *, steps: int = 80) -> list[Recorded]:
    """What a log could hold, and what it never should: events left out, doubled, in another order, or out of nowhere."""
    kind, seed = draw(st.sampled_from((lived, eventful, paying))), draw(st.integers(0, 1_000_000))
    happened = kind(seed, steps)
    events = happened.events if isinstance(happened, Paying) else [record.event for record in happened.records]
    for _ in range(draw(st.integers(0, 12))):
        first, second = draw(st.integers(0, len(events) - 1)), draw(st.integers(0, len(events) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                events.insert(first, events[second])
            case 1:
                events[first], events[second] = events[second], events[first]
            case 2 if len(events) > 1:
                del events[first]
            case _:
                events.insert(first, draw(ODD))
    return recorded(events)


def cut(records: Sequence[Recorded], at: Iterable[int]) -> list[tuple[Recorded, ...]]:
    """The records in stretches that end at these places."""
    places = sorted({0, len(records), *(place % (len(records) + 1) for place in at)})
    return [tuple(records[a:b]) for a, b in pairwise(places)]


async def fill(conn: Connection, name: str, stretches: Iterable[Sequence[Recorded]]) -> Tables:
    """The tables of a schema, empty before, hold these stretches."""
    await empty(conn, name)
    tables, after = Tables(name), START
    for stretch in stretches:
        assert await tables.take(conn, tuple(stretch), after=after)
        after = stretch[-1].position
    return tables


async def empty(conn: Connection, name: str) -> None:
    """The schema is there, its tables are empty, and names are found in it."""
    if not await conn.fetchval(schema.EXISTS, name):
        await schema.create(conn, name)
    await schema.enter(conn, name)
    await conn.execute(";".join(f'DELETE FROM "{table}"' for table in KEYS))


async def table(conn: Connection, name: str) -> list[dict[str, Any]]:
    """All rows of a table that is found by name."""
    return [dict(record) for record in await conn.fetch(f'SELECT * FROM "{name}"')]


def last(records: Sequence[Recorded]) -> Position:
    """The position of the last one."""
    return records[-1].position
