"""What a run that ends for another job has lost, and in which order its nodes are."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from events.base import Event, JobId, NodeEpoch, NodeId, RunId, SlotMask, TeamId, position_of
from events.job import (
    FailureCategory,
    GpusEarmarked,
    JobAdmitted,
    JobFailed,
    JobPlaced,
    JobRequeued,
    JobResumeAsked,
    JobSucceeded,
    JobTimedOut,
    NodeShare,
    RunStarted,
    RunStopping,
    StopCause,
)
from events.node import CheckpointSaved, EndReason, ShareEnded
from projections.tables import job_view, run_view, schema, share_view
from runtime.postgres import Pool
from tests.histories import BEGIN
from tests.projections.tables.running import submitted
from tests.projections.tables.test_gpu_view import joined
from tests.projections.tables.written import fill, recorded

EPOCH = NodeEpoch(position_of(1, 1))
OF: dict[str, Any] = {"at": BEGIN, "team": TeamId("red"), "job_id": JobId("j0001")}
RUN = RunId("j0001-1")
SHARES = (NodeShare(NodeId("n1"), EPOCH, SlotMask(0b11)), NodeShare(NodeId("n2"), EPOCH, SlotMask(0b1)))
BEFORE: list[Event] = [
    joined(()),
    submitted(1, BEGIN),
    submitted(2, BEGIN),
    JobAdmitted(**OF, borrowing=True),
    JobPlaced(**OF, run_id=RUN, attempt=1, shares=SHARES, ranks=(1, 0)),  # the fifth record, at 35 ms
    RunStarted(**OF, run_id=RUN),
    GpusEarmarked(at=BEGIN, team=TeamId("red"), job_id=JobId("j0002"), shares=SHARES, victims=(RUN,)),
]
STOPPING = RunStopping(**OF, run_id=RUN, cause=StopCause.PREEMPTED)


def saved(epoch: NodeEpoch = EPOCH, *, number: int = 4) -> CheckpointSaved:
    """The run's progress is safe."""
    return CheckpointSaved(at=BEGIN, node_id=NodeId("n1"), node_epoch=epoch, run_id=RUN, number=number)


CASES: list[tuple[Iterable[Event], float | None]] = [  # 3 GPUs; a record every 7 ms, the start at 42
    ([], None),
    ([STOPPING], 3 * 0.014),
    ([saved(), STOPPING], 3 * 0.007),
    ([saved(), saved(), saved(number=3), STOPPING], 3 * 0.021),  # the others are no later saves
    ([saved(NodeEpoch(7)), STOPPING], 3 * 0.021),  # of another life of the node
    ([STOPPING, saved()], 0.0),  # while it stopped
    ([RunStopping(**OF, run_id=RUN, cause=StopCause.CANCEL)], None),
]


async def test_what_is_lost_counts_from_the_last_checkpoint_to_the_order_to_stop(pool: Pool) -> None:
    """In GPU-seconds, by the times of the log; whose run it was, and for whom, is said."""
    async with pool.acquire() as conn:
        for events, lost in CASES:
            await fill(conn, schema.LIVE, [recorded([*BEFORE, *events])])
            (run,) = await run_view.runs_of(conn, JobId("j0001"))
            assert (run.evicted_for, run.moved, run.gpus) == ("j0002", False, 3)
            assert run.lost_gpu_s == lost or abs((run.lost_gpu_s or 0) - (lost or 0)) < 1e-9, events
            assert ((await run_view.evicted(conn, moved=False)).runs, await run_view.evicted(conn, moved=True)) == (
                1, (0, 0.0),
            )  # fmt: skip
        _, job = await job_view.jobs(conn)
        assert (job.evictions, job.evicted_for, job.borrowing, job.gpus_placed) == (1, "j0002", True, 3)


async def test_nodes_and_shares_come_in_the_order_of_ranks(pool: Pool) -> None:
    """As the placement recorded it, not by name."""
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded(BEFORE)])
        (run,) = await run_view.runs_of(conn, JobId("j0001"))
        shares = await share_view.shares_of(conn, RUN)
    assert run.node_ids == [share.node_id for share in shares] == ["n2", "n1"]
    assert [share.place for share in shares] == [0, 1]


