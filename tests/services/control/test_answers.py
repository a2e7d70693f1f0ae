"""Answers to `why` from the fold: of leader and standby, and to what cannot be read."""

import msgspec
import pytest

from events.ask import Why, WhyAsk
from events.base import JobId
from events.job import HoldCode
from services.control.answers import answering_why
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


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b'{"job_id": 7}', b"\xff"])
async def test_what_cannot_be_read_is_a_job_not_found(memory: Cell, payload: bytes) -> None:
    """Whoever asks gets an answer, and the plane goes on."""
    async with memory.plane("a", Hint()) as (plane, _):
        answer = msgspec.json.decode(await answering_why(plane, CLOCK)("why", payload), type=Why)

    assert (answer.found, answer.job_id) == (False, "")
