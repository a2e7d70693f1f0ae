"""A log with control planes around it that a test can hold up, and what is read of it: the log is real or in memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

from events.base import START, Event, GpuUuid, JobId, NodeEpoch, NodeId, Position, Recorded, RunId, Stretch, TeamId
from events.codec import EPOCH
from events.head import LeadershipTaken, RoundDecided
from events.job import JobCancelRequested, JobSpec, JobSubmitted
from events.log.port import Log, Unknown
from events.node import EndReason, GpusFoundClean, GpusReleased, NodeJoined, ShareEnded, ShareStarted
from projections.cluster.audit.audit import audit
from projections.cluster.evolve import evolve
from projections.cluster.job import JobState, Run
from projections.cluster.state import Cluster
from runtime.clock import Clock, SystemClock
from services.control.leader import ControlPlane, Lease, Name, Watcher
from tests.fixtures.waiting import until

CLOCK: Final = SystemClock()
TEAM: Final = TeamId("t")

Go = Callable[[], Awaitable[Position]]  # sends an append, when it is called
Way = Callable[[Go], Awaitable[Position]]  # how one is let through


class Hint:
    """A lease that a test gives and takes."""

    def __init__(self, *, held: bool = False) -> None:
        self.held = held


class HeldUp:
    """A log on whose way a test stands: it sees every append, holds it up, or loses its answer."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.tried: list[tuple[Position, list[Event]]] = []  # every append, with what it was fenced by
        self.failed: list[str] = []  # how those that failed did
        self.at_end = asyncio.Event()  # closed: we sleep in the middle of a round, before deciding
        self.at_append = asyncio.Event()  # closed: we sleep when an append is ready and not yet sent
        self.at_decision = asyncio.Event()  # closed: the same, but we may say that we lead
        self.waiting = 0  # who sleeps
        self.way: Way | None = None
        self.crumbs = False  # each record comes in a stretch of its own
        self.at_end.set()
        self.at_append.set()
        self.at_decision.set()

    async def follow(self, after: Position, *, since: datetime = EPOCH) -> AsyncIterator[Stretch]:
        """See `Log`."""
        async for stretch in self._log.follow(after, since=since):
            for part in [(recorded,) for recorded in stretch] if self.crumbs and stretch else [stretch]:
                yield part

    async def end(self) -> Position:
        """See `Log`."""
        end = await self._log.end()
        await self._sleep(self.at_end)
        return end

    async def read(self, position: Position) -> Recorded | None:
        """See `Log`."""
        return await self._log.read(position)

    async def first(self, subject: str) -> Recorded | None:
        """See `Log`."""
        return await self._log.first(subject)

    async def last(self, subject: str) -> Recorded | None:
        """See `Log`."""
        return await self._log.last(subject)

    async def record(self, facts: Sequence[Event]) -> Position:
        """See `Log`."""
        return await self._log.record(facts)

    async def append(self, events: Sequence[Event], *, after: Position) -> Position:
        """See `Log`."""
        self.tried.append((after, list(events)))
        await self._sleep(self.at_append)
        if isinstance(events[0], RoundDecided):
            await self._sleep(self.at_decision)

        def go() -> Awaitable[Position]:
            return self._log.append(events, after=after)

        try:
            return await (self.way(go) if self.way is not None else go())
        except Exception as error:
            self.failed.append(type(error).__name__)
            raise

    async def _sleep(self, gate: asyncio.Event) -> None:
        self.waiting += 1
        await gate.wait()
        self.waiting -= 1


async def answer_lost(go: Go) -> Position:
    """It is in the log, and nobody says so."""
    await go()
    raise Unknown("the answer was lost")


async def ask_lost(_go: Go) -> Position:
    """It never came to the server."""
    raise Unknown("the ask was lost")


