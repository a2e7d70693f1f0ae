"""The gate over a real server: who speaks is said by the subject, and the server lets nobody speak as another."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any, get_args

import msgspec
import nats.errors
import pytest

from events.ask import (
    Accepted,
    Adjust,
    AgentReport,
    Answer,
    Ask,
    Cancel,
    Cordon,
    Grant,
    RefusalCode,
    Refused,
    Report,
    Resume,
    SetAccounts,
    SetPolicy,
    SetPrices,
    SetQueues,
    Submit,
    Uncordon,
)
from events.base import NODE as NODE_FAMILY
from events.base import START, AccountId, GpuUuid, NodeId, TeamId
from events.job import JobSubmitted
from events.log.append import JetStreamLog
from events.log.memory import MemoryLog
from events.log.streams import StreamSettings, found
from events.node import NodeJoined
from events.policy import PolicySet
from events.subjects import Subjects
from runtime.clock import SystemClock
from runtime.embedded.nats import EmbeddedNats
from runtime.embedded.principals import agent_user, team_user
from runtime.nats import Connection, connect
from services.gate.gate import Gate, open_gate
from services.gate.serve import answer_operator, serve
from tests.fixtures.waiting import freeze

RED, BLUE, NODE = TeamId("red"), TeamId("blue"), NodeId("node-1")
ACCOUNT = AccountId("red-2026")
SUBJECTS = Subjects()
SPEC: dict[str, Any] = {"name": "train", "command": ["python", "train.py"], "gpus": 8}
CLOCK = SystemClock()


class Cell:
    """A gate that is served, its log, and connections to ask it by."""

    def __init__(self, server: EmbeddedNats, log: JetStreamLog, gate: Gate) -> None:
        self.server = server
        self.log = log
        self.gate = gate
        self._connections: dict[str, Connection] = {}

    async def connection(self, user: str) -> Connection:
        """A connection of this user's."""
        if user not in self._connections:
            self._connections[user] = await connect(self.server.login(user), name=user)
        return self._connections[user]

    async def ask(self, user: str, subject: str, payload: bytes, *, within_s: float = 10.0) -> Answer:
        """What is answered to bytes that a user sends to a subject."""
        reply = await (await self.connection(user)).request(subject, payload, timeout=within_s)
        answer: Answer = msgspec.json.decode(reply.data, type=Answer)
        return answer

    async def close(self) -> None:
        """All connections are closed."""
        for connection in self._connections.values():
            await connection.close()


@pytest.fixture
async def cell(nats_server: EmbeddedNats, nats_connection: Connection) -> AsyncIterator[Cell]:
    """A founded cell with one gate that answers, with the rights of a gate."""
    await found(nats_connection, StreamSettings())
    connection = await connect(nats_server.login("gate"), name="gate")
    log = JetStreamLog(connection)
    async with open_gate(log, CLOCK) as gate, serve(gate, connection, SUBJECTS):
        cell = Cell(nats_server, log, gate)
        yield cell
        await cell.close()
    await connection.close()


def submit(key: str = "k", **changed: Any) -> bytes:
    """The bytes of an ask."""
    return msgspec.json.encode(Submit(key=key, spec=SPEC | changed))


def joining(node_id: NodeId = NODE) -> bytes:
    """The bytes of a report."""
    joined = NodeJoined(
        at=CLOCK.now(), node_id=node_id, boot_id="b", instance="i", gpu_type="h100", gpu_uuids=(GpuUuid("GPU-1"),),
        address="127.0.0.1", port_base=20_000,
    )  # fmt: skip
    return msgspec.json.encode(Report(instance="i", reports=(joined,)))


async def test_a_team_asks_and_an_agent_reports(cell: Cell) -> None:
    """Across accounts, and the record says who it was."""
    asked = await cell.ask(team_user(RED), SUBJECTS.ask(RED), submit())
    assert isinstance(asked, Accepted)
    recorded = await cell.log.read(asked.position)
    assert recorded is not None
    assert isinstance(recorded.event, JobSubmitted)
    assert (recorded.event.team, recorded.event.by) == (RED, "team:red")

    cancelled = await cell.ask(team_user(RED), SUBJECTS.ask(RED), msgspec.json.encode(Cancel(job_id=asked.job_id)))
    assert isinstance(cancelled, Accepted)
    resumed = await cell.ask(team_user(RED), SUBJECTS.ask(RED), msgspec.json.encode(Resume(job_id=asked.job_id)))
    assert isinstance(resumed, Refused), "it was cancelled"
    assert resumed.code is RefusalCode.CONFLICT
    reported = await cell.ask(agent_user(NODE), SUBJECTS.report(NODE), joining())
    assert isinstance(reported, Accepted)
    assert reported.position == cancelled.position + 1


