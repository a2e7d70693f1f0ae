"""Whose a GPU is: only what names the node's present life, and the run that holds it, moves a slot."""

from collections import Counter
from typing import Any

from msgspec.structs import replace

from events.base import GpuUuid, JobId, NodeEpoch, NodeId, Position, RunId, SlotMask, TeamId, position_of
from events.fleet import NodeLost
from events.job import JobPlaced, NodeShare
from events.node import EndReason, GpusFoundClean, GpusReleased, NodeJoined, ShareEnded
from projections.tables import gpu_view, schema
from runtime.postgres import Pool
from tests.histories import BEGIN, fold
from tests.projections.tables.written import fill, lived, recorded

NODE: dict[str, Any] = {"at": BEGIN, "node_id": NodeId("n1")}
UUIDS = (GpuUuid("a"), GpuUuid("b"))
FIRST, SECOND = NodeEpoch(position_of(1, 1)), NodeEpoch(position_of(1, 3))
NEWER = (GpuUuid("b"), GpuUuid("c"))  # the first one was replaced


def joined(uuids: tuple[GpuUuid, ...]) -> NodeJoined:
    """The node begins a life."""
    return NodeJoined(
        **NODE, boot_id="b", instance="i", gpu_type="h100", gpu_uuids=uuids, address="::1", port_base=20_000
    )


def placed(run: str, epoch: NodeEpoch, slots: int) -> JobPlaced:
    """A run gets slots of the node."""
    shares = (NodeShare(NodeId("n1"), epoch, SlotMask(slots)),)
    return JobPlaced(at=BEGIN, team=TeamId("t"), job_id=JobId("j"), run_id=RunId(run), attempt=1, shares=shares)


def released(run: str, epoch: NodeEpoch, slots: int) -> GpusReleased:
    """The agent gives slots of a run back."""
    return GpusReleased(**NODE, node_epoch=epoch, run_id=RunId(run), slots=SlotMask(slots))


LIVES = [
    joined(UUIDS),
    GpusFoundClean(**NODE, node_epoch=FIRST, gpu_uuids=UUIDS),
    joined(NEWER),
    GpusFoundClean(**NODE, node_epoch=SECOND, gpu_uuids=(*UUIDS, *NEWER)),
]
CASES: list[tuple[list[Any], list[str]]] = [
    (LIVES[:1], ["unclean", "unclean"]),
    (LIVES[:2], ["free", "free"]),
    ([*LIVES[:2], placed("j-1", FIRST, 0b01)], ["held j-1", "free"]),
    ([*LIVES[:2], placed("j-1", FIRST, 0b11), released("j-1", FIRST, 0b10)], ["held j-1", "free"]),
    ([*LIVES[:2], placed("j-1", FIRST, 0b01), released("j-2", FIRST, 0b11)], ["held j-1", "free"]),
    ([*LIVES[:2], NodeLost(**NODE, node_epoch=FIRST, silent_s=99.0)], ["lost", "lost"]),
    (LIVES[:3], ["absent", "unclean", "unclean"]),
    (LIVES, ["absent", "free", "free"]),
    ([*LIVES, placed("j-1", FIRST, 0b110)], ["absent", "free", "free"]),  # it lost a race to the new life
    ([*LIVES, placed("j-1", SECOND, 0b1010)], ["absent", "held j-1", "free"]),  # there is no slot 3
    ([*LIVES, placed("j-1", SECOND, 0b010), released("j-1", FIRST, 0b010)], ["absent", "held j-1", "free"]),
    ([*LIVES, NodeLost(**NODE, node_epoch=FIRST, silent_s=99.0)], ["absent", "free", "free"]),
    ([*LIVES[:3], GpusFoundClean(**NODE, node_epoch=FIRST, gpu_uuids=NEWER)], ["absent", "unclean", "unclean"]),
]


async def test_only_what_names_the_present_life_moves_a_slot(pool: Pool) -> None:
    """Reports and judgements of an earlier life, and releases by others than the holder, change nothing."""
    async with pool.acquire() as conn:
        for events, expected in CASES:
            await fill(conn, schema.LIVE, [recorded(events)])
            shown = [f"{gpu.state} {gpu.run_id or ''}".strip() for gpu in await gpu_view.gpus_of(conn, NodeId("n1"))]
            assert shown == expected, events[-1]


async def test_a_slot_stays_its_gpus_own(pool: Pool) -> None:
    """A known GPU keeps its number, a new one gets the next never used."""
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded(LIVES)])
        gpus = await gpu_view.gpus_of(conn, NodeId("n1"))

    assert [(gpu.slot, gpu.uuid) for gpu in gpus] == [(0, "a"), (1, "b"), (2, "c")]
    assert {gpu.position for gpu in gpus} == {Position(SECOND), position_of(1, 4)}


async def test_slots_are_those_of_the_fold_also_when_all_numbers_are_used_up(pool: Pool) -> None:
    """A node that brings other GPUs at each boot: row by row, the slots that the deciders give away."""
    records = recorded([joined(tuple(GpuUuid(f"{boot}-{n}") for n in range(8))) for boot in range(20)])
    node = fold(records).nodes[NodeId("n1")]
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [records[:10], records[10:]])
        gpus = await gpu_view.gpus_of(conn, NodeId("n1"))

    assert [gpu.uuid for gpu in gpus] == list(node.uuids)
    assert [gpu.state for gpu in gpus] == ["unclean" if node.present >> gpu.slot & 1 else "absent" for gpu in gpus]


async def test_health_is_what_the_fold_says_of_each_gpu(pool: Pool) -> None:
    """Of what is out, and why; of the last verdict on any."""
    shown = Counter[str]()
    for seed in (3, 11, 19):
        grown = lived(seed, 250)
        async with pool.acquire() as conn:
            await fill(conn, schema.LIVE, [grown.records])
            rows = [row for name in sorted(grown.cluster.nodes) for row in await gpu_view.gpus_of(conn, name)]
            counted = await gpu_view.sick(conn)
        ailments = {
            (n, uuid): one for n, node in grown.cluster.nodes.items() for uuid, one in node.fitness.ailments.items()
        }
        health = {(row.node_id, row.uuid): row.health for row in rows if row.health is not None}
        assert {key: replace(one, whole_node=False) for key, one in health.items()} == {
            key: replace(one, whole_node=False) for key, one in ailments.items()
        }
        assert sum(counted.values()) == len([row for row in rows if row.health and row.state != "absent"])
        shown.update(row.judged.action for row in rows if row.judged is not None)
        shown["out"] += len(health)
    assert {"out", "log", "reset"} <= shown.keys()


async def test_a_slot_is_being_cleaned_from_the_end_of_its_run_to_its_release(pool: Pool) -> None:
    """What its run holds still, though nothing of it runs; not what another one holds, nor in another life."""
    run = [*LIVES[:2], placed("j-1", FIRST, 0b01), placed("k-1", FIRST, 0b10)]
    ended = ShareEnded(**NODE, node_epoch=FIRST, run_id=RunId("j-1"), reason=EndReason.EXITED)
    for events, cleaning in (
        ([*run, ended], [True, None]),
        ([*run, ended, released("j-1", FIRST, 0b01)], [None, None]),
        ([*run, replace(ended, node_epoch=SECOND)], [None, None]),
        ([*run, ended, NodeLost(**NODE, node_epoch=FIRST, silent_s=99.0)], [None, None]),
    ):
        async with pool.acquire() as conn:
            await fill(conn, schema.LIVE, [recorded(events)])
            assert [gpu.cleaning for gpu in await gpu_view.gpus_of(conn, NodeId("n1"))] == cleaning, events[-1]
