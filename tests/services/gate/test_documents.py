"""Standing documents through the gate: once, over the one that was seen, each with an answer of its own."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from events.ask import Accepted, RefusalCode, Refused, SetPolicy, SetQueues, Submit
from events.base import START, Event, Position, Recorded, TeamId, spelled
from events.log.memory import MemoryLog
from events.log.port import Conflict, Unknown
from events.policy import PolicySet
from events.queues import QueuesSet
from runtime.clock import ManualClock
from services.gate.gate import Gate, open_gate

CLOCK = ManualClock()
ONE: dict[str, Any] = {"queues": [{"name": "research", "weight": 5}, {"name": "sales"}]}
TWO: dict[str, Any] = {"queues": [{"name": "sales", "limit": 8}]}


class Contended(MemoryLog):
    """A log that meets other writers, and that does what it was asked without an answer."""

    def __init__(self) -> None:
        super().__init__("main", CLOCK.now)
        self.contended = 0  # appends that meet another writer first
        self.silent = False
        self.away = False
        self.before: list[Event] = []  # what another writer records just before the next append

    async def last(self, subject: str) -> Recorded | None:
        """See `port.Reader`."""
        if self.away:
            raise Unknown("no answer", code="log_away")
        return await super().last(subject)

    async def record(self, facts: Sequence[Event]) -> Position:
        """See `port.Log`."""
        await asyncio.sleep(0)
        if self.before:
            others, self.before = self.before, []
            await super().record(others)
        if self.contended:
            self.contended -= 1
            raise Conflict("another writer", code="log_contended")
        position = await super().record(facts)
        if self.silent:
            raise Unknown("no answer", code="log_no_answer")
        return position


@pytest.fixture
async def log() -> Contended:
    """An empty log."""
    return Contended()


@pytest.fixture
async def gate(log: Contended) -> AsyncIterator[Gate]:
    """A gate of that log."""
    async with open_gate(log, CLOCK) as gate:
        yield gate


def queues(document: Any, over: int | None = START) -> SetQueues:
    """An ask."""
    return SetQueues(document=document, replaces=None if over is None else Position(over))


async def accepted(gate: Gate, ask: SetQueues | SetPolicy) -> Accepted:
    """The answer, which is good."""
    answer = await gate.set_document(ask, "operator")
    assert isinstance(answer, Accepted), answer
    return answer


async def test_a_document_says_what_it_changes_and_replaces(gate: Gate, log: Contended) -> None:
    """In the answer a line a queue; in the log the position of the one before."""
    first = await accepted(gate, queues(ONE))
    second = await accepted(gate, queues(TWO, first.position))
    assert first.changes == (
        "+ research: weight 5, order best_effort, stop none",
        "+ sales: weight 1, order best_effort, stop none",
    )
    assert second.changes == ("- research", "~ sales: limit none -> 8")
    events = [recorded.event for recorded in log.stretch()]
    assert [event.replaces for event in events if isinstance(event, QueuesSet)] == [START, first.position]
    policy = await accepted(gate, SetPolicy(document={"promises": 2}, replaces=START))
    assert policy.changes == ("~ promises: 1 -> 2",)


async def test_a_queue_that_goes_is_a_warning_and_nothing_stops(gate: Gate) -> None:
    """Its jobs may be waiting: the document is taken, and all else in it holds."""
    first = await accepted(gate, queues(ONE))
    second = await accepted(gate, queues(TWO, first.position))
    assert second.warnings == (
        "queue research goes: a job of that team stands at the root, with weight 1 and no bounds",
    )
    assert (await gate.documents.queues()).document == {"queues": [{"name": "sales", "weight": 1, "limit": 8}]}


async def test_what_holds_already_is_not_written_again(gate: Gate, log: Contended) -> None:
    """However it is written, and whatever it says it replaces."""
    first = await accepted(gate, queues(ONE))
    other_order = {"queues": [{"name": "sales"}, {"name": "research", "weight": 5, "limit": None, "children": []}]}
    for ask in (queues(ONE), queues(ONE, None), queues(other_order, 12345)):
        again = await accepted(gate, ask)
        assert (again.repeated, again.position, again.changes) == (True, first.position, ())
    assert await log.end() == first.position


async def test_an_empty_document_over_none_is_written(gate: Gate) -> None:
    """That there are no queues is said by somebody, from then on."""
    assert (await accepted(gate, queues({"queues": []}))).repeated is False


async def test_of_two_at_once_one_is_written(gate: Gate, log: Contended) -> None:
    """Whichever; the other is told the position, and a document of another kind is not held up."""
    one, two, policy = await asyncio.gather(
        gate.set_document(queues(ONE), "ada"),
        gate.set_document(queues(TWO), "bob"),
        gate.set_document(SetPolicy(document={}, replaces=START), "ada"),
    )
    refused = [answer for answer in (one, two) if isinstance(answer, Refused)]
    assert [answer.code for answer in refused] == [RefusalCode.MOVED]
    assert isinstance(policy, Accepted)
    held = await gate.documents.queues()
    assert refused[0].position == held.position
    assert f"at position {spelled(held.position)}, set at " in refused[0].message
    assert [type(recorded.event) for recorded in log.stretch()].count(QueuesSet) == 1


async def test_a_document_that_came_between_is_found(gate: Gate, log: Contended) -> None:
    """Another gate wrote it after this one had looked: the log refuses, and the answer names who it was."""
    log.before = [QueuesSet(at=CLOCK.now(), by="api:eve", replaces=START)]
    answer = await gate.set_document(queues(ONE), "ada")
    assert isinstance(answer, Refused)
    assert (answer.code, answer.position) == (RefusalCode.MOVED, await log.end())
    assert "by api:eve" in answer.message
    anyway = await accepted(gate, queues(ONE, None))
    assert anyway.position == await log.end()


async def test_another_writer_in_flight_is_waited_out(gate: Gate, log: Contended) -> None:
    """A conflict of the log that is not the document's own is tried again, and jobs are not held up by it."""
    log.contended = 3
    done, job = await asyncio.gather(
        accepted(gate, queues(ONE)),
        gate.submit(TeamId("red"), Submit(key="k", spec={"name": "a", "command": ["x"], "gpus": 1}), "team:red"),
    )
    assert done.position
    assert isinstance(job, Accepted)


