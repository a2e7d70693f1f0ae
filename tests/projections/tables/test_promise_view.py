"""What becomes of promises: kept, late, without a time, dropped; and how often."""

from datetime import timedelta
from typing import Any

from events.base import Event, JobId, NodeEpoch, NodeId, RunId, SlotMask, TeamId
from events.job import (
    JobAdmitted,
    JobCancelled,
    JobPlaced,
    NodeShare,
    PromiseCause,
    PromiseDropped,
    PromiseMoved,
    StartPromised,
)
from projections.tables import promise_view, schema
from projections.tables.promise_view import Kept, Outcome
from runtime.postgres import Pool
from tests.histories import BEGIN
from tests.projections.tables.running import submitted
from tests.projections.tables.written import fill, recorded

JOB: dict[str, Any] = {"at": BEGIN, "team": TeamId("red"), "job_id": JobId("j0001")}
SHARES = (NodeShare(NodeId("n1"), NodeEpoch(1), SlotMask(1)),)
SOON, LATER = BEGIN + timedelta(milliseconds=30), BEGIN + timedelta(hours=1)  # records come every 7 ms
PLACED = JobPlaced(**JOB, run_id=RunId("j0001-1"), attempt=1, shares=SHARES)
MOVED = PromiseMoved(**JOB, shares=SHARES, start=LATER, cause=PromiseCause.OVERRUN)
DROPPED = PromiseDropped(**JOB, cause=PromiseCause.NODE)


def promised(start: Any) -> StartPromised:
    """The job is promised a start."""
    return StartPromised(**JOB, shares=SHARES, start=start)


CASES: list[tuple[list[Event], str, int, str | None]] = [
    ([promised(LATER)], "open", 0, None),
    ([promised(SOON), PLACED], "kept", 0, None),
    ([promised(BEGIN - timedelta(seconds=2)), PLACED], "late", 0, None),
    ([promised(BEGIN - timedelta(seconds=2)), MOVED, PLACED], "late", 1, "overrun"),  # by the first word, not the last
    ([promised(None), MOVED, PLACED], "kept", 1, "overrun"),  # the first time that was named
    ([promised(None), PLACED], "untimed", 0, None),
    ([promised(LATER), MOVED, MOVED, DROPPED], "dropped", 2, "node"),
    ([promised(LATER), JobCancelled(**JOB)], "dropped", 0, "changed"),
    ([promised(LATER), promised(SOON)], "open", 0, None),  # there is one already
]


async def test_a_promise_is_kept_by_the_start_that_was_named_first(pool: Pool) -> None:
    """Moves do not make a late start good; what ends the job drops its promise."""
    async with pool.acquire() as conn:
        for events, outcome, moves, cause in CASES:
            await fill(conn, schema.LIVE, [recorded([submitted(1, BEGIN), JobAdmitted(**JOB), *events])])
            (row,) = await promise_view.promises(conn)
            assert (row.outcome, row.moves, row.cause) == (outcome, moves, cause), events
            assert (row.ended_at is None) is (outcome == "open")


async def test_promises_are_counted_with_their_slips(pool: Pool) -> None:
    """A second promise of a job is a row of its own; the hit rate leaves out what never named a time, or was dropped."""
    events = [submitted(1, BEGIN), JobAdmitted(**JOB), promised(LATER), MOVED, DROPPED, promised(LATER), MOVED, PLACED]
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded(events)])
        newest, oldest = await promise_view.promises(conn)
        assert (newest.outcome, oldest.outcome) == ("kept", "dropped")
        assert await promise_view.promises(conn, before=newest.promised) == [oldest]
        assert await promise_view.promises(conn, job_id=JobId("other")) == []
        kept = await promise_view.kept(conn)

    assert (kept.outcomes["kept"], kept.outcomes["dropped"], kept.outcomes["open"]) == (1, 1, 0)
    assert kept.slips == {"overrun": 2}
    assert kept.hit_rate == 1.0
    assert Kept({**kept.outcomes, Outcome.LATE: 3}, {}).hit_rate == 0.25
    assert Kept(dict.fromkeys(Outcome, 0), {}).hit_rate is None