class Cell:
    """A log, what the gate and agents say in it, and a fold of it that only looks on."""

    def __init__(self, open_log: Callable[[str], Log]) -> None:
        self.open_log = open_log
        self.gate = open_log("gate")
        self.records: list[Recorded] = []
        self.cluster = Cluster()
        self.broken: set[str] = set()  # laws of the audit that a test breaks on purpose

    @asynccontextmanager
    async def watched(self) -> AsyncIterator["Cell"]:
        """The fold looks on until the block is left; then the auditor finds nothing in all that was written."""
        task = asyncio.create_task(self._follow())
        try:
            yield self
            end = await self.gate.end()
            await until(lambda: self.cluster.position >= end, what="the log is read to its end")
            findings = audit(self.records)
            assert {finding.law for finding in findings} == self.broken, findings
        finally:
            await _ended(task)

    async def _follow(self) -> None:
        async for stretch in self.gate.follow(START):
            for recorded in stretch:
                self.records.append(recorded)
                self.cluster = evolve(self.cluster, recorded)

    @asynccontextmanager
    async def plane(
        self, name: str, lease: Lease, *, cluster: Cluster | None = None, clock: Clock = CLOCK, watch: Watcher | None = None
    ) -> AsyncIterator[tuple[ControlPlane, HeldUp]]:  # fmt: skip
        """A control plane that runs until the block is left, and the way to its log."""
        log = HeldUp(self.open_log(name))
        plane = ControlPlane(log, cluster or Cluster(), lease, clock, name=Name(name, "1"))
        task = asyncio.create_task(plane.run(*([watch] if watch else [])))
        try:
            yield plane, log
            if task.done():
                await task
        finally:
            await _ended(task)

    async def join(self, name: str, gpus: int) -> NodeEpoch:
        """A node joins, again if it is known, and finds its GPUs clean."""
        node_id, uuids = NodeId(name), tuple(GpuUuid(f"{name}-{slot}") for slot in range(gpus))
        joined = NodeJoined(
            at=CLOCK.now(), node_id=node_id, boot_id="b", instance="i", gpu_type="h100", gpu_uuids=uuids,
            address="127.0.0.1", port_base=20_000,
        )  # fmt: skip
        epoch = NodeEpoch(await self.gate.record([joined]))
        await self.gate.record([GpusFoundClean(at=CLOCK.now(), node_id=node_id, node_epoch=epoch, gpu_uuids=uuids)])
        return epoch

    async def submit(self, name: str, gpus: int, **spec: Any) -> JobId:
        """A job of this name, which is its id too."""
        job_id, asked = JobId(name), JobSpec(name=name, command=("true",), gpus=gpus, **spec)
        await self.gate.record(
            [JobSubmitted(at=CLOCK.now(), team=TEAM, job_id=job_id, spec=asked, key=name, request_hash="h")]
        )
        return job_id

    async def cancel(self, job_id: JobId) -> None:
        """A user no longer wants a job."""
        await self.gate.record([JobCancelRequested(at=CLOCK.now(), team=TEAM, job_id=job_id)])

    async def finish(self, run: Run) -> None:
        """The run's agents start it, see it end, and give its GPUs back; of nodes in another life nobody says a word."""
        reports: list[Event] = []
        for share in run.shares:
            ids: dict[str, Any] = {"at": CLOCK.now(), "node_id": share.node_id, "node_epoch": share.node_epoch}
            ids["run_id"] = RunId(run.run_id)
            if self.cluster.nodes[share.node_id].epoch == share.node_epoch:
                reports += [ShareStarted(**ids), ShareEnded(**ids, reason=EndReason.EXITED)]
                reports.append(GpusReleased(**ids, slots=share.slots))
        if reports:
            await self.gate.record(reports)

    def kinds(self, *kinds: type[Event]) -> list[str]:
        """The names of the events of these kinds, in order; of all but nodes' and users' when none is named."""
        wanted = kinds or (LeadershipTaken, RoundDecided)
        return [type(r.event).__name__ for r in self.records if isinstance(r.event, wanted)]

    def placed(self, job_id: str) -> bool:
        """Whether the job has GPUs."""
        job = self.cluster.jobs.get(JobId(job_id))
        return job is not None and job.state is JobState.PLACED

    def run(self, job_id: str) -> Run:
        """The run that a job has now."""
        return next(run for run in self.cluster.runs.values() if run.job_id == job_id)


async def _ended(task: asyncio.Task[None]) -> None:
    """It has ended. One cancellation may be lost: before Python 3.12, `wait_for` drops one that comes with its answer."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=1)
    if not task.cancelled():
        await task