async def test_a_hundred_asks_with_one_key_are_one_job(cell: Cell) -> None:
    """Against a real server too; distinct keys each get their own."""
    before = await cell.log.end()
    one = [cell.ask(team_user(RED), SUBJECTS.ask(RED), submit()) for _ in range(100)]
    many = [cell.ask(team_user(RED), SUBJECTS.ask(RED), submit(f"k{n}")) for n in range(100)]
    answers = await asyncio.gather(*one, *many)
    assert all(isinstance(answer, Accepted) for answer in answers)
    assert len({answer.job_id for answer in answers[:100]}) == 1
    assert len({answer.job_id for answer in answers}) == 101
    assert await cell.log.end() == before + 101


async def test_a_gate_that_knows_nothing_finds_repeats_and_conflicts(cell: Cell) -> None:
    """Among many that are new, each in one append."""
    asks = [Submit(key=f"k{n}", spec=SPEC) for n in range(100)]
    await cell.gate.submit_many(RED, asks[:10], "user:ada")
    async with open_gate(cell.log, CLOCK) as second:
        changed = Submit(key="k0", spec=SPEC | {"gpus": 1})
        answers = await second.submit_many(RED, [changed, *asks[1:]], "user:ada")
    assert isinstance(answers[0], Refused)
    assert answers[0].code is RefusalCode.CONFLICT
    assert [answer.repeated for answer in answers[1:] if isinstance(answer, Accepted)] == [True] * 9 + [False] * 90


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"{", b"null", b"[]", b'{"ask":"submit"}', b'{"ask":"destroy"}', b"\xff\xfe", b"[" * 100_000,
        b'{"ask":"submit","key":"k","spec":{},"extra":1}', b'{"ask":"submit","key":1,"spec":{}}',
        submit(gpus=0), submit(junk=1), submit(env={"A": "x" * 200_000}),
    ],
)  # fmt: skip
async def test_what_is_no_ask_is_refused_and_leaves_no_trace(cell: Cell, payload: bytes) -> None:
    """Whatever bytes come, there is an answer."""
    before = await cell.log.end()
    answer = await cell.ask(team_user(RED), SUBJECTS.ask(RED), payload)
    assert isinstance(answer, Refused)
    assert answer.code in {RefusalCode.INVALID, RefusalCode.TOO_LARGE}
    assert await cell.log.end() == before


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[" * 100_000, b'{"instance":"i","reports":[{"type":"x"}]}', b'{"instance":"i"}']
)
async def test_what_is_no_report_is_refused_and_leaves_no_trace(cell: Cell, payload: bytes) -> None:
    """An event that is not an agent's included."""
    before = await cell.log.end()
    answer = await cell.ask(agent_user(NODE), SUBJECTS.report(NODE), payload)
    assert isinstance(answer, Refused)
    assert answer.code is RefusalCode.INVALID
    assert await cell.log.end() == before


async def test_nobody_speaks_as_another(cell: Cell) -> None:
    """The server refuses other teams' and nodes' subjects, the gate a forged node id on the own one."""
    before = await cell.log.end()
    for user, subject in [
        (team_user(RED), SUBJECTS.ask(BLUE)),
        (team_user(RED), SUBJECTS.report(NODE)),
        (agent_user(NODE), SUBJECTS.report(NodeId("node-2"))),
        (agent_user(NODE), SUBJECTS.ask(RED)),
        (team_user(RED), SUBJECTS.operate),
        (agent_user(NODE), SUBJECTS.operate),
        ("operator", SUBJECTS.ask(RED)),
        ("operator", SUBJECTS.report(NODE)),
    ]:
        with pytest.raises(nats.errors.Error):
            await cell.ask(user, subject, submit(), within_s=0.3)
    forged = await cell.ask(agent_user(NODE), SUBJECTS.report(NODE), joining(NodeId("node-2")))
    assert isinstance(forged, Refused)
    assert forged.code is RefusalCode.FORBIDDEN
    assert await cell.log.end() == before


async def test_an_operator_sets_documents_and_cordons_nodes(cell: Cell) -> None:
    """By whom is said by the subject; the documents that hold can be read by their subjects."""
    await cell.ask(agent_user(NODE), SUBJECTS.report(NODE), joining())
    asks = (
        SetQueues(document={"queues": [{"name": "red", "weight": 2}]}, replaces=START),
        SetPolicy(document={"order": "fifo"}, replaces=START),
        Cordon(node_ids=(NODE,), reason="fan"),
        Uncordon(node_ids=(NODE,)),
    )
    for ask in asks:
        answer = await cell.ask("operator", SUBJECTS.operate, msgspec.json.encode(ask))
        assert isinstance(answer, Accepted), answer
        recorded = await cell.log.read(answer.position)
        assert recorded is not None
        assert recorded.event.by == "operator"
    operator = await cell.connection("operator")
    read = await operator.request(f"$JS.API.DIRECT.GET.EVENTS_0001.{SUBJECTS.events_prefix}queues", b"", timeout=5)
    assert msgspec.json.decode(read.data)["data"]["queues"] == [{"name": "red", "weight": 2}]


