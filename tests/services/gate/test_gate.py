"""What the gate promises whoever asks: once, whole, with a position, or a refusal and nothing written."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from events.ask import Accepted, AgentReport, Answer, Cancel, RefusalCode, Refused, Report, Submit
from events.base import (
    Event,
    GpuUuid,
    JobId,
    NodeEpoch,
    NodeId,
    Position,
    Recorded,
    RunId,
    SlotMask,
    TeamId,
    position_of,
)
from events.job import JobCancelRequested, JobSubmitted
from events.log.memory import MemoryLog
from events.log.port import Conflict, Unknown
from events.node import GpusFoundClean, GpusReleased, NodeJoined, ShareStarted
from runtime.clock import ManualClock
from services.gate.gate import Gate, open_gate
from services.gate.lane import GROUP_MAX
from services.gate.names import is_job_id, job_id_for

TEAM = TeamId("research")
OTHER = TeamId("sales")
NODE = NodeId("node-1")
BY = "user:ada"
SPEC: dict[str, Any] = {"name": "train", "command": ["python", "train.py"], "gpus": 8}
CLOCK = ManualClock()


class SlowLog(MemoryLog):
    """Takes a turn of the loop for each append, counts them, and fails in the ways that a server does."""

    def __init__(self) -> None:
        super().__init__("main", CLOCK.now)
        self.groups: list[int] = []
        self.contended = 0  # appends that meet another writer first
        self.away = 0  # appends that are not even sent
        self.silent = False  # whether appends are done and not answered

    async def record(self, facts: Sequence[Event]) -> Position:
        """See `port.Log`."""
        await asyncio.sleep(0)
        if self.contended:
            self.contended -= 1
            raise Conflict("another writer", code="log_contended")
        if self.away:
            self.away -= 1
            raise Unknown("nothing sent", code="log_away")
        self.groups.append(len(facts))
        position = await super().record(facts)
        if self.silent:
            raise Unknown("no answer", code="log_unknown")
        return position


@pytest.fixture
def log() -> SlowLog:
    """An empty log."""
    return SlowLog()


@pytest.fixture
async def gate(log: SlowLog) -> AsyncIterator[Gate]:
    """A gate in front of it."""
    async with open_gate(log, CLOCK) as gate:
        yield gate


def ask(key: str = "k", **changed: Any) -> Submit:
    """An ask to run something."""
    return Submit(key=key, spec=SPEC | changed)


def events(log: MemoryLog) -> list[Event]:
    """All that was written."""
    return [recorded.event for recorded in log.stretch()]


def accepted(answer: Answer) -> Accepted:
    """The answer, which must be good."""
    assert isinstance(answer, Accepted), answer
    return answer


def refused(answer: Answer) -> Refused:
    """The answer, which must be a refusal."""
    assert isinstance(answer, Refused), answer
    return answer


def joined(node_id: NodeId = NODE, instance: str = "i1") -> NodeJoined:
    """A node that says it has begun a new life."""
    return NodeJoined(
        at=CLOCK.now(), by="node:forged", node_id=node_id, boot_id="b", instance=instance, gpu_type="h100",
        gpu_uuids=(GpuUuid("GPU-1"),), address="127.0.0.1", port_base=20_000,
    )  # fmt: skip


def report(*reports: AgentReport, instance: str = "i1") -> Report:
    """What an agent sends."""
    return Report(instance=instance, reports=reports)


async def test_a_submission_is_in_the_log_at_the_position_of_the_answer(gate: Gate, log: SlowLog) -> None:
    """With who asked and when stamped by the gate, and an id made of team and key."""
    answer = accepted(await gate.submit(TEAM, ask(), BY))
    assert answer.job_id == job_id_for(TEAM, "k")
    assert not answer.repeated
    recorded = await log.read(answer.position)
    assert recorded is not None
    assert isinstance(recorded.event, JobSubmitted)
    assert (recorded.event.by, recorded.event.at, recorded.event.key) == (BY, CLOCK.now(), "k")
    assert recorded.event.spec.gpus == 8


def test_the_id_of_a_job_is_for_ever() -> None:
    """The way from team and key to id never changes: clients keep ids, and repeats must find their job."""
    assert job_id_for(TEAM, "k") == "jbpsfofbxacxby"
    assert job_id_for(OTHER, "k") != job_id_for(TEAM, "k")


async def test_one_key_at_once_a_hundred_times_is_one_job(gate: Gate, log: SlowLog) -> None:
    """One is recorded, the others are told that it was."""
    answers = await asyncio.gather(*(gate.submit(TEAM, ask(), BY) for _ in range(100)))
    told = [accepted(answer) for answer in answers]
    assert len({(answer.job_id, answer.position) for answer in told}) == 1
    assert sum(not answer.repeated for answer in told) == 1
    assert len(events(log)) == 1


async def test_one_key_through_two_gates_is_one_job(gate: Gate, log: SlowLog) -> None:
    """Gates know nothing of each other: the log decides."""
    async with open_gate(log, CLOCK) as second:
        both = [one.submit(TEAM, ask(f"k{n}"), BY) for n in range(20) for one in (gate, second)]
        answers = [accepted(answer) for answer in await asyncio.gather(*both)]
    assert len(events(log)) == 20
    assert sum(answer.repeated for answer in answers) == 20
    assert answers[0].position == answers[1].position


async def test_keys_of_many_callers_go_out_together(gate: Gate, log: SlowLog) -> None:
    """What comes while an append is in flight is the next one, and each caller learns its own position."""
    answers = await asyncio.gather(*(gate.submit(TEAM, ask(f"k{n}"), BY) for n in range(100)))
    assert len(log.groups) <= 3
    for n, answer in enumerate(answers):
        recorded = await log.read(accepted(answer).position)
        assert recorded is not None
        assert isinstance(recorded.event, JobSubmitted)
        assert recorded.event.key == f"k{n}"


async def test_a_group_is_bounded(gate: Gate, log: SlowLog) -> None:
    """No append is larger than it may be, however many wait."""
    asks = [ask(f"k{n}") for n in range(GROUP_MAX)]
    answers = await asyncio.gather(gate.submit_many(TEAM, asks, BY), gate.submit_many(OTHER, asks, BY))
    assert all(isinstance(answer, Accepted) for many in answers for answer in many)
    assert max(log.groups) <= GROUP_MAX
    assert len(events(log)) == 2 * GROUP_MAX


async def test_more_in_one_call_than_may_be_is_refused(gate: Gate, log: SlowLog) -> None:
    """All of it, with the limit."""
    answers = await gate.submit_many(TEAM, [ask(f"k{n}") for n in range(1_001)], BY)
    assert {refused(answer).code for answer in answers} == {RefusalCode.TOO_LARGE}
    assert events(log) == []


async def test_the_same_key_with_another_spec_is_a_conflict(gate: Gate, log: SlowLog) -> None:
    """It names the job that has the key, at once, in one group, later, and through another gate."""
    first, twin = await asyncio.gather(gate.submit(TEAM, ask(), BY), gate.submit(TEAM, ask(gpus=4), BY))
    job_id = accepted(first).job_id
    async with open_gate(log, CLOCK) as second:
        later = [twin, await gate.submit(TEAM, ask(gpus=2), BY), await second.submit(TEAM, ask(gpus=1), BY)]
        assert accepted(await second.submit(TEAM, ask(), BY)).repeated
    assert {(refused(answer).code, refused(answer).job_id) for answer in later} == {(RefusalCode.CONFLICT, job_id)}
    assert len(events(log)) == 1


async def test_a_repeat_is_known_after_a_cancel(gate: Gate, log: SlowLog) -> None:
    """The submission is the first record of its subject, whatever came after it."""
    first = accepted(await gate.submit(TEAM, ask(), BY))
    await gate.cancel(TEAM, Cancel(job_id=first.job_id), BY)
    async with open_gate(log, CLOCK) as second:
        again = accepted(await second.submit(TEAM, ask(), BY))
    assert again.repeated
    assert again.position == first.position


async def test_one_repeat_holds_up_nobody(gate: Gate, log: SlowLog) -> None:
    """The rest of its group is recorded without it."""
    async with open_gate(log, CLOCK) as second:
        await second.submit_many(TEAM, [ask(f"k{n}") for n in range(0, 50, 7)], BY)
    answers = await gate.submit_many(TEAM, [ask(f"k{n}") for n in range(50)], BY)
    assert [n for n, answer in enumerate(answers) if accepted(answer).repeated] == list(range(0, 50, 7))
    assert len(events(log)) == 50
    assert len({accepted(answer).position for answer in answers}) == 50


async def test_another_writer_in_flight_is_waited_for(gate: Gate, log: SlowLog) -> None:
    """A refusal that is about no repeat is tried again, a bounded number of times."""
    log.contended = 3
    accepted(await gate.submit(TEAM, ask(), BY))
    log.contended = 1_000
    assert refused(await gate.submit(TEAM, ask("other"), BY)).code is RefusalCode.BUSY
    assert len(events(log)) == 1


async def test_an_append_without_an_answer_is_looked_up(gate: Gate, log: SlowLog) -> None:
    """What is in the log is accepted, with its position; nothing is written twice."""
    log.silent = True
    answers = await gate.submit_many(TEAM, [ask(f"k{n}") for n in range(5)], BY)
    assert [accepted(answer).position for answer in answers] == [position_of(1, n) for n in range(1, 6)]
    reported = accepted(await gate.report(NODE, report(joined())))
    assert reported.position == position_of(1, 6)
    assert len(events(log)) == 6


async def test_a_log_that_is_away_is_tried_again(gate: Gate, log: SlowLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a while; then all who wait are told that nothing was written."""
    log.away = 2
    accepted(await gate.submit(TEAM, ask(), BY))
    monkeypatch.setattr("services.gate.lane.AWAY_S", 0.0)
    log.away = 1
    answers = await asyncio.gather(*(gate.submit(TEAM, ask(f"k{n}"), BY) for n in range(1_500)))
    assert {refused(answer).code for answer in answers} == {RefusalCode.BUSY}
    assert len(events(log)) == 1
    accepted(await gate.submit(TEAM, ask("k0"), BY))


