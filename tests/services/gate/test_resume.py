"""Resuming a job: once for each time that it is held, refused with a sentence where there is nothing to resume."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from events.ask import Accepted, Answer, Cancel, RefusalCode, Refused, Resume, Submit
from events.base import Event, JobId, Position, Recorded, TeamId, run_id_of
from events.job import EarmarkCause, EarmarkDropped, JobAdmitted, JobRequeued, JobResumeAsked, JobSucceeded, StopCause
from services.gate.gate import Gate, open_gate
from services.gate.names import job_id_for
from services.gate.resume import answer_to
from tests.services.gate.teller import CLOCK, Ledger

TEAM = TeamId("research")
BY = "user:ada"
JOB = job_id_for(TEAM, "k")
IDS: dict[str, Any] = {"at": CLOCK.now(), "team": TEAM, "job_id": JOB}


def requeued(attempt: int = 1, *, held: bool = True) -> JobRequeued:
    """A run of the job ended by a lost node."""
    not_before = CLOCK.now() + timedelta(seconds=1)
    return JobRequeued(
        **IDS, run_id=run_id_of(JOB, attempt), cause=StopCause.NODE_LOST, not_before=not_before, held=held
    )


@pytest.fixture
def log() -> Ledger:
    """An empty log, with a control plane that says what a test has it say."""
    return Ledger()


@pytest.fixture
async def gate(log: Ledger) -> AsyncIterator[Gate]:
    """A gate in front of it, and a job in it."""
    async with open_gate(log, CLOCK) as gate:
        spec = {"name": "train", "command": ["python", "train.py"], "gpus": 8}
        assert isinstance(await gate.submit(TEAM, Submit(key="k", spec=spec), BY), Accepted)
        yield gate


async def resumed(gate: Gate, *, team: TeamId = TEAM, job_id: JobId = JOB, reason: str = "") -> Answer:
    """The answer to somebody who resumes the job."""
    return await gate.resume(team, Resume(job_id=job_id, reason=reason), BY)


def asked(log: Ledger) -> list[Event]:
    """What was recorded of people who resume."""
    return [recorded.event for recorded in log.stretch() if isinstance(recorded.event, JobResumeAsked)]


async def test_a_held_job_is_resumed_once_for_each_time_that_it_is_held(gate: Gate, log: Ledger) -> None:
    """Again it is answered as at first, also when the job runs by then; held anew, it is asked anew."""
    await log.decided(requeued())
    first = await resumed(gate, reason="the fabric is mended")
    assert isinstance(first, Accepted)
    assert not first.repeated
    for _ in range(2):
        again = await resumed(gate)
        assert isinstance(again, Accepted)
        assert (again.position, again.repeated) == (first.position, True)
        await log.decided(JobAdmitted(**IDS))

    await log.decided(requeued(2))
    anew = await resumed(gate)

    assert isinstance(anew, Accepted)
    assert (anew.position > first.position, anew.repeated) == (True, False)
    assert [(event.by, event.reason) for event in asked(log) if isinstance(event, JobResumeAsked)] == [
        (BY, "the fabric is mended"),
        (BY, ""),
    ]


@pytest.mark.parametrize(
    "said",
    [(), (JobAdmitted(**IDS),), (requeued(held=False),), (requeued(), JobSucceeded(**IDS, run_id=run_id_of(JOB, 1)))],
    ids=["new", "admitted", "backing off", "ended"],
)
async def test_what_is_not_held_is_refused_with_a_sentence(gate: Gate, log: Ledger, said: tuple[Event, ...]) -> None:
    """And nothing is written."""
    for event in said:
        await log.decided(event)
    before = await log.end()
    answer = await resumed(gate)
    assert isinstance(answer, Refused)
    assert answer.code is RefusalCode.CONFLICT
    assert answer.message == f"job_id: {JOB} is not held for its failures: nothing to resume"
    assert answer.hint
    assert await log.end() == before


async def test_a_job_that_lost_what_was_set_aside_for_it_is_resumed(gate: Gate, log: Ledger) -> None:
    """The last that was said of it is not that it is held."""
    await log.decided(requeued())
    await log.decided(EarmarkDropped(**IDS, cause=EarmarkCause.CHANGED))
    answer = await resumed(gate)
    assert isinstance(answer, Accepted)
    assert not answer.repeated


async def test_a_cancelled_job_is_not_resumed(gate: Gate, log: Ledger) -> None:
    """Its end is on its way."""
    await log.decided(requeued())
    await gate.cancel(TEAM, Cancel(job_id=JOB), BY)
    answer = await resumed(gate)
    assert isinstance(answer, Refused)
    assert "was cancelled" in answer.message
    assert asked(log) == []


@pytest.mark.parametrize(("team", "job_id"), [("sales", JOB), (TEAM, "jaaaaaaaaaaaaa"), (TEAM, "a.b"), (TEAM, "")])
async def test_what_is_not_there_or_is_anothers_is_not_found(gate: Gate, log: Ledger, team: str, job_id: str) -> None:
    """Nobody learns of other teams' jobs."""
    await log.decided(requeued())
    answer = await resumed(gate, team=TeamId(team), job_id=JobId(job_id))
    assert isinstance(answer, Refused)
    assert answer.code is RefusalCode.NOT_FOUND
    assert asked(log) == []


@pytest.mark.parametrize(("held_at", "repeated"), [(4, True), (6, None)])
def test_whether_it_was_held_since_decides_what_a_repeat_means(held_at: int, repeated: bool | None) -> None:
    """An answer to a client that tries again; or a second chance, which is written down."""
    asked_at, now = 5, CLOCK.now()
    answer = answer_to(
        Resume(job_id=JOB),
        Recorded(JobResumeAsked(**IDS), Position(asked_at), now),
        Recorded(requeued(), Position(held_at), now),
    )
    expected = Accepted(position=Position(asked_at), job_id=JOB, repeated=True)
    assert answer == (expected if repeated else None)