async def test_of_two_operators_at_once_one_sets_the_document(cell: Cell) -> None:
    """Through gates of two processes, over the same position: the log decides, and nothing of the other is written."""
    connection = await connect(cell.server.login("gate"), name="gate-2")
    async with open_gate(JetStreamLog(connection), CLOCK) as second:
        over = START
        for turn in range(5):
            asks = [SetPolicy(document={"promises": 1 + turn * 2 + n}, replaces=over) for n in range(2)]
            before = await cell.log.end()
            answers = await asyncio.gather(cell.gate.set_document(asks[0], "a"), second.set_document(asks[1], "b"))
            (won,) = [answer for answer in answers if isinstance(answer, Accepted)]
            (lost,) = [answer for answer in answers if isinstance(answer, Refused)]
            assert (lost.code, lost.position) == (RefusalCode.MOVED, won.position)
            assert await cell.log.end() == won.position == before + 1
            over = won.position
        last = await cell.log.last("policy")
        assert last is not None
        assert isinstance(last.event, PolicySet)
        assert last.event.by == ("a" if last.event.promises % 2 else "b")
    await connection.close()


async def test_an_operator_sets_accounts_and_prices_and_grants_credits(cell: Cell) -> None:
    """On the one subject; by whom is said by it. The documents can be read there."""
    documents = (
        SetAccounts(document={"accounts": [{"name": "red-2026", "queues": ["red"]}]}, replaces=START),
        SetPrices(document={"lists": [{"gpu_hour": {"*": 1}}]}, replaces=START),
    )
    asks = (
        Grant(account=ACCOUNT, key="k", credits="0.5"),
        Adjust(account=ACCOUNT, key="l", credits="-0.25", reason="as agreed"),
    )
    for ask in (*documents, *asks):
        answer = await cell.ask("operator", SUBJECTS.operate, msgspec.json.encode(ask))
        assert isinstance(answer, Accepted), answer
        assert bool(answer.ask_id) == (ask in asks)
        recorded = await cell.log.read(answer.position)
        assert recorded is not None
        assert recorded.event.by == "operator"
    again = await cell.ask("operator", SUBJECTS.operate, msgspec.json.encode(asks[0]))
    assert isinstance(again, Accepted)
    assert again.repeated
    operator = await cell.connection("operator")
    for subject in ("accounts", "prices"):
        read = await operator.request(
            f"$JS.API.DIRECT.GET.EVENTS_0001.{SUBJECTS.events_prefix}{subject}", b"", timeout=5
        )
        assert msgspec.json.decode(read.data)["type"] == f"musterbook.{subject}.set.v1"


async def test_of_many_grants_under_one_key_one_is_written(cell: Cell) -> None:
    """Through gates of two processes at once: whatever is asked again is the first, or a conflict."""
    await cell.gate.set_document(SetAccounts(document={"accounts": [{"name": "red-2026"}]}, replaces=START), "a")
    connection = await connect(cell.server.login("gate"), name="gate-2")
    async with open_gate(JetStreamLog(connection), CLOCK) as second:
        before = await cell.log.end()
        asks = [Grant(account=ACCOUNT, key="k", credits=str(1 + n % 2)) for n in range(40)]
        gates = [cell.gate, second] * 20
        answers = await asyncio.gather(*(gate.ask_account(ask, "a") for gate, ask in zip(gates, asks, strict=True)))
    done = [answer for answer in answers if isinstance(answer, Accepted)]
    refused = [answer for answer in answers if isinstance(answer, Refused)]
    assert (len(done), len(refused), sum(not answer.repeated for answer in done)) == (20, 20, 1)
    assert {answer.code for answer in refused} == {RefusalCode.CONFLICT}
    assert {answer.position for answer in done} == {before + 1}
    assert await cell.log.end() == before + 1
    await connection.close()


FORGED = (
    b'{"ask":"grant","account":"red-2026","key":"k","credits":"1000"}',
    b'{"ask":"adjust","account":"red-2026","key":"k","credits":"1000"}',
    b'{"ask":"set_accounts","document":{"accounts":[{"name":"red-2026","overdraft":"unlimited"}]},"replaces":null}',
    b'{"ask":"set_prices","document":{"lists":[{"gpu_hour":{"*":0}}]},"replaces":null}',
    b'{"ask":"musterbook.credit.grant_asked.v1","account":"red-2026","amount_micro":1000}',
    b'{"ask":"submit","type":"musterbook.credit.granted.v1","account":"red-2026","amount_micro":1000}',
    submit(credits=1000),
    submit(overdraft="unlimited"),
    submit()[:-1] + b',"credits":"1000"}',
    submit()[:-1] + b',"account":"blue-2026"}',
)


