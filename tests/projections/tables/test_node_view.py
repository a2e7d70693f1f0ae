"""What operators and agents say of a node: cordons outlive its lives, labels hold in one."""

from events.base import NodeEpoch, NodeId, position_of
from events.node import NodeDescribed
from events.operator import NodeCordoned, NodeUncordoned
from projections.tables import node_view, schema
from runtime.postgres import Pool
from tests.histories import BEGIN
from tests.projections.tables.test_gpu_view import NODE, joined
from tests.projections.tables.written import fill, recorded

CORDONED = NodeCordoned(at=BEGIN, by="api:ops", node_id=NodeId("n1"), reason="fan")


async def test_a_cordon_outlives_a_life_and_a_description_does_not(pool: Pool) -> None:
    """Who, why and since when; what is said of an earlier life changes nothing."""
    described = NodeDescribed(
        **NODE, node_epoch=NodeEpoch(position_of(1, 1)), labels={"rack": "r1"}, taints=("new",)
    )  # fmt: skip
    events = [joined(()), CORDONED, described, joined(()), described, NodeUncordoned(at=BEGIN, node_id=NodeId("n1"))]
    records = recorded(events)
    async with pool.acquire() as conn:
        seen = []
        for end in range(1, len(records) + 1):
            await fill(conn, schema.LIVE, [records[:end]])
            row = await node_view.node(conn, "n1")
            assert row is not None
            seen.append((row.cordoned_by, row.cordon_reason, row.labels.get("rack"), row.taints))
            assert (row.cordoned_at is None) is (row.cordoned_by is None)
    assert seen == [
        (None, None, None, []),
        ("api:ops", "fan", None, []),
        ("api:ops", "fan", "r1", ["new"]),
        ("api:ops", "fan", None, []),
        ("api:ops", "fan", None, []),
        (None, None, None, []),
    ]
