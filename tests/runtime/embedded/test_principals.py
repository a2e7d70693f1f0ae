"""What teams and agents may not do, each tried on a real server; and what they may."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress

import nats.errors
import nats.js.errors
import pytest
import structlog.testing
from nats.js.api import StreamConfig

from events.base import NodeId, TeamId
from events.subjects import DESIRED_STREAM, HEARTBEATS_STREAM, LOGS_STREAM, Subjects, events_stream
from runtime.embedded import principals
from runtime.embedded.nats import EmbeddedNats
from runtime.fault import Fault
from runtime.nats import Connection, connect
from tests.fixtures.servers import AGENTS, TEAMS
from tests.fixtures.waiting import until
from tests.runtime.embedded.test_principals_credits import MONEY

SUBJECTS = Subjects()
EVENTS = events_stream(1)
STREAMS = {
    EVENTS: "muster.main.ev.>",
    HEARTBEATS_STREAM: "muster.main.hb.*",
    DESIRED_STREAM: "muster.main.desired.*",
    LOGS_STREAM: "muster.main.log.>",
    "KV_LEASE": "$KV.LEASE.>",
}
WRITTEN = {  # there before every test
    "muster.main.ev.head": b"head",
    "muster.main.ev.intake.red.j1": b"red asks",
    "muster.main.ev.job.red.j1": b"red is placed",
    "muster.main.ev.intake.blue.j2": b"blue asks",
    "muster.main.ev.node.node-1": b"joined",
    "muster.main.desired.node-1": b"do this",
    "muster.main.desired.node-2": b"do that",
}


@pytest.fixture
async def system(nats_connection: Connection) -> Connection:
    """All streams are there, with something in each."""
    jetstream = nats_connection.jetstream()
    for name, subject in STREAMS.items():
        await jetstream.add_stream(StreamConfig(name=name, subjects=[subject], allow_direct=True))
    for subject, payload in WRITTEN.items():
        await jetstream.publish(subject, payload)
    return nats_connection


@pytest.fixture
async def gate(nats_server: EmbeddedNats, system: Connection) -> AsyncIterator[list[str]]:
    """A gate answers asks and reports; the subjects that reached it."""
    connection = await connect(nats_server.login("gate"), name="gate")
    heard: list[str] = []
    for subject in (SUBJECTS.asks, SUBJECTS.reports, SUBJECTS.operate):
        subscription = await connection.subscribe(subject, queue="gate", cb=_answering(heard))
        assert subscription.queue == "gate"
    await connection.flush()
    yield heard
    await connection.close()


def _answering(heard: list[str]):  # type: ignore[no-untyped-def] # noqa: ANN202 - the client's type of callback
    async def answer(message) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
        heard.append(message.subject)
        if message.reply:
            await message.respond(b"answer")

    return answer


async def stored(system: Connection) -> dict[str, int]:
    """How often each subject is in the streams."""
    counts: dict[str, int] = {}
    for name in STREAMS:
        info = await system.jetstream().stream_info(name, subjects_filter=">")
        counts |= info.state.subjects or {}
    return counts


UNTOUCHED = dict.fromkeys(WRITTEN, 1)
ADMINISTRATION = [
    *(f"$JS.API.STREAM.{verb}.{stream}" for verb in ("DELETE", "PURGE", "UPDATE") for stream in STREAMS),
    "$JS.API.STREAM.CREATE.MINE",
    f"$JS.API.STREAM.MSG.DELETE.{EVENTS}",
    f"$JS.API.STREAM.SNAPSHOT.{EVENTS}",
    f"$JS.API.STREAM.LEADER.STEPDOWN.{EVENTS}",
    f"$JS.API.STREAM.INFO.{EVENTS}",
    "$JS.API.INFO",
    "$SYS.REQ.SERVER.PING",
    # Readings that would show everything.
    f"$JS.API.STREAM.MSG.GET.{EVENTS}",
    f"$JS.API.DIRECT.GET.{EVENTS}",
    f"$JS.API.DIRECT.GET.{DESIRED_STREAM}",
    f"$JS.API.DIRECT.GET.{EVENTS}.muster.main.ev.head",
    f"$JS.API.DIRECT.GET.{EVENTS}.muster.main.ev.intake.blue.j2",
    f"$JS.API.DIRECT.GET.{EVENTS}.muster.main.ev.node.node-1",
    f"$JS.API.DIRECT.GET.{EVENTS}.muster.main.ev.credit.red",
    f"$JS.API.DIRECT.GET.{EVENTS}.muster.main.ev.teller.red.a1",
    f"$JS.API.DIRECT.GET.{DESIRED_STREAM}.muster.main.desired.node-2",
    "$JS.API.DIRECT.GET.KV_LEASE.$KV.LEASE.leader",
    f"$JS.API.CONSUMER.CREATE.{EVENTS}",
    f"$JS.API.CONSUMER.CREATE.{EVENTS}.mine.muster.main.ev.intake.blue.>",
    f"$JS.API.CONSUMER.CREATE.{EVENTS}.mine.muster.main.ev.intake.red.>",
    f"$JS.API.CONSUMER.DURABLE.CREATE.{EVENTS}.mine",
    f"$JS.API.CONSUMER.MSG.NEXT.{EVENTS}.any",
    f"$JS.API.CONSUMER.DELETE.{EVENTS}.any",
]
WRITING = [
    "muster.main.ev.head",
    "muster.main.ev.intake.blue.j9",
    "muster.main.ev.job.red.j1",
    "muster.main.ev.fleet.node-1",
    "muster.main.desired.node-1",
    "muster.main.desired.node-2",
    "muster.main.ev.queues",
    "muster.main.ev.policy",
    "muster.main.ev.operator.node-1",
    *MONEY,
    "muster.main.moved",
    "muster.main.why",
    "$KV.LEASE.leader",
    "_INBOX.gate.x",
    "_INBOX.control.x",
    "_R_.x.y",
    "muster.other.ask.red",
]
OF_OTHERS = {
    "team-red": [
        "muster.main.ask.blue",
        "muster.main.ev.intake.red.j1",
        "muster.main.report.node-1",
        "muster.main.hb.node-1",
        "muster.main.log.node-1.j.r.0",
        f"$JS.API.DIRECT.GET.{DESIRED_STREAM}.muster.main.desired.node-1",
        "_INBOX.team-blue.x",
        "muster.main.operate",
        f"$JS.API.DIRECT.GET.{EVENTS}.muster.main.ev.queues",
        f"$JS.API.DIRECT.GET.{EVENTS}.muster.main.ev.accounts",
        f"$JS.API.DIRECT.GET.{EVENTS}.muster.main.ev.prices",
    ],
    "operator": [
        "muster.main.ask.red",
        "muster.main.report.node-1",
        "muster.main.hb.node-1",
        f"$JS.API.DIRECT.GET.{EVENTS}.muster.main.ev.intake.red.j1",
        f"$JS.API.DIRECT.GET.{EVENTS}.muster.main.ev.operator.node-1",
    ],
    "agent-node-1": [
        "muster.main.operate",
        "muster.main.report.node-2",
        "muster.main.hb.node-2",
        "muster.main.hb.control-1",
        "muster.main.log.node-2.j.r.0",
        "muster.main.ask.red",
        "muster.main.ev.node.node-1",
        f"$JS.API.DIRECT.GET.{EVENTS}.muster.main.ev.accounts",
        f"$JS.API.DIRECT.GET.{EVENTS}.muster.main.ev.intake.red.j1",
        "_INBOX.agent-node-2.x",
    ],
}
LISTENING = {
    "team-red": [
        ">",
        "_INBOX.>",
        "_INBOX.team-blue.>",
        "_INBOX.gate.>",
        "_R_.>",
        "muster.main.>",
        "muster.main.ev.>",
        "muster.main.ev.intake.blue.*",
        "muster.main.ev.job.*.*",
        "muster.main.ev.credit.*",
        "muster.main.ev.teller.*.*",
        "muster.main.ev.head",
        "muster.main.ask.red",
        "muster.main.ask.*",
        "muster.main.desired.node-1",
        "$JS.EVENT.>",
        "muster.main.operate",
    ],
    "operator": [
        ">",
        "_INBOX.>",
        "_INBOX.gate.>",
        "muster.main.ev.>",
        "muster.main.ev.policy",
        "muster.main.operate",
        "muster.main.ask.*",
    ],
    "agent-node-1": [
        ">",
        "_INBOX.>",
        "_INBOX.agent-node-2.>",
        "_INBOX.control.>",
        "muster.main.desired.node-2",
        "muster.main.desired.*",
        "muster.main.report.node-1",
        "muster.main.hb.*",
        "muster.main.log.>",
        "muster.main.ev.>",
        "$SYS.>",
    ],
}


@pytest.mark.parametrize("user", ["team-red", "agent-node-1", "operator"])
async def test_neither_writes_reads_or_administers_what_is_not_its_own(
    user: str, nats_server: EmbeddedNats, system: Connection, gate: list[str]
) -> None:
    """Every subject of the kind is refused by the server, with an error that names it, and nothing has changed."""
    connection = await connect(nats_server.login(user), name=user)
    subjects = [*ADMINISTRATION, *WRITING, *OF_OTHERS[user]]
    with structlog.testing.capture_logs() as lines:
        for subject in subjects:
            await connection.publish(subject, b"{}", reply=connection.new_inbox())
        await until(lambda: len(lines) >= len(subjects))  # flush does not order: its ping overtakes what is published

    refused = "\n".join(line["error"] for line in lines if line["event"] == "nats_permission_refused").lower()
    assert [subject for subject in subjects if f'publish to "{subject}"'.lower() not in refused] == []
    assert await stored(system) == UNTOUCHED
    assert gate == []
    await connection.close()


@pytest.mark.parametrize("user", ["team-red", "agent-node-1", "operator"])
async def test_neither_listens_to_what_is_not_its_own(user: str, nats_server: EmbeddedNats, system: Connection) -> None:
    """Every such subscription is refused by the server: inboxes of others above all, where answers go."""
    connection = await connect(nats_server.login(user), name=user)
    with structlog.testing.capture_logs() as lines:
        for subject in LISTENING[user]:
            await connection.subscribe(subject)
            await connection.subscribe(subject, queue="q")
        await until(lambda: len(lines) >= 2 * len(LISTENING[user]))

    refused = "\n".join(line["error"] for line in lines if line["event"] == "nats_permission_refused").lower()
    wanted = [f'subscription to "{subject}"'.lower() for subject in LISTENING[user]]
    assert [text for text in wanted if refused.count(text) < 2] == []
    await connection.close()


@pytest.mark.parametrize("user", ["team-red", "agent-node-1", "operator"])
async def test_answers_cannot_be_sent_to_where_one_may_not_write(
    user: str, nats_server: EmbeddedNats, system: Connection, gate: list[str]
) -> None:
    """The reply subject of a request is not guarded by permissions; the account is what keeps it from the log."""
    connection = await connect(nats_server.login(user), name=user)
    allowed = {
        "team-red": ["muster.main.ask.red", f"$JS.API.DIRECT.GET.{EVENTS}.muster.main.ev.intake.red.j1"],
        "agent-node-1": [
            "muster.main.report.node-1",
            f"$JS.API.DIRECT.GET.{DESIRED_STREAM}.muster.main.desired.node-1",
        ],
        "operator": ["muster.main.operate", f"$JS.API.DIRECT.GET.{EVENTS}.muster.main.ev.policy"],
    }[user]
    others = [*WRITING, *OF_OTHERS["team-red"], *OF_OTHERS["agent-node-1"]]
    replies = [subject for subject in others if subject not in allowed]  # its own it may write in any case
    for request in allowed:
        for reply in replies:
            await connection.publish(request, b"", reply=reply)
    await connection.request(allowed[1], b"")
    await connection.request(allowed[0], b"")  # answered after all of them
    taken = [reply for reply in replies if not reply.startswith("_R_.")]  # these the server refuses by itself
    await until(lambda: len(gate) == len(taken) + 1)

    assert await stored(system) == UNTOUCHED
    assert set(gate) == {allowed[0]}
    await connection.close()


async def test_a_team_asks_reads_and_hears_its_own(
    nats_server: EmbeddedNats, system: Connection, gate: list[str]
) -> None:
    """What a team is for: it gets an answer, the last of its own subjects, and what comes on them."""
    connection = await connect(nats_server.login("team-red"), name="red")
    heard = await connection.subscribe("muster.main.ev.job.red.*")
    await connection.flush()
    await system.jetstream().publish("muster.main.ev.job.red.j1", b"red runs")

    assert (await connection.request(SUBJECTS.ask(TEAMS[0]), b"x")).data == b"answer"
    last = await connection.request(f"$JS.API.DIRECT.GET.{EVENTS}.muster.main.ev.job.red.j1", b"")
    assert last.data == b"red runs"
    asked = json.dumps({"seq": 1}).encode()  # would name another's record
    refused = await connection.request(f"$JS.API.DIRECT.GET.{EVENTS}.muster.main.ev.job.red.j1", asked)
    assert refused.data == b""
    assert (await heard.next_msg(timeout=2)).data == b"red runs"
    await connection.close()


async def test_an_agent_reports_beats_logs_and_reads_its_own_node(
    nats_server: EmbeddedNats, system: Connection, gate: list[str]
) -> None:
    """What an agent is for."""
    connection = await connect(nats_server.login("agent-node-1"), name="node-1")
    hint = await connection.subscribe(SUBJECTS.desired(AGENTS[0]))
    await connection.flush()
    await system.jetstream().publish(SUBJECTS.desired(AGENTS[0]), b"do more")
    await connection.publish(SUBJECTS.heartbeat("node-1"), b"beat")
    await connection.publish("muster.main.log.node-1.j1.j1-1.0", b"line")

    assert (await connection.request(SUBJECTS.report(AGENTS[0]), b"x")).data == b"answer"
    wanted = await connection.jetstream().get_last_msg(DESIRED_STREAM, SUBJECTS.desired(AGENTS[0]), direct=True)
    assert wanted.data == b"do more"
    assert (await hint.next_msg(timeout=2)).data == b"do more"
    counts = await stored(system)
    assert counts["muster.main.hb.node-1"] == counts["muster.main.log.node-1.j1.j1-1.0"] == 1
    await connection.close()


async def test_a_control_plane_writes_and_leads_but_administers_nothing(
    nats_server: EmbeddedNats, system: Connection
) -> None:
    """Its rights are those of its work: a control plane gone wrong cannot delete the log."""
    connection = await connect(nats_server.login("control"), name="control")
    jetstream = connection.jetstream(timeout=1)
    for subject in ("muster.main.ev.head", "muster.main.ev.job.red.j1", "muster.main.desired.node-1"):
        await jetstream.publish(subject, b"x")
    await jetstream.publish("$KV.LEASE.leader", b"{}")
    assert (await jetstream.get_last_msg(EVENTS, "muster.main.ev.head")).data == b"x"
    assert (await jetstream.get_msg(EVENTS, seq=1, direct=True)).data == b"head"
    beats = await connection.subscribe(SUBJECTS.heartbeats)
    await connection.publish(SUBJECTS.heartbeat("control-1"), b"beat")
    assert (await beats.next_msg(timeout=2)).data == b"beat"
    await _refuses(connection, system, f"STREAM.DELETE.{EVENTS}", f"STREAM.PURGE.{EVENTS}", f"CONSUMER.CREATE.{EVENTS}")
    others = set(STREAMS) - {EVENTS}  # those of the log it may make and change, to close one chapter and open the next
    await _refuses(connection, system, *(f"STREAM.{what}.{name}" for what in ("UPDATE", "CREATE") for name in others))
    await connection.close()


async def test_a_gate_writes_its_families_only(nats_server: EmbeddedNats, system: Connection) -> None:
    """The head, and with it every decision, is the control plane's alone."""
    connection = await connect(nats_server.login("gate"), name="gate")
    jetstream = connection.jetstream(timeout=0.5)
    for subject in (
        "muster.main.ev.intake.red.j7",
        "muster.main.ev.node.node-1",
        "muster.main.ev.policy",
        "muster.main.ev.teller.red.a1",
        "muster.main.ev.accounts",
        "muster.main.ev.prices",
    ):
        await jetstream.publish(subject, b"x")
    for subject in (
        "muster.main.ev.head",
        "muster.main.ev.job.red.j1",
        "muster.main.ev.fleet.node-1",
        "muster.main.ev.credit.red",
        "muster.main.ev.period",
        "muster.main.desired.node-1",
    ):
        with pytest.raises(nats.errors.TimeoutError):
            await jetstream.publish(subject, b"x")
    await _refuses_administration(connection, system)
    await connection.close()


