"""The command to decide now, and all that no event says: the time, and who is silent."""

from collections.abc import Mapping
from datetime import datetime
from typing import TypedDict

import msgspec

from events.base import Event, JobId, NodeId, Position, Recorded, RunId, TeamId
from projections.cluster.job import Job, Run


class OfJob(TypedDict):
    """What every event about a job says."""

    at: datetime
    team: TeamId
    job_id: JobId


class OfRun(OfJob):
    """What every event about a run says."""

    run_id: RunId


class Tick(msgspec.Struct, frozen=True):
    """Decide, as of `position`."""

    at: datetime  # never less than the last record's
    position: Position  # of the last record in the fold
    silent: Mapping[NodeId, float] = {}  # seconds, of the nodes that have been silent for a while
    promised: Mapping[NodeId, float] = {}  # of these: without contact for so long, their agents end what may restart
    skews: Mapping[NodeId, float] = {}  # seconds that clocks are ahead of ours, where that seems to have changed
    words: bool = True  # whether the log is told why jobs wait; a simulation of years, without queues, need not be

    def decided(self, event: Event) -> Recorded:
        """The event as a fork sees it, before it is in the log."""
        return Recorded(event, self.position, self.at)

    def of_job(self, job: Job) -> OfJob:
        """What an event decided now about `job` says in any case."""
        return OfJob(at=self.at, team=job.team, job_id=job.job_id)

    def of_run(self, run: Run, job: Job) -> OfRun:
        """What an event decided now about `run` says in any case."""
        return OfRun(at=self.at, team=job.team, job_id=job.job_id, run_id=run.run_id)
