"""Answers to `why`, `dry_run` and `entitled` from the fold: of leader and standby, and to what cannot be read."""

import msgspec
import pytest

from events.ask import Basis, DryRun, DryRunAsk, Entitled, EntitledAsk, Outcome, Why, WhyAsk
from events.base import JobId, NodeId, TeamId, spelled
from events.fleet import NodeSuspected
from events.job import HoldCode, JobAdmitted, JobSpec
from projections.cluster.job import JobState
from services.control.answers import answering_dry_run, answering_entitled, answering_why
from tests.fixtures.waiting import until
from tests.services.control.cells import CLOCK, Cell, Hint


async def test_any_plane_says_why_and_whether_it_leads(memory: Cell) -> None:
    """With the position up to which it has read."""
    async with memory.plane("a", Hint(held=True)) as (leader, _), memory.plane("b", Hint()) as (standby, _):
        await memory.join("n1", 2)
        await memory.submit("job", 4)
        await until(lambda: any(job.held_at for job in memory.cluster.jobs.values()))
        await until(lambda: leader.cluster.position == standby.cluster.position == memory.cluster.position)
        said: list[Why] = []
        for plane in (leader, standby):
            payload = await answering_why(plane, CLOCK)("why", msgspec.json.encode(WhyAsk(job_id=JobId("job"))))
            said.append(msgspec.json.decode(payload, type=Why))

    assert [why.leader for why in said] == [True, False]
    assert {(why.found, why.code, why.position) for why in said} == {
        (True, HoldCode.EXCEEDS_CLUSTER.value, memory.cluster.position)
    }


async def test_a_plane_that_decides_nothing_any_more_says_so(memory: Cell) -> None:
    """With the record that stopped it; whoever waits is told that it is for nothing of theirs."""
    async with memory.plane("a", Hint(held=True)) as (plane, _):
        await memory.gate.record([JobAdmitted(at=CLOCK.now(), team=TeamId("t"), job_id=JobId("nobodys"))])
        memory.broken = {"one leader", "submitted first"}
        await memory.submit("job", 4)
        await until(lambda: plane.cluster.unread and plane.cluster.jobs)
        payload = await answering_why(plane, CLOCK)("why", msgspec.json.encode(WhyAsk(job_id=JobId("job"))))
        why = msgspec.json.decode(payload, type=Why)
        ask = DryRunAsk(team=TeamId("t"), spec=JobSpec(name="x", command=("true",), gpus=2))
        payload = await answering_dry_run(plane, CLOCK)("dry_run", msgspec.json.encode(ask))
        would = msgspec.json.decode(payload, type=DryRun)
        assert (would.outcome, would.halted) == (Outcome.NOT_EVALUATED, plane.cluster.unread)

    assert why.halted == plane.cluster.unread
    assert f"since record {spelled(why.halted)}" in why.message
    assert (why.basis, why.estimated_start) == (Basis.UNKNOWN, None)


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b'{"job_id": 7}', b"\xff"])
async def test_what_cannot_be_read_is_a_job_not_found(memory: Cell, payload: bytes) -> None:
    """Whoever asks gets an answer, and the plane goes on."""
    async with memory.plane("a", Hint()) as (plane, _):
        answer = msgspec.json.decode(await answering_why(plane, CLOCK)("why", payload), type=Why)

    assert (answer.found, answer.job_id) == (False, "")


async def test_a_dry_run_says_where_a_job_would_go_and_leaves_nothing(memory: Cell) -> None:
    """Of leader and standby alike; suspect nodes stay suspect, and what cannot be read has no outcome."""
    async with memory.plane("a", Hint(held=True)) as (leader, _), memory.plane("b", Hint()) as (standby, _):
        await memory.join("n1", 2)
        await until(lambda: leader.cluster.position == standby.cluster.position == memory.cluster.position)
        ask = DryRunAsk(team=TeamId("t"), spec=JobSpec(name="x", command=("true",), gpus=2))
        said = [
            msgspec.json.decode(await answering_dry_run(plane, CLOCK)("dry_run", msgspec.json.encode(ask)), type=DryRun)
            for plane in (leader, standby)
        ]
        odd = msgspec.json.decode(await answering_dry_run(leader, CLOCK)("dry_run", b"{"), type=DryRun)
        assert not memory.cluster.jobs

    assert [would.leader for would in said] == [True, False]
    assert {(would.outcome, tuple(would.nodes.items())) for would in said} == {(Outcome.STARTS.value, (("n1", 2),))}
    assert odd.outcome == ""


async def test_any_plane_says_what_queues_may_claim(memory: Cell) -> None:
    """By GPU type, with the position up to which it has read."""
    async with memory.plane("a", Hint(held=True)) as (leader, _), memory.plane("b", Hint()) as (standby, _):
        await memory.join("n1", 2)
        await memory.submit("job", 1)
        await until(lambda: any(job.state is JobState.PLACED for job in memory.cluster.jobs.values()))
        await until(lambda: leader.cluster.position == standby.cluster.position == memory.cluster.position)
        ask = msgspec.json.encode(EntitledAsk())
        said = [
            msgspec.json.decode(await answering_entitled(plane, CLOCK)("entitled", ask), type=Entitled)
            for plane in (leader, standby)
        ]
        gpu_type = memory.cluster.nodes[NodeId("n1")].gpu_type

    assert [entitled.leader for entitled in said] == [True, False]
    assert {entitled.position for entitled in said} == {memory.cluster.position}
    assert [list(entitled.queues.values()) for entitled in said] == [[{gpu_type: 1}]] * 2


async def test_a_dry_run_does_not_take_suspect_nodes_for_well(memory: Cell) -> None:
    """Whether they are heard again is not for it to say."""
    async with memory.plane("a", Hint()) as (plane, _):
        epoch = await memory.join("n1", 2)
        suspected = NodeSuspected(at=CLOCK.now(), node_id=NodeId("n1"), node_epoch=epoch, silent_s=31.0)
        await memory.gate.record([suspected])
        memory.broken = {"one leader"}
        await until(lambda: bool(plane.cluster.suspects))
        ask = DryRunAsk(team=TeamId("t"), spec=JobSpec(name="x", command=("true",), gpus=2))
        payload = await answering_dry_run(plane, CLOCK)("dry_run", msgspec.json.encode(ask))
        would = msgspec.json.decode(payload, type=DryRun)

    assert (would.outcome, would.code) == (Outcome.WAITS, HoldCode.NODES_UNWELL)