async def test_more_than_may_wait_is_refused_at_once(log: SlowLog) -> None:
    """A gate that falls behind says so; what it took before is recorded."""
    async with open_gate(log, CLOCK, waiting_max=10) as gate:
        answers = await gate.submit_many(TEAM, [ask(f"k{n}") for n in range(30)], BY)
    codes = [answer.code for answer in answers if isinstance(answer, Refused)]
    assert set(codes) == {RefusalCode.BUSY}
    assert len(events(log)) == 30 - len(codes) >= 10


async def test_who_waits_when_the_gate_stops_is_told(log: SlowLog) -> None:
    """Nobody waits for ever for an answer of a gate that is gone."""
    gate = Gate(log, CLOCK)
    running = asyncio.create_task(gate.run())
    asking = asyncio.create_task(gate.submit(TEAM, ask(), BY))
    await asyncio.sleep(0)
    running.cancel()
    assert refused(await asking).code in {RefusalCode.BUSY, RefusalCode.UNKNOWN}
    assert refused(await gate.submit(TEAM, ask("late"), BY)).code is RefusalCode.BUSY


@pytest.mark.parametrize(
    ("team", "wrong", "code"),
    [
        (TEAM, ask(gpus=0), RefusalCode.INVALID),
        (TEAM, ask(gpu=1), RefusalCode.INVALID),
        (TEAM, ask(command=[]), RefusalCode.INVALID),
        (TEAM, ask(name="a.b"), RefusalCode.INVALID),
        (TEAM, ask(team="sales"), RefusalCode.FORBIDDEN),
        (TEAM, ask(env={"A": "x" * 100_000}), RefusalCode.TOO_LARGE),
        (TEAM, ask(env={"A": "x" * 10_000_000}), RefusalCode.TOO_LARGE),
        (TEAM, Submit(key="", spec=SPEC), RefusalCode.INVALID),
        (TEAM, Submit(key="x" * 201, spec=SPEC), RefusalCode.INVALID),
        (TEAM, Submit(key="a\nb", spec=SPEC), RefusalCode.INVALID),
        (TEAM, Submit(key="k", spec=None), RefusalCode.INVALID),
        (TEAM, Submit(key="k", spec=SPEC, trace="x" * 300), RefusalCode.INVALID),
        (TEAM, Submit(key="k", spec=SPEC, trace="a\0b"), RefusalCode.INVALID),
        (TeamId("a.b"), ask(), RefusalCode.INVALID),
        (TeamId("*"), ask(), RefusalCode.INVALID),
        (TeamId("größe"), ask(), RefusalCode.INVALID),
        (TeamId(""), ask(), RefusalCode.INVALID),
    ],
)
async def test_a_wrong_ask_leaves_no_trace(
    gate: Gate, log: SlowLog, team: TeamId, wrong: Submit, code: RefusalCode
) -> None:
    """Refused with its code, and the log ends where it did."""
    before = await log.end()
    assert refused(await gate.submit(team, wrong, BY)).code is code
    assert await log.end() == before