@pytest.mark.parametrize("payload", FORGED, ids=range(len(FORGED)))
async def test_no_ask_of_a_team_makes_credits(cell: Cell, payload: bytes) -> None:
    """What is an operator's to ask, or nobody's, is no ask there: there is an answer, and no trace."""
    await cell.gate.set_document(SetAccounts(document={"accounts": [{"name": "red-2026"}]}, replaces=START), "a")
    before = await cell.log.end()
    answer = await cell.ask(team_user(RED), SUBJECTS.ask(RED), payload)
    assert isinstance(answer, Refused)
    assert answer.code is RefusalCode.INVALID
    assert await cell.log.end() == before


@pytest.mark.parametrize(
    "kind", ["musterbook.credit.granted.v1", "musterbook.credit.grant_asked.v1", "musterbook.accounts.set.v1"]
)
async def test_no_report_of_an_agent_makes_credits(cell: Cell, kind: str) -> None:
    """Also not beside one that is right."""
    before = await cell.log.end()
    forged = {
        "type": kind, "at": "2026-11-30T00:00:00Z", "account": "red-2026", "ask_id": "a", "key": "k",
        "request_hash": "h", "entry": 1, "amount_micro": 1000, "accounts": [],
    }  # fmt: skip
    report = msgspec.json.decode(joining())
    report["reports"].append(forged)
    answer = await cell.ask(agent_user(NODE), SUBJECTS.report(NODE), msgspec.json.encode(report))
    assert isinstance(answer, Refused)
    assert answer.code is RefusalCode.INVALID
    assert await cell.log.end() == before


def test_teams_and_agents_have_no_words_for_credits() -> None:
    """A kind of ask or report that is added has to be thought about here."""
    assert set(get_args(Ask)) == {Submit, Cancel, Resume}
    assert {kind.family for kind in get_args(AgentReport)} == {NODE_FAMILY}


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"{", b"null", b'{"ask":"submit","key":"k","spec":{}}', b'{"ask":"set_policy","document":{}}',
        b'{"ask":"set_policy","document":{},"replaces":-1}', b'{"ask":"set_queues","document":[],"replaces":0}',
        b'{"ask":"cordon","node_ids":[]}', b'{"ask":"cordon","node_ids":["n"],"why":1}', b"[" * 100_000,
        b'{"ask":"grant","account":"a","key":"k"}', b'{"ask":"grant","account":"a","key":"k","credits":5}',
        b'{"ask":"grant","account":"a","key":"k","credits":"5","by":"x"}', b'{"ask":"set_accounts","document":{}}',
        b'{"ask":"adjust","account":"a","key":"k","credits":"5","refunds":-1}',
        b'{"ask":"set_prices","document":{"lists":[{"gpu_hour":{"*":1e400}}]},"replaces":0}',
        b'{"ask":"set_policy","document":{"order":"' + b"x" * 300_000 + b'"},"replaces":0}',
    ],
)  # fmt: skip
async def test_what_is_no_operators_ask_is_refused(payload: bytes) -> None:
    """A document that does not say what it replaces included. An answer in any case, and nothing is written."""
    log = MemoryLog("main", CLOCK.now)
    async with open_gate(log, CLOCK) as gate:
        answer = await answer_operator(gate, payload)
    assert isinstance(answer, Refused)
    assert answer.code in {RefusalCode.INVALID, RefusalCode.TOO_LARGE}
    assert log.stretch() == ()


async def test_a_server_that_does_not_answer_means_unknown_and_the_same_key_finds_out(cell: Cell) -> None:
    """No answer is no refusal: what was asked once is there once."""
    accepted = await cell.gate.submit(RED, Submit(key="before", spec=SPEC), "user:ada")
    assert isinstance(accepted, Accepted)
    assert cell.server.pid is not None
    freeze(cell.server.pid)
    try:
        answer = await cell.gate.submit(RED, Submit(key="k", spec=SPEC), "user:ada")
    finally:
        os.kill(cell.server.pid, signal.SIGCONT)
    assert isinstance(answer, Refused)
    assert answer.code is RefusalCode.UNKNOWN
    again = await cell.gate.submit(RED, Submit(key="k", spec=SPEC), "user:ada")
    assert isinstance(again, Accepted)
    assert await cell.log.end() == again.position == accepted.position + 1
