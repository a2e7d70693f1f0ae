"""The queues of the document beside the teams that have jobs."""

from events.base import TeamId
from events.queues import Bounds, Queue, QueueOrder, QueuesSet, QueueStop
from projections.tables import queue_view, schema
from runtime.postgres import Pool
from tests.histories import BEGIN
from tests.projections.tables.running import submitted
from tests.projections.tables.written import fill, recorded

LAB = Queue(name=TeamId("lab"), weight=5, bounds=(Bounds(gpu_type="h100", floor=8, limit=16), Bounds(limit=20)))
RED = Queue(
    name=TeamId("red"), parent="lab", order=QueueOrder.STRICT, stop=QueueStop.PAUSE, pending_max=9, running_max=3
)


async def test_a_queue_is_shown_as_the_document_in_force_says(pool: Pool) -> None:
    """With its bounds; one that it does not name any more stands at the root, and is shown only if it ever had jobs."""
    first, second = QueuesSet(at=BEGIN, queues=(LAB, RED)), QueuesSet(at=BEGIN)
    records = recorded([submitted(1, BEGIN), first, second])
    async with pool.acquire() as conn:
        tables = await fill(conn, schema.LIVE, [records[:1], records[1:2]])
        lab, red = await queue_view.queues(conn)
        assert (lab.listed, lab.parent, lab.weight, lab.bounds) == (True, "", 5, LAB.bounds)
        assert (red.parent, red.discipline, red.stop, red.pending_max, red.running_max, red.queued) == (
            "lab", "strict", "pause", 9, 3, 1,
        )  # fmt: skip
        assert await tables.take(conn, tuple(records[2:]), after=records[1].position)
        (red,) = await queue_view.queues(conn)
    assert (red.team, red.listed, red.parent, red.stop, red.queued) == ("red", False, "", "none", 1)