@pytest.mark.parametrize("odd", ["\n", "\x1b[31m", "\x00", "\x7f", "\x9b"])
async def test_a_reason_is_one_line_of_text(gate: Gate, log: SlowLog, odd: str) -> None:
    """Others read it on their terminals, which obey such characters."""
    job_id = accepted(await gate.submit(TEAM, ask(), BY)).job_id
    before = await log.end()
    no = refused(await gate.cancel(TEAM, Cancel(job_id=job_id, reason=f"a{odd}b"), BY))
    assert (no.code, no.message.partition(":")[0]) == (RefusalCode.INVALID, "reason")
    assert await log.end() == before
    accepted(await gate.cancel(TEAM, Cancel(job_id=job_id, reason="größer\u00a0als ✓"), BY))


async def test_a_cancel_is_recorded_once(gate: Gate, log: SlowLog) -> None:
    """Again it is accepted, and nothing is added."""
    job_id = accepted(await gate.submit(TEAM, ask(), BY)).job_id
    first = accepted(await gate.cancel(TEAM, Cancel(job_id=job_id, reason="typo"), BY))
    again = accepted(await gate.cancel(TEAM, Cancel(job_id=job_id), BY))
    assert (again.position, again.repeated) == (first.position, True)
    cancelled = events(log)[1:]
    assert [(type(event), event.by) for event in cancelled] == [(JobCancelRequested, BY)]


