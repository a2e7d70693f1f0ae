"""What operators and agents say of a node: cordons and drains outlive its lives, labels hold in one."""

from datetime import timedelta

from events.base import NodeEpoch, NodeId, position_of
from events.fleet import (
    DrainCause,
    NodeClockJudged,
    NodeDrainBegun,
    NodeDrained,
    NodeDrainEnded,
    NodeLost,
    NodeRetired,
)
from events.node import NodeDescribed
from events.operator import MaintenancePlanned, NodeCordoned, NodeDrainAsked, NodeUncordoned, NodeUndrainAsked
from projections.cluster.evolve import evolve
from projections.cluster.state import Cluster
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


LATER = BEGIN + timedelta(hours=5)
N1 = NodeId("n1")
FIRST, SECOND = NodeEpoch(position_of(1, 1)), NodeEpoch(position_of(1, 9))
WINDOW = MaintenancePlanned(
    at=BEGIN, by="api:ops", node_id=N1, window="w", starts=LATER, ends=LATER + timedelta(hours=1)
)
WORDS = [
    joined(()),
    NodeDrainAsked(at=BEGIN, by="api:ops", node_id=N1, reason="fan", deadline=LATER),
    NodeDrained(**NODE, node_epoch=FIRST, drain_s=3),
    WINDOW,
    NodeDrainBegun(**NODE, node_epoch=FIRST, cause=DrainCause.MAINTENANCE, window="w", deadline=LATER),
    NodeDrainEnded(**NODE, node_epoch=FIRST, cause=DrainCause.MAINTENANCE, window="w"),
    NodeClockJudged(**NODE, node_epoch=FIRST, ahead_s=-3.5),
    NodeLost(**NODE, node_epoch=FIRST, silent_s=99.0, patience_s=90.0),
    joined(()),
    NodeDrained(**NODE, node_epoch=FIRST, drain_s=9),  # of the life before
    NodeUndrainAsked(at=BEGIN, node_id=N1),
    NodeDrainAsked(at=BEGIN, node_id=N1, reason="old", cause=DrainCause.RETIRE),
    NodeRetired(**NODE, node_epoch=SECOND),
    NodeUndrainAsked(at=BEGIN, node_id=N1),
]


async def test_drains_and_windows_are_in_the_table_as_they_are_in_the_fold(pool: Pool) -> None:
    """By the same rules, after each word, in whatever life; written and read back."""
    records = recorded(WORDS)
    cluster = Cluster()
    async with pool.acquire() as conn:
        for end, record in enumerate(records, 1):
            cluster = evolve(cluster, record)
            await fill(conn, schema.LIVE, [records[:end]])
            row = await node_view.node(conn, "n1")
            assert row is not None
            fitness = cluster.nodes[N1].fitness
            assert (row.drain, row.windows or ()) == (fitness.drain, fitness.windows), record.event
            assert (row.retired_at is not None) == fitness.retired
            if end == 3:
                assert row.drain is not None
                assert (row.drain.by, row.drain.reason, row.drain.done) == ("api:ops", "fan", True)
            clocks = (-3.5, -3.5) if end == 7 else (0.0, 0.0)  # of nodes that are there
            assert end not in {1, 7, 8} or await node_view.clocks(conn) == clocks
            if end == 8:
                assert (row.ahead_s, row.patience_s) == (-3.5, 90.0)
    assert cluster.nodes[N1].fitness.retired