async def test_a_lost_answer_is_looked_up(gate: Gate, log: Contended) -> None:
    """It is in the log: the answer says so, and asking again writes nothing."""
    log.silent = True
    done = await accepted(gate, queues(ONE))
    log.silent = False
    assert (await accepted(gate, queues(ONE))).position == done.position == await log.end()


async def test_while_the_log_is_away_nothing_is_written(gate: Gate, log: Contended) -> None:
    """Busy, not unknown: it was not even sent."""
    log.away = True
    answer = await gate.set_document(queues(ONE), "ada")
    assert isinstance(answer, Refused)
    assert (answer.code, answer.message) == (RefusalCode.BUSY, "the log is away; nothing was written")
    assert "not written twice" in answer.hint


async def test_a_dry_run_writes_nothing(gate: Gate, log: Contended) -> None:
    """It says what would change and what is wrong; also over a document that moved."""
    first = await accepted(gate, queues(ONE))
    tried = await gate.set_document(queues(TWO, first.position), "ada", dry_run=True)
    stale = await gate.set_document(queues(TWO, 7), "ada", dry_run=True)
    wrong = await gate.set_document(queues({}, first.position), "ada", dry_run=True)
    assert isinstance(tried, Accepted)
    assert (tried.position, tried.changes) == (first.position, ("- research", "~ sales: limit none -> 8"))
    assert [answer.code for answer in (stale, wrong) if isinstance(answer, Refused)] == [
        RefusalCode.MOVED,
        RefusalCode.INVALID,
    ]
    assert await log.end() == first.position


async def test_a_document_of_another_version_can_be_replaced(gate: Gate, log: Contended) -> None:
    """Who sees its position may set another over it; it is no document that holds already."""
    position = log.write_raw("policy", b'{"specversion":"1.0","type":"musterbook.policy.set.v9","id":"x","data":{}}')
    held = await gate.documents.policy()
    assert (held.position, held.document["promises"]) == (position, 1)
    done = await accepted(gate, SetPolicy(document={}, replaces=position))
    last = await log.last("policy")
    assert last is not None
    assert (last.position, isinstance(last.event, PolicySet)) == (done.position, True)


async def test_a_document_that_no_message_holds_is_refused(gate: Gate, log: Contended) -> None:
    """Limits of size: bytes, queues, and how deep they stand."""
    deep: dict[str, Any] = {"name": "q"}
    for number in range(17):
        deep = {"name": f"q{number}", "children": [deep]}
    for document in (
        {"queues": [{"name": f"q{n}"} for n in range(2_001)]},
        {"queues": [deep]},
        {"queues": [{"name": "a" * 300_000}]},
    ):
        answer = await gate.set_document(queues(document), "ada")
        assert isinstance(answer, Refused)
        assert answer.code in {RefusalCode.TOO_LARGE, RefusalCode.INVALID}
    full = {"queues": [{"name": f"q{n}", "floor": 1, "gpu_types": {"h100": {"floor": 1}}} for n in range(2_000)]}
    assert (await accepted(gate, queues(full))).position == await log.end()