@pytest.mark.parametrize("job_id", ["jaaaaaaaaaaaaa", "no-such-job", "a.b", "*", "", "j" * 1_000])
async def test_what_is_not_there_cannot_be_cancelled(gate: Gate, log: SlowLog, job_id: str) -> None:
    """Never submitted, or no id at all: then the log is not asked, to which it could be a pattern."""
    no = refused(await gate.cancel(TEAM, Cancel(job_id=JobId(job_id)), BY))
    assert no.code is RefusalCode.NOT_FOUND
    assert no.hint.startswith("jobs lists" if is_job_id(job_id) else "an id is")
    assert events(log) == []


async def test_a_team_cannot_cancel_what_is_anothers(gate: Gate, log: SlowLog) -> None:
    """It does not even learn that there is such a job."""
    job_id = accepted(await gate.submit(TEAM, ask(), BY)).job_id
    assert refused(await gate.cancel(OTHER, Cancel(job_id=job_id), BY)).code is RefusalCode.NOT_FOUND
    assert len(events(log)) == 1


async def test_reports_are_recorded_in_order_and_stamped(gate: Gate, log: SlowLog) -> None:
    """All in one append, as from the node that the subject names; the position is that of the last."""
    run = RunId("jaaaaaaaaaaaaa-1")
    sent: list[AgentReport] = [
        joined(),
        GpusFoundClean(at=CLOCK.now(), node_id=NODE, node_epoch=NodeEpoch(5), gpu_uuids=()),
    ]
    sent.append(ShareStarted(at=CLOCK.now(), node_id=NODE, node_epoch=NodeEpoch(5), run_id=run))
    answer = accepted(await gate.report(NODE, report(*sent)))
    assert answer.position == await log.end() == position_of(1, 3)
    assert log.groups == [3]
    assert [type(event) for event in events(log)] == [type(one) for one in sent]
    assert {event.by for event in events(log)} == {"node:node-1"}