async def test_a_reader_reads_all_and_publishes_nothing(nats_server: EmbeddedNats, system: Connection) -> None:
    """A projector can be run by anyone who may see everything."""
    connection = await connect(nats_server.login("reader"), name="reader")
    jetstream = connection.jetstream(timeout=0.5)
    assert (await jetstream.get_msg(EVENTS, seq=1, direct=True)).data == b"head"
    assert (await jetstream.stream_info(EVENTS)).state.messages == 5
    for subject in ("muster.main.ev.head", "muster.main.ask.red", "muster.main.moved", "$KV.LEASE.leader"):
        with suppress(nats.errors.TimeoutError):
            await jetstream.publish(subject, b"x")
    await _refuses_administration(connection, system)
    assert await stored(system) == UNTOUCHED
    await connection.close()


async def _refuses_administration(connection: Connection, system: Connection) -> None:
    whats = ("STREAM.DELETE", "STREAM.PURGE", "STREAM.UPDATE", "CONSUMER.CREATE")
    await _refuses(connection, system, *(f"{what}.{EVENTS}" for what in whats))


async def _refuses(connection: Connection, system: Connection, *requests: str) -> None:
    before = await stored(system)
    with structlog.testing.capture_logs() as lines:
        for request in requests:
            await connection.publish(f"$JS.API.{request}", b"{}", reply=connection.new_inbox())
        await until(lambda: len(lines) >= len(requests))
    assert [line["event"] for line in lines] == ["nats_permission_refused"] * len(requests)
    assert await stored(system) == before


