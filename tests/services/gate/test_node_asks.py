"""Cordons through the gate: of nodes that there are, and only where it is news."""

from collections.abc import AsyncIterator

import pytest

from events.ask import Accepted, Cordon, RefusalCode, Refused, Uncordon
from events.base import GpuUuid, NodeId
from events.log.memory import MemoryLog
from events.node import NodeJoined
from events.operator import NodeCordoned, NodeUncordoned
from runtime.clock import ManualClock
from services.gate.gate import Gate, open_gate

CLOCK = ManualClock()
A, B = NodeId("node-a"), NodeId("node-b")


@pytest.fixture
async def log() -> MemoryLog:
    """A log with two nodes."""
    log = MemoryLog("main", CLOCK.now)
    for node_id in (A, B):
        joined = NodeJoined(
            at=CLOCK.now(), node_id=node_id, boot_id="b", instance="i", gpu_type="h100", gpu_uuids=(GpuUuid("g"),),
            address="::1", port_base=20_000,
        )  # fmt: skip
        await log.record([joined])
    return log


@pytest.fixture
async def gate(log: MemoryLog) -> AsyncIterator[Gate]:
    """A gate of that log."""
    async with open_gate(log, CLOCK) as gate:
        yield gate


async def test_only_news_is_written(gate: Gate, log: MemoryLog) -> None:
    """Of two nodes of which one is cordoned already, the other; another reason is news, none is not."""
    end = int(await log.end())
    asks: tuple[tuple[Cordon | Uncordon, int], ...] = (
        (Uncordon(node_ids=(A, B)), 0),
        (Cordon(node_ids=(A,), reason="fan"), 1),
        (Cordon(node_ids=(B, A, B)), 1),
        (Cordon(node_ids=(A, B)), 0),
        (Cordon(node_ids=(A,), reason="disk"), 1),
        (Uncordon(node_ids=(A, B)), 2),
        (Uncordon(node_ids=(A,)), 0),
    )
    for ask, written in asks:
        answer = await gate.ask_nodes(ask, "operator")
        assert isinstance(answer, Accepted)
        assert answer.repeated == (written == 0)
        assert await log.end() == end + written
        end += written
    said = [r.event for r in log.stretch() if isinstance(r.event, NodeCordoned | NodeUncordoned)]
    assert [(type(event), event.node_id, event.reason) for event in said] == [
        (NodeCordoned, A, "fan"), (NodeCordoned, B, ""), (NodeCordoned, A, "disk"),
        (NodeUncordoned, A, ""), (NodeUncordoned, B, ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("node_ids", "code"),
    [
        ((), RefusalCode.INVALID),
        (("a.b",), RefusalCode.INVALID),
        (("*",), RefusalCode.INVALID),
        (tuple(f"n{n}" for n in range(1_001)), RefusalCode.INVALID),
        ((A, "node-c"), RefusalCode.NOT_FOUND),
    ],
)
async def test_what_names_no_node_is_refused_whole(
    gate: Gate, log: MemoryLog, node_ids: tuple[str, ...], code: RefusalCode
) -> None:
    """Nothing is written of the nodes that there are."""
    end = await log.end()
    answer = await gate.ask_nodes(Cordon(node_ids=tuple(map(NodeId, node_ids))), "operator")
    assert isinstance(answer, Refused)
    assert answer.code is code
    assert await log.end() == end


async def test_a_reason_has_a_limit(gate: Gate) -> None:
    """As with jobs."""
    answer = await gate.ask_nodes(Cordon(node_ids=(A,), reason="x" * 501), "operator")
    assert isinstance(answer, Refused)
    assert "reason: has 501 characters" in answer.message
