"""How a share is shown: as its agent reported it in the life it was placed in, whatever comes late, twice or in part."""

from typing import Any

from events.base import JobId, NodeEpoch, NodeId, RunId, SlotMask, TeamId, position_of
from events.fleet import NodeLost
from events.job import JobPlaced, NodeShare
from events.node import EndReason, GpusReleased, ShareEnded, ShareStarted
from projections.tables import schema, share_view
from runtime.postgres import Pool
from tests.histories import BEGIN
from tests.projections.tables.test_gpu_view import joined
from tests.projections.tables.written import fill, recorded

EPOCH = NodeEpoch(position_of(1, 1))
OTHER = NodeEpoch(position_of(1, 9))
SHARE: dict[str, Any] = {"at": BEGIN, "node_id": NodeId("n1"), "node_epoch": EPOCH, "run_id": RunId("j-1")}
PLACED = [
    joined(()),
    JobPlaced(
        at=BEGIN,
        team=TeamId("t"),
        job_id=JobId("j"),
        run_id=RunId("j-1"),
        attempt=1,
        shares=(NodeShare(NodeId("n1"), EPOCH, SlotMask(0b1011)),),
    ),
]
STARTED = ShareStarted(**SHARE)
ENDED = ShareEnded(**SHARE, reason=EndReason.EXITED, exit_code=3, rank=1, message="out of memory")
CASES: list[tuple[list[Any], str, int | None, list[int]]] = [
    ([], "placed", None, []),
    ([STARTED], "started", None, []),
    ([STARTED, ENDED], "ended", 3, []),
    ([STARTED, ENDED, STARTED], "ended", 3, []),
    ([ENDED, ShareEnded(**SHARE, reason=EndReason.EXITED)], "ended", 3, []),
    ([ShareEnded(**SHARE, reason=EndReason.EXITED)], "ended", 0, []),
    ([ShareEnded(**SHARE, reason=EndReason.NEVER_STARTED)], "ended", None, []),
    ([ENDED, GpusReleased(**SHARE, slots=SlotMask(0b0110))], "ended", 3, [1]),
    ([ENDED, *[GpusReleased(**SHARE, slots=SlotMask(slots)) for slots in (1, 2, 2, 8)]], "released", 3, [0, 1, 3]),
    ([GpusReleased(**SHARE, slots=SlotMask(0b1111)), ENDED], "released", 3, [0, 1, 3]),
    ([ShareStarted(**{**SHARE, "node_epoch": OTHER})], "placed", None, []),
    ([GpusReleased(**{**SHARE, "node_epoch": OTHER}, slots=SlotMask(0b1011))], "placed", None, []),
    ([ShareStarted(**{**SHARE, "run_id": RunId("j-2")})], "placed", None, []),
    ([STARTED, NodeLost(at=BEGIN, node_id=NodeId("n1"), node_epoch=EPOCH, silent_s=99.0)], "lost", None, []),
    ([STARTED, joined(())], "lost", None, []),
    ([GpusReleased(**SHARE, slots=SlotMask(0b1011)), joined(())], "released", None, [0, 1, 3]),
]


async def test_a_share_is_shown_as_its_agent_reported_it(pool: Pool) -> None:
    """Reports of another life or run change nothing; what ended stays ended; a lost node's share says so."""
    async with pool.acquire() as conn:
        for events, state, exit_code, released in CASES:
            await fill(conn, schema.LIVE, [recorded([*PLACED, *events])])
            (share,) = await share_view.shares_of(conn, RunId("j-1"))
            assert (share.state, share.exit_code, share.released) == (state, exit_code, released), events
            assert share.slots == [0, 1, 3]
