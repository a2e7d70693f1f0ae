"""A cluster on a virtual clock, for laws of promises: jobs that run as long as they say, or less; real rounds between."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from events.base import Event, JobId
from events.job import JobPlaced, PromiseCause, PromiseMoved, StartPromised
from projections.cluster.tick import Tick
from services.control.round import decide_all
from tests.clusters import World


class Ask(NamedTuple):
    """A job: when it comes, what it needs, what it declares (0: nothing), how long it runs, all in seconds."""

    at_s: int
    gpus: int
    declared_s: int
    runs_s: int
    spec: dict[str, Any]


class Play:
    """Jobs come, run and end at their times; after each, it is decided until nothing is left to say."""

    def __init__(self, nodes: dict[str, int], **policy: Any) -> None:
        self.world = World(nodes)
        self.world.policy(**{"preemption": False, **policy})
        self.begin = self.world.at
        self.said: list[tuple[datetime, Event]] = []
        self.starts: dict[JobId, datetime] = {}

    def run(self, asks: list[Ask], *, most: int = 2_000) -> None:
        """All that can happen has happened."""
        coming = sorted(enumerate(asks), key=lambda entry: (entry[1].at_s, entry[0]))
        ends: dict[JobId, datetime] = {}
        runs = {JobId(f"j{index:03d}"): ask for index, ask in enumerate(asks)}
        for _ in range(most):
            moments = [*ends.values(), *(self.begin + timedelta(seconds=ask.at_s) for _, ask in coming[:1])]
            if not moments:
                return
            self.world.at = min(moments)
            for job_id in sorted(job_id for job_id, end in ends.items() if end == self.world.at):
                del ends[job_id]
                for tell in (self.world.start, self.world.end, self.world.release):
                    tell(job_id)
            while coming and self.begin + timedelta(seconds=coming[0][1].at_s) <= self.world.at:
                index, ask = coming.pop(0)
                spec = {"stop_grace_s": 0, **ask.spec}
                self.world.submit(f"j{index:03d}", ask.gpus, max_runtime_s=ask.declared_s, **spec)
            for placed in self._settle():
                ends[placed] = self.world.at + timedelta(seconds=runs[placed].runs_s)

    def _settle(self) -> list[JobId]:
        placed: list[JobId] = []
        while decided := decide_all(self.world.cluster, self._tick()):
            self.world.add(*decided)
            for event in decided:
                self.said.append((self.world.at, event))
                if isinstance(event, JobPlaced):
                    placed.append(event.job_id)
                    self.starts.setdefault(event.job_id, self.world.at)
        return placed

    def _tick(self) -> Tick:
        return Tick(at=self.world.at, position=self.world.records[-1].position)

    def promised(self) -> dict[JobId, list[datetime | None]]:
        """The starts that each job was promised, one after the other."""
        starts: dict[JobId, list[datetime | None]] = {}
        for _, event in self.said:
            if isinstance(event, StartPromised | PromiseMoved):
                starts.setdefault(event.job_id, []).append(event.start)
        return starts

    def causes(self) -> set[PromiseCause]:
        """Why promises were moved."""
        return {event.cause for _, event in self.said if isinstance(event, PromiseMoved)}
