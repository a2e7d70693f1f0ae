"""What the log is told of why jobs wait: a code when it changes, seldom for one job, and not too many in a round.

Admission says it of queued jobs and the scheduler of admitted ones; they share this, so that they share the bounds.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import chain, islice
from typing import Final

from events.base import Event, JobId
from events.job import HoldCode, JobHeld
from projections.cluster.job import WANT_NOTHING, Job
from projections.cluster.overlay import Lines
from projections.cluster.state import Cluster, Line
from projections.cluster.tick import Tick

HELD_MAX: Final = 500  # jobs told of by one decider in one round
LOOKED_AT_MAX: Final = 2_000  # for these; some were told of lately
HELD_AGAIN_AFTER: Final = timedelta(seconds=30)  # a job's hold code changes at most so often in the log

GRAVITY: Final = {code: grade for grade, code in enumerate(HoldCode)}  # less is graver, but for not evaluated


def gravest(codes: Iterable[HoldCode]) -> HoldCode:
    """Which of some codes, at least one, is said of a job: the one least likely to pass by waiting."""
    return min(codes, key=lambda code: GRAVITY[code] or len(GRAVITY))


def holds(
    cluster: Cluster,
    tick: Tick,
    lines: Lines[Line, JobId],
    codes: Mapping[Line, HoldCode],
    *,
    jobs: Mapping[JobId, HoldCode | None],
) -> list[Event]:
    """A word for each job of which the log says another code than what holds now, as far as the bounds allow.

    `codes` has what holds for whole lines, `jobs` what holds for some jobs instead; None for those that this round
    moved on: nothing is said of them. Jobs that were never looked at come first. One whose back-off is over is told of
    in any case: from then on it stands in its line. Without `tick.words` only that is said, and what becomes impossible
    or cannot be paid for, or is so no longer: it counts.
    """
    if not tick.words:
        codes = {line: code for line, code in codes.items() if code in WANT_NOTHING or line.hold in WANT_NOTHING}
        jobs = {job_id: code if _counts(cluster.jobs[job_id], code) else None for job_id, code in jobs.items()}
    changed = ((cluster.jobs[job_id], code) for job_id, code in sorted(jobs.items(), key=_id) if code is not None)
    looked_at = islice(_changed(cluster, lines, codes, jobs), LOOKED_AT_MAX)
    told = (
        JobHeld(**tick.of_job(job), code=code)
        for job, code in chain(changed, looked_at)
        if job.not_before is not None or (job.hold is not code and _due(job, code, tick))
    )
    return list(islice(told, HELD_MAX))


def _counts(job: Job, code: HoldCode | None) -> bool:
    """Whether what is said of a job makes a difference to what is decided."""
    return code in WANT_NOTHING or job.hold in WANT_NOTHING or job.not_before is not None


def _id(entry: tuple[JobId, HoldCode | None]) -> JobId:
    return entry[0]


def _changed(
    cluster: Cluster, lines: Lines[Line, JobId], codes: Mapping[Line, HoldCode], jobs: Container[JobId]
) -> Iterator[tuple[Job, HoldCode]]:
    """The jobs of lines whose code changed, without `jobs`, and the code."""
    for line in sorted((line for line, code in codes.items() if code is not line.hold), key=_new_first):
        for _, job_id in lines.line(line):
            if job_id not in jobs:
                yield cluster.jobs[job_id], codes[line]


def _new_first(line: Line) -> tuple[bool, Line]:
    return line.hold is not HoldCode.NOT_EVALUATED, line


def _due(job: Job, code: HoldCode, tick: Tick) -> bool:
    """Whether another code may be said of it already. That it is no longer impossible, or unpaid, is said at once: it counts again."""
    if job.held_at is None or job.held_at + HELD_AGAIN_AFTER <= tick.at:
        return True
    return job.hold in WANT_NOTHING and code not in WANT_NOTHING
