"""How the use of a run is counted: GPU-microseconds of each of its GPUs, from the log's store times.

A GPU counts from when the run was placed, or started, as the policy was when it was placed, until it was released; one
whose node was lost, until the node was last heard. Of a run that is charged, each in whole steps.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec.structs import replace

from projections.cluster.credit.book import Bill
from projections.cluster.credit.price import stepped_us
from projections.cluster.job import Mark, Run

HOUR: Final = timedelta(hours=1)
US: Final = timedelta(microseconds=1)


def used_us(run: Run, bill: Bill | None, at: datetime) -> int:
    """GPU-microseconds that the run had used at `at`, if nothing about it changed between `at` and now."""
    return run.metered_us + run.metering * _counted_us(run, bill, at)


def used_by(run: Run, bill: Bill, hour: datetime) -> int:
    """What the run had used at an hour of the clock that is over and not recorded, whatever changed since."""
    return next((mark.gpu_us for mark in run.marks if mark.at == hour), used_us(run, bill, hour))


def leaving(run: Run, bill: Bill | None, gpus: int, until: datetime) -> Run:
    """The run, of which so many GPUs counted until `until` and no longer."""
    if not gpus:
        return run
    if run.metered_from is None:
        return replace(run, metering=run.metering - gpus)
    until = max(until, run.metered_from)
    used = _counted_us(run, bill, until)
    marks = _marks(run, bill, until)
    if marks and marks[-1].at > until:  # its node is lost later than it was heard last: those hours count its GPUs
        marks = tuple(
            mark if mark.at <= until else Mark(mark.at, mark.gpu_us - gpus * (_counted_us(run, bill, mark.at) - used))
            for mark in marks
        )
    return replace(
        run,
        marks=marks,
        metered_us=run.metered_us + gpus * used,
        metering=run.metering - gpus,
        metered_until=max(until, run.metered_until or until),
    )


def _counted_us(run: Run, bill: Bill | None, until: datetime) -> int:
    """What one GPU that counted up to `until` used."""
    if run.metered_from is None:
        return 0
    return stepped_us((until - run.metered_from) // US, bill.step_s if bill is not None else 0)


def _marks(run: Run, bill: Bill | None, until: datetime) -> tuple[Mark, ...]:
    """What a charged run had used at each hour of the clock up to `until`, before that goes on another way."""
    if bill is None or run.metered_from is None:
        return ()
    recorded = bill.recorded_until or run.metered_from
    marks = [mark for mark in run.marks if mark.at > recorded]
    last = marks[-1].at if marks else recorded
    while (hour := next_hour(last)) <= until:
        marks.append(Mark(hour, used_us(run, bill, hour)))
        last = hour
    return tuple(marks)


def next_hour(at: datetime) -> datetime:
    """The first full hour of the clock, UTC, after `at`."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + HOUR