NOT_BEFORE = BEGIN + timedelta(seconds=1)
NODE_GONE: dict[str, Any] = {"cause": StopCause.NODE_LOST, "node_id": NodeId("n2")}
JUDGED: dict[str, Any] = NODE_GONE | {"category": FailureCategory.NODE}
OOM: dict[str, Any] = {"cause": StopCause.RANK_FAILED, "node_id": NodeId("n1"), "exit_code": 137}
ENDS: list[tuple[list[Event], tuple[object, ...], tuple[object, ...]]] = [  # events; what the run says, and the job
    (
        [saved(), RunStopping(**OF, run_id=RUN, **NODE_GONE), JobRequeued(**OF, run_id=RUN, not_before=NOT_BEFORE, **JUDGED)],
        ("node", "node_lost", "n2", None, False, 0.021), ("queued", "not_evaluated", "node", NOT_BEFORE),
    ),
    (
        [JobRequeued(**OF, run_id=RUN, not_before=NOT_BEFORE, held=True, **JUDGED)],
        ("node", "node_lost", "n2", None, True, 0.021), ("queued", "failed_too_often", "node", None),
    ),
    (
        [
            JobRequeued(**OF, run_id=RUN, not_before=NOT_BEFORE, held=True, **JUDGED),
            JobResumeAsked(**OF), JobResumeAsked(**OF),
        ],
        ("node", "node_lost", "n2", None, True, 0.021), ("queued", "not_evaluated", "node", None),
    ),
    (
        [
            RunStopping(**OF, run_id=RUN, cause=StopCause.RANK_FAILED, node_id=NodeId("n2"), exit_code=1),
            JobFailed(**OF, run_id=RUN, category=FailureCategory.OUT_OF_MEMORY, **OOM),
        ],
        ("out_of_memory", "rank_failed", "n1", 137, False, 0.021), ("failed", None, "out_of_memory", None),
    ),
    (  # a control plane that knew no categories
        [RunStopping(**OF, run_id=RUN, **NODE_GONE), JobRequeued(**OF, run_id=RUN, not_before=NOT_BEFORE, cause=StopCause.NODE_LOST)],
        (None, "node_lost", "n2", None, False, 0.021), ("queued", "not_evaluated", None, NOT_BEFORE),
    ),
    (
        [JobTimedOut(**OF, run_id=RUN)],
        ("time_limit", "time_limit", None, None, False, 0.021), ("timed_out", None, "time_limit", None),
    ),
    (
        [RunStopping(**OF, run_id=RUN, **NODE_GONE), JobSucceeded(**OF, run_id=RUN)],
        (None, "node_lost", "n2", 0, False, None), ("succeeded", None, None, None),
    ),
]  # fmt: skip


async def test_whose_failure_an_end_was_and_what_it_cost_is_said_of_the_run_and_of_its_job(pool: Pool) -> None:
    """By the last word of the control plane; what is lost, from the last checkpoint; and how many of each kind there were."""
    before = [event for event in BEFORE if not isinstance(event, GpusEarmarked)]
    async with pool.acquire() as conn:
        for events, of_run, of_job in ENDS:
            await fill(conn, schema.LIVE, [recorded([*before, *events])])
            (run,) = await run_view.runs_of(conn, JobId("j0001"))
            lost = round(run.lost_gpu_s, 6) if run.lost_gpu_s is not None else None
            assert (run.category, run.cause, run.failed_node, run.exit_code, run.held, lost) == of_run, events
            job = next(job for job in await job_view.jobs(conn) if job.job_id == "j0001")
            assert (job.state, job.hold_code, job.category, job.not_before) == of_job, events
            assert (run.placed, run.reason, run.message) == (position_of(1, 5), None, "")
            assert await run_view.failed(conn) == ({run.category: 1} if run.category else {})


async def test_an_attempt_says_what_its_node_could_not_do(pool: Pool) -> None:
    """As the share that failed reported it; each attempt its own."""
    refused = ShareEnded(
        at=BEGIN, node_id=NodeId("n2"), node_epoch=EPOCH, run_id=RUN, reason=EndReason.START_FAILED, message="no cgroup"
    )
    again = JobRequeued(
        **OF, run_id=RUN, not_before=NOT_BEFORE, cause=StopCause.START_FAILED, node_id=NodeId("n2"),
        category=FailureCategory.NODE,
    )  # fmt: skip
    second = JobPlaced(**OF, run_id=RunId("j0001-2"), attempt=2, shares=SHARES)
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded([*BEFORE, refused, again, second])])
        first, last = await run_view.runs_of(conn, JobId("j0001"))
        _, job = await job_view.jobs(conn)
    assert (first.reason, first.message, last.reason, last.message) == ("start_failed", "no cgroup", None, "")
    assert (job.category, job.failed_node) == (None, None), "it runs again"