async def test_a_report_that_is_sent_again_is_not_recorded_again(gate: Gate, log: SlowLog) -> None:
    """A second joining would begin a second life of the node."""
    first = accepted(await gate.report(NODE, report(joined())))
    again = accepted(await gate.report(NODE, report(joined())))
    assert (again.position, again.repeated) == (first.position, True)
    assert len(events(log)) == 1


RUN = RunId("jaaaaaaaaaaaaa-1")


@pytest.mark.parametrize(
    ("node_id", "wrong", "code"),
    [
        (NODE, report(joined(NodeId("node-2"))), RefusalCode.FORBIDDEN),
        (NODE, report(joined(), joined(NodeId("node-2"))), RefusalCode.FORBIDDEN),
        (NODE, report(joined(instance="i2")), RefusalCode.INVALID),
        (NODE, report(joined(), joined(instance="a\0b"), instance="a\0b"), RefusalCode.INVALID),
        (NODE, report(joined(instance="a\0b"), instance="a\0b"), RefusalCode.INVALID),
        (NODE, report(), RefusalCode.INVALID),
        (NODE, report(*[joined()] * 1_001), RefusalCode.INVALID),
        (NODE, report(joined(), instance=""), RefusalCode.INVALID),
        (NODE, report(replace(joined(), gpu_uuids=tuple(GpuUuid(f"g{n}") for n in range(64)))), RefusalCode.INVALID),
        (NodeId("a.b"), report(joined(NodeId("a.b"))), RefusalCode.INVALID),
        (
            NODE,
            report(GpusReleased(at=CLOCK.now(), node_id=NODE, node_epoch=NodeEpoch(5), run_id=RUN, slots=SlotMask(0))),
            RefusalCode.INVALID,
        ),
        (
            NODE,
            report(ShareStarted(at=CLOCK.now(), node_id=NODE, node_epoch=NodeEpoch(0), run_id=RUN)),
            RefusalCode.INVALID,
        ),
        (
            NODE,
            report(ShareStarted(at=CLOCK.now(), node_id=NODE, node_epoch=NodeEpoch(5), run_id=RunId("x"))),
            RefusalCode.INVALID,
        ),
        (
            NODE,
            report(
                GpusFoundClean(
                    at=CLOCK.now(), node_id=NODE, node_epoch=NodeEpoch(5), gpu_uuids=(GpuUuid("a"), GpuUuid("a"))
                )
            ),
            RefusalCode.INVALID,
        ),
    ],
)
async def test_a_wrong_report_leaves_no_trace(
    gate: Gate, log: SlowLog, node_id: NodeId, wrong: Report, code: RefusalCode
) -> None:
    """Nothing of it is written, also not the part that was right."""
    assert refused(await gate.report(node_id, wrong)).code is code
    assert events(log) == []


async def test_reports_do_not_wait_for_submissions(log: SlowLog) -> None:
    """A burst of asks that repeat each other never delays a release."""
    async with open_gate(log, CLOCK, waiting_max=10) as gate:
        burst = asyncio.gather(*(gate.submit(TEAM, ask(f"k{n}"), BY) for n in range(50)))
        accepted(await gate.report(NODE, report(joined())))
        await burst


async def test_a_foreign_record_on_the_subject_is_a_conflict(gate: Gate, log: SlowLog) -> None:
    """Bytes that an administrator put there by hand: the job cannot be, and whoever asks is told why."""
    log.write_raw(f"intake.{TEAM}.{job_id_for(TEAM, 'k')}", b"not an event")
    answer = refused(await gate.submit(TEAM, ask(), BY))
    assert answer.code is RefusalCode.CONFLICT
    first: Recorded = log.stretch()[0]
    assert await log.end() == first.position
