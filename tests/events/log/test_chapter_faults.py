"""What is in the log when answers are lost while a chapter is closed, and when chapters do not belong together."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import nats.errors
import pytest
from nats.aio.msg import Msg

from events.base import Event, Position, position_of
from events.chain import Chain, extended
from events.chapter import ChapterClosed, ChapterOpened
from events.codec import Stamp
from events.log import roll
from events.log.append import JetStreamLog
from events.log.port import Broken, Conflict, Roll
from events.log.server import Standing, Way, standing_of
from events.log.streams import StreamSettings, check, found, wanted
from runtime.embedded.nats import EmbeddedNats
from runtime.nats import Connection
from tests.events.log.rigs import NOW, decided, read_to, started, submitted, taken, wired
from tests.events.log.test_streams import create

FIRST = position_of(1, 1)
ROLL = Roll(log_id="x", at=NOW)


class Losing:
    """A connection that loses the next commit, or its answer; a chapter is closed before anyone notices."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.loses = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    async def request(self, subject: str, payload: bytes, **how: Any) -> Msg:
        """See `Client`."""
        last = (
            "Nats-Expected-Stream" in (how.get("headers") or {}) and "Nats-Expected-Last-Sequence" not in how["headers"]
        )
        if not last or not self.loses:
            return await self.connection.request(subject, payload, **how)
        if self.loses == "answer":
            await self.connection.request(subject, payload, **how)
        self.loses = ""
        await rolled(JetStreamLog(self.connection))
        raise nats.errors.TimeoutError


async def rolled(log: JetStreamLog) -> Position:
    """The next chapter is open: the position of its first record."""
    chain = extended(Chain(), tuple(await read_to(log, await log.end())))
    return (await log.roll(chain, ROLL)).opened


@pytest.fixture
async def losing(nats_connection: Connection) -> Losing:
    """A founded log, over a connection that loses what a test says."""
    await found(nats_connection, StreamSettings())
    return Losing(nats_connection)


@pytest.mark.parametrize("facts", [[submitted("j1")], [started("j1-1")], [started("j1-1"), submitted("j1")]])
@pytest.mark.parametrize("loses", ["ask", "answer"])
async def test_a_fact_that_no_answer_came_for_is_there_once(losing: Losing, loses: str, facts: list[Event]) -> None:
    """In the chapter that it was meant for where it came there, else in the next: once that is closed, it is known."""
    log = JetStreamLog(losing)  # type: ignore[arg-type]  # as good as one
    await log.record([started("before")])
    losing.loses = loses

    end = await log.record(facts)

    records = await read_to(log, await log.end())
    assert [r.event for r in records if r.position > end - len(facts)][: len(facts)] == facts
    assert sum(r.event in facts for r in records) == len(facts)
    assert end >> 40 == (2 if loses == "ask" else 1)


@pytest.mark.parametrize("loses", ["ask", "answer"])
async def test_a_decision_that_no_answer_came_for_is_there_or_is_refused(losing: Losing, loses: str) -> None:
    """The head has gone on to the next chapter: what was not written is decided anew."""
    log = JetStreamLog(losing)  # type: ignore[arg-type]  # as good as one
    await log.record([started("before")])
    losing.loses = loses

    if loses == "answer":
        assert await log.append(decided("j1"), after=FIRST) == FIRST + 3
    else:
        with pytest.raises(Conflict):
            await log.append(decided("j1"), after=FIRST)
    heads = [r for r in await read_to(log, await log.end()) if r.subject == "head"]
    assert len(heads) == (3 if loses == "answer" else 2)


async def test_a_closing_over_an_end_that_was_read_too_early_is_refused(
    losing: Losing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was under way when the chapter was shut comes before its last record, and is counted and proved."""
    log = JetStreamLog(losing.connection)
    await log.record([started("a"), started("b"), started("late")])
    asked = 0

    async def early(way: Way, stream: str) -> Standing:
        nonlocal asked
        asked += 1
        standing = await standing_of(way, stream)
        return standing._replace(last=standing.last - 1) if asked == 1 else standing

    monkeypatch.setattr(roll, "standing_of", early)
    opened = await log.roll(Chain(), ROLL)

    records = await read_to(log, opened.opened)
    closing, opening = records[-2].event, records[-1].event
    assert asked > 1
    assert isinstance(closing, ChapterClosed)
    assert isinstance(opening, ChapterOpened)
    assert (closing.records, closing.digest) == (4, extended(Chain(), tuple(records[:-2])).digest.hex())
    assert opening.digest == extended(Chain(), tuple(records[:-1])).digest.hex()


@pytest.mark.parametrize("reader", ["nats", "wire"])
async def test_a_chapter_of_another_log_is_not_read_on_into(
    nats_server: EmbeddedNats, nats_connection: Connection, reader: str
) -> None:
    """It does not say that it goes on from where this one ended; a start says so too."""
    await found(nats_connection, StreamSettings())
    log = JetStreamLog(nats_connection)
    roller = roll.Roller(nats_connection, log, log._pen)
    await roller.shut(1)
    chain = await roller.close(1, Chain(), ROLL)
    await create(nats_connection, wanted(StreamSettings())[0] | {"name": "EVENTS_0002"})
    await nats_connection.request("muster.main.ev.head", log.codec.encode(taken(), Stamp("x")))
    async with AsyncExitStack() as stack:
        reads = wired(nats_server.login("reader"), stack) if reader == "wire" else log
        with pytest.raises(Broken) as broken:
            await read_to(reads, position_of(2, 1))
        with pytest.raises(Broken) as from_there:
            await read_to(reads, position_of(2, 1), after=chain.position)
    with pytest.raises(Broken) as started_on:
        await check(nats_connection, StreamSettings())
    assert {fault.value.code for fault in (broken, from_there, started_on)} == {"log_unlinked"}


async def test_any_number_find_the_newest_chapter_at_once(nats_connection: Connection) -> None:
    """None of them goes further than the log does because another did."""
    await found(nats_connection, StreamSettings())
    for _ in range(3):
        await rolled(JetStreamLog(nats_connection))
    log = JetStreamLog(nats_connection)
    assert set(await asyncio.gather(*(log.end() for _ in range(8)))) == {position_of(4, 1)}
