"""A cluster on a virtual clock: rounds of the real deciders on the real fold, and agents that do as they are told.

At one instant runs end first, then jobs arrive, then it is decided until nothing is left to say. Deciding takes no time,
nor does starting: a run has begun when it is placed, so its agents do not say apart that its ranks have started.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from events.base import (
    START,
    Event,
    GpuUuid,
    JobId,
    NodeEpoch,
    NodeId,
    Position,
    Recorded,
    RunId,
    position_of,
    run_id_of,
)
from events.head import LeadershipTaken, LogFounded, RoundDecided
from events.job import (
    GpusEarmarked,
    JobAdmitted,
    JobCancelled,
    JobEvent,
    JobFailed,
    JobHeld,
    JobPlaced,
    JobRejected,
    JobRequeued,
    JobSubmitted,
    JobSucceeded,
    JobTimedOut,
    PromiseDropped,
    PromiseMoved,
    RunStopping,
    StartPromised,
)
from events.node import EndReason, GpusFoundClean, GpusReleased, NodeJoined, ShareEnded
from events.policy import JobOrder, Overrun
from projections.cluster.evolve import evolve
from projections.cluster.index import put_run
from projections.cluster.job import Run
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.control.round import decide_all
from services.simulate.fault import BadFile
from services.simulate.work import US, Life, Work

BEGIN: Final = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
ROUNDS_MAX: Final = 100_000  # at one instant: deciders that never come to rest are a fault, not a long simulation
NEVER: Final = 1 << 62
LONGEST_US: Final = 2_000 * 366 * 86_400 * US  # in virtual time: dates end with the year 9999, and promises look ahead
FEW: Final = 400  # decisions: below every bound of a round
Watch = Callable[[int, int], None]  # told what is done, of how much
OUTCOMES: Final[dict[type[Event], str]] = {
    JobSucceeded: "succeeded",
    JobFailed: "failed",
    JobTimedOut: "timed_out",
    JobCancelled: "cancelled",
    JobRejected: "rejected",
}

# What nobody has to answer at the same instant.
FINAL: Final = frozenset(
    {*OUTCOMES, RoundDecided, JobAdmitted, JobPlaced, JobHeld, StartPromised, PromiseMoved, PromiseDropped}
)


class Sample(NamedTuple):
    """How things stood from an instant on, until the next sample."""

    at_us: int
    used: int  # GPUs held by runs
    jobs: int  # that waited
    gpus: int  # that these wanted


class Simulation:
    """A cluster in virtual time. `lives` has what became of each job, `samples` how it all stood over time."""

    def __init__(self, cluster: Cluster | None = None, *, begin: datetime = BEGIN) -> None:
        self.cluster = cluster if cluster is not None else Cluster()
        self.begin = begin
        self.now_us = 0
        self.rounds = 0
        self.lives: dict[JobId, Life] = {}
        self.samples: list[Sample] = []
        self._position = self.cluster.position if self.cluster.position != START else position_of(1, 0)
        self._at = begin
        self._due: list[tuple[int, int, RunId, EndReason]] = []  # ends of runs; the second makes them differ
        self._wakes: list[int] = []  # instants at which only time makes another decision possible
        self._used = self._jobs = self._gpus = 0
        self._expected = 0  # ends of runs, ever
        if cluster is None:
            self.record(
                LogFounded(at=begin, log_id="simulation", cell="simulation"),
                LeadershipTaken(at=begin, instance="simulation", version=""),
            )

    # Setting up

    def record(self, *events: Event) -> None:
        """The events are in the fold, as stored now."""
        for event in events:
            self._position = Position(self._position + 1)
            self.cluster = evolve(self.cluster, Recorded(event, self._position, self._at))

    def join(
        self, nodes: Sequence[NodeId], gpus: int, *, gpu_type: str = "gpu", labels: dict[str, str] | None = None
    ) -> None:
        """Nodes of so many clean GPUs each are there."""
        for node_id in nodes:
            uuids = tuple(GpuUuid(f"{node_id}-{slot}") for slot in range(gpus))
            joined = NodeJoined(
                at=self._at,
                node_id=node_id,
                boot_id="",
                instance="",
                gpu_type=gpu_type,
                gpu_uuids=uuids,
                address="",
                port_base=0,
                labels=labels or {},
            )
            self.record(joined)
            epoch = NodeEpoch(self._position)
            self.record(GpusFoundClean(at=self._at, node_id=node_id, node_epoch=epoch, gpu_uuids=uuids))

    def adopt(self, work: Work) -> None:
        """A job that the cluster has already is followed too: its run ends when `work` says, counted from its start."""
        job = self.cluster.jobs[work.job_id]
        life = self.lives[work.job_id] = Life(work)
        promise = self.cluster.promises.get(job.job_id)
        if promise is not None and promise.first is not None:
            life.promised_us = self._us(promise.first)
        run = self.cluster.runs.get(run_id_of(job.job_id, job.attempt))
        if run is None:
            self._wait(life, +1)
            if job.not_before is not None:
                self._wake(self._us(job.not_before))
            return
        self._start(run)
        started_us = life.started_us = life.started_last_us = self._us(run.started_at or run.placed_at)
        self._used += run.gpus
        stopping = run.stopping is not None
        self._expect(run, life, since_us=0 if stopping else started_us, stopped=stopping)

    # Running

    def run(self, works: Sequence[Work], watch: Watch | None = None) -> None:
        """All that can happen has happened: the works arrived, and ran as far as they ever will.

        `works` are in order of arrival. `watch` is told, again and again, how many of them have arrived, of how many.
        Raises `BadFile` where that takes more than 2,000 years.
        """
        arrived = 0
        if self.lives:  # adopted: something may be decided for them at once
            self._settle()
            self.samples.append(Sample(self.now_us, self._used, self._jobs, self._gpus))
        while True:
            arrives_us = works[arrived].arrives_us if arrived < len(works) else NEVER
            self.now_us = min(arrives_us, self._next_us())
            if self.now_us == NEVER:
                return
            if self.now_us > LONGEST_US:
                raise BadFile(0, "what is simulated goes on for more than 2,000 years", hint="times are in seconds")
            self._at = self.begin + timedelta(microseconds=self.now_us)
            self._end_due()
            while arrived < len(works) and works[arrived].arrives_us == self.now_us:
                self._submit(works[arrived])
                arrived += 1
            self._settle()
            self.samples.append(Sample(self.now_us, self._used, self._jobs, self._gpus))
            if watch is not None:
                watch(arrived, len(works))

    def _next_us(self) -> int:
        """When the next run ends, or time alone makes a difference."""
        while self._wakes and self._wakes[0] <= self.now_us:
            heappop(self._wakes)
        while self._due and self._due[0][2] not in self.cluster.runs:
            heappop(self._due)  # it was evicted before
        woken_us = self._wakes[0] if self._wakes and self._jobs else NEVER  # nothing waits: nothing to decide
        return min(self._due[0][0] if self._due else NEVER, woken_us)

    def _settle(self) -> None:
        """It was decided until nothing was left to say, and what was decided was done."""
        for _ in range(ROUNDS_MAX):
            events = decide_all(
                self.cluster, Tick(at=self._at, position=self._position, words=bool(self.cluster.queues))
            )
            if not events:
                return
            self.rounds += 1
            for event in events:
                self.record(event)
                if isinstance(event, JobEvent):
                    self._follow(event)
            if not self._end_due() and self._at_rest(events):
                return
        raise AssertionError(f"deciding never comes to rest at {self._at}")

    def _at_rest(self, events: Sequence[Event]) -> bool:
        """Whether a round right after one that decided these would decide nothing, so that it need not be tried.

        What is admitted in a round is placed in it; only what a bound or a share kept back, and what asks for another's
        decision, is taken up by the next. In the fair order each placement may put another team first, and with
        preemption one in reach of victims.
        """
        policy = self.cluster.policy
        if policy.preemption or policy.order is JobOrder.FAIR or self.cluster.queue.groups() or len(events) >= FEW:
            return False
        return all(type(event) in FINAL for event in events)

    def _submit(self, work: Work) -> None:
        life = self.lives[work.job_id] = Life(work)
        self._wait(life, +1)
        self.record(
            JobSubmitted(
                at=self._at, team=work.team, job_id=work.job_id, spec=work.spec, key=work.job_id, request_hash=""
            )
        )

    def _follow(self, event: JobEvent) -> None:
        """The agents do what the event says, and the job's life has it."""
        life = self.lives.get(event.job_id)
        if life is None:
            return
        match event:
            case JobPlaced():
                self._placed(event, life)
            case RunStopping():
                run = self.cluster.runs[event.run_id]
                if not run.over:
                    self._expect(run, life, since_us=self.now_us, stopped=True)
            case JobRequeued():
                self._wait(life, +1)
                self._wake(self._us(event.not_before))
            case StartPromised() | PromiseMoved() if event.start is not None:
                start_us = self._us(event.start)
                life.promised_us = start_us if life.promised_us is None else life.promised_us
                self._wake(start_us)
            case GpusEarmarked():
                for run_id in event.victims:
                    self._evicted(run_id)
            case JobSucceeded() | JobFailed() | JobTimedOut() | JobCancelled() | JobRejected():
                if isinstance(event, JobRejected) or not event.run_id:
                    self._wait(life, -1)
                life.ended_us, life.outcome = self.now_us, OUTCOMES[type(event)]
            case _:
                pass

    def _start(self, run: Run) -> None:
        """Agents here start what they are told at once, and need not say so: no start is late."""
        put_run(self.cluster, replace(run, starts_by=None))

    def _placed(self, event: JobPlaced, life: Life) -> None:
        run = self.cluster.runs[event.run_id]
        self._start(run)
        self._wait(life, -1)
        self._used += run.gpus
        life.started_last_us = self.now_us
        if life.started_us is None:
            life.started_us = self.now_us
        self._expect(run, life, since_us=self.now_us)
        policy = self.cluster.policy
        if policy.preemption and policy.min_runtime_s and run.preemptible:
            self._wake(self.now_us + policy.min_runtime_s * US)

    def _evicted(self, run_id: RunId) -> None:
        life = self.lives.get(self.cluster.runs[run_id].job_id)
        if life is not None:
            life.evictions += 1
        self._wake(self.now_us + self.cluster.policy.cool_down_s * US)

    def _wait(self, life: Life, by: int) -> None:
        self._jobs += by
        self._gpus += by * life.work.spec.gpus

    def _wake(self, at_us: int) -> None:
        if at_us > self.now_us:
            heappush(self._wakes, at_us)

    def _us(self, at: datetime) -> int:
        return (at - self.begin) // timedelta(microseconds=1)

    # Ends of runs

    def _expect(self, run: Run, life: Life, *, since_us: int, stopped: bool = False) -> None:
        """The run will end: by itself, at its limit, or after its grace when it was told to stop."""
        spec = life.work.spec
        grace_s = spec.stop_grace_s + (spec.checkpoint.grace_s if spec.checkpoint is not None else 0)
        after_us, reason = life.work.runtime_us, EndReason.EXITED
        if stopped:
            after_us, reason = grace_s * US, EndReason.STOPPED
        elif spec.max_runtime_s and self.cluster.policy.overrun is Overrun.KILL and spec.max_runtime_s * US < after_us:
            after_us, reason = (spec.max_runtime_s + grace_s) * US, EndReason.TIME_LIMIT
        self._expected += 1
        heappush(self._due, (max(since_us + after_us, self.now_us), self._expected, run.run_id, reason))

    def _end_due(self) -> bool:
        """The agents of every run that ends now have said so, and given its GPUs back; whether there were any."""
        before = self._position
        while self._due and self._due[0][0] <= self.now_us:
            _, _, run_id, reason = heappop(self._due)
            run = self.cluster.runs.get(run_id)
            if run is None or run.over:
                continue  # it was stopped before
            self._used -= run.gpus
            for share in run.shares:
                ids: Any = {"at": self._at, "node_id": share.node_id, "node_epoch": share.node_epoch, "run_id": run_id}
                self.record(ShareEnded(**ids, reason=reason), GpusReleased(**ids, slots=share.slots))
        return self._position != before