async def test_who_is_admitted_later_connects_while_others_stay(
    nats_server: EmbeddedNats, nats_connection: Connection
) -> None:
    """A new node needs no restart: the server reads its users anew, and nobody is cut off."""
    with pytest.raises(Fault) as unknown:
        nats_server.login("agent-node-9")
    assert unknown.value.code == "user_unknown"
    client_id = nats_connection.client_id

    nats_server.admit(agents=[NodeId("node-9")], teams=[TeamId("green")])

    async with asyncio.timeout(5):
        for user in ("agent-node-9", "team-green"):
            while True:
                with suppress(Fault):  # the server has not read them yet
                    connection = await connect(nats_server.login(user), name=user)
                    break
            await connection.close()
    assert nats_connection.client_id == client_id
    assert nats_connection.is_connected


@pytest.mark.parametrize("name", ["control-1", "control", "a.b", "*", ">", "", "Ä", "a b", "x" * 25])
def test_a_node_name_that_is_no_token_of_its_own_is_refused(name: str) -> None:
    """A name becomes a part of subjects and permissions; a wildcard in it would be a right to everything."""
    with pytest.raises(Fault):
        principals.agent(SUBJECTS, NodeId(name))
    if not name.startswith("control"):
        with pytest.raises(Fault):
            principals.team(SUBJECTS, TeamId(name))
