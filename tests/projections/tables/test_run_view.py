"""What a run that ends for another job has lost, and in which order its nodes are."""

from collections.abc import Iterable
from typing import Any

from events.base import Event, JobId, NodeEpoch, NodeId, RunId, SlotMask, TeamId, position_of
from events.job import GpusEarmarked, JobAdmitted, JobPlaced, NodeShare, RunStarted, RunStopping, StopCause
from events.node import CheckpointSaved
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
