"""What operators say of nodes, through the gate: of nodes that there are, and only where it is news."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import reduce

import msgspec
import pytest

from events.ask import (
    Accepted,
    Cordon,
    Drain,
    Maintain,
    NodeAsk,
    RefusalCode,
    Refused,
    Report,
    ReturnGpus,
    Uncordon,
    Undrain,
)
from events.base import START, GpuUuid, NodeEpoch, NodeId
from events.fleet import DrainCause, NodeDrainBegun, NodeRetired
from events.head import LogFounded, RoundDecided
from events.log.memory import MemoryLog
from events.node import NodeJoined
from events.operator import NodeCordoned, NodeDrainAsked, NodeUncordoned, OperatorEvent
from projections.cluster.evolve import evolve
from projections.cluster.state import Cluster
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


LATER = timedelta(hours=1)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (Drain(node_ids=(A,), reason=" "), "reason: must be said"),
        (Drain(node_ids=(A,), reason="fan", cause=DrainCause.GPU), "cause: gpu is not an operator's"),
        (Maintain(node_ids=(A,), window="a.b", starts=CLOCK.now(), ends=CLOCK.now() + LATER), "window: "),
        (
            Maintain(node_ids=(A,), window="w", starts=CLOCK.now() + LATER, ends=CLOCK.now() + LATER),
            "ends: must be after",
        ),
        (
            Maintain(node_ids=(A,), window="w", starts=CLOCK.now() - 2 * LATER, ends=CLOCK.now() - LATER),
            "in the future",
        ),
        (
            Maintain(node_ids=(A,), window="w", starts=CLOCK.now(), ends=CLOCK.now() + timedelta(days=4_000)),
            "within 3660",
        ),
        (ReturnGpus(node_id=A, gpu_uuids=()), "gpu_uuids: must be 1 to 63"),
    ],
)
async def test_what_is_wrong_with_an_ask_is_said_and_nothing_written(
    gate: Gate, log: MemoryLog, ask: NodeAsk, said: str
) -> None:
    """Each field for itself."""
    end = await log.end()
    answer = await gate.ask_nodes(ask, "operator")
    assert isinstance(answer, Refused)
    assert answer.code is RefusalCode.INVALID
    assert said in answer.message
    assert await log.end() == end


async def test_a_deadline_that_is_past_is_now_and_asking_again_is_no_news(gate: Gate, log: MemoryLog) -> None:
    """However often, and whichever past."""
    ask = Drain(node_ids=(A,), reason="fan", deadline=CLOCK.now() - LATER)
    first = await gate.ask_nodes(ask, "operator")
    CLOCK.advance(5)
    again = await gate.ask_nodes(ask, "operator")

    drained = await log.last(f"operator.{A}")
    assert drained is not None
    assert isinstance(drained.event, NodeDrainAsked)
    assert drained.event.deadline == drained.event.at
    assert isinstance(first, Accepted)
    assert again == Accepted(position=first.position, repeated=True)
    later = await gate.ask_nodes(Drain(node_ids=(A,), reason="fan", deadline=CLOCK.now() + LATER), "operator")
    assert isinstance(later, Accepted)
    assert not later.repeated


async def test_of_two_operators_both_are_on_record_and_the_last_word_holds(gate: Gate, log: MemoryLog) -> None:
    """Neither is lost, whoever was first."""
    asks: list[tuple[NodeAsk, str]] = [
        (Drain(node_ids=(A, B), reason="fan"), "ada"),
        (Drain(node_ids=(B, A), reason="disk", cause=DrainCause.UPGRADE), "bob"),
        (Undrain(node_ids=(A,)), "eve"),
    ]
    answers = await asyncio.gather(*(gate.ask_nodes(ask, by) for ask, by in asks))
    assert all(isinstance(answer, Accepted) and not answer.repeated for answer in answers[:2])
    cluster = reduce(evolve, log.stretch(), Cluster())
    said = [r.event for r in log.stretch() if isinstance(r.event, OperatorEvent) and r.event.node_id == B]
    assert {event.by for event in said} == {"ada", "bob"}
    drain = cluster.nodes[B].fitness.drain
    assert drain is not None
    assert drain.reason == said[-1].reason


async def test_a_drain_of_the_control_planes_own_is_ended_by_whoever_spoke_before(gate: Gate, log: MemoryLog) -> None:
    """Also where no operator ever said anything of the node; once it is ended, saying so again is a repeat."""
    head = await log.append([LogFounded(at=CLOCK.now(), log_id="l", cell="main")], after=START)
    for _ in range(2):
        begun = NodeDrainBegun(at=CLOCK.now(), node_id=A, node_epoch=NodeEpoch(1), cause=DrainCause.GPU)
        decided = RoundDecided(at=CLOCK.now(), epoch=head, decided_at=head, events=1)
        await log.append([decided, begun], after=head)
        spoken = await log.last("head")
        assert spoken is not None
        head = spoken.position
        answers = [await gate.ask_nodes(Undrain(node_ids=(A,)), "operator") for _ in range(2)]
        assert [answer.repeated for answer in answers if isinstance(answer, Accepted)] == [False, True]


async def test_a_retired_node_is_spoken_of_no_more_and_joins_no_more(gate: Gate, log: MemoryLog) -> None:
    """Its agent is told what to do; the other node of the ask is left alone."""
    joined = await log.last(f"node.{A}")
    assert joined is not None
    assert isinstance(joined.event, NodeJoined)
    head = await log.append([LogFounded(at=CLOCK.now(), log_id="l", cell="main")], after=START)
    retired = NodeRetired(at=CLOCK.now(), node_id=A, node_epoch=NodeEpoch(joined.position))
    end = await log.append([RoundDecided(at=CLOCK.now(), epoch=head, decided_at=head, events=1), retired], after=head)

    for ask in (
        Undrain(node_ids=(A,)),
        Drain(node_ids=(B, A), reason="fan"),
        ReturnGpus(node_id=A, gpu_uuids=(GpuUuid("g"),)),
    ):
        answer = await gate.ask_nodes(ask, "operator")
        assert isinstance(answer, Refused)
        assert answer.code is RefusalCode.FORBIDDEN
    told = await gate.report(A, Report(instance="i", reports=(joined.event,)))
    assert isinstance(told, Refused)
    assert "node-a was retired for good" in told.message
    assert "MUSTER_NODE_ID" in told.hint
    assert await log.end() == end
    other = msgspec.structs.replace(joined.event, node_id=B)
    assert isinstance(await gate.report(B, Report(instance="i", reports=(other,))), Accepted)
