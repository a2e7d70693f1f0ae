"""The logs that are held to the same answers: in memory, on one server, on three, and with either reader."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Final, cast

from events.base import (
    START,
    AccountId,
    AskId,
    Event,
    JobId,
    NodeEpoch,
    NodeId,
    Position,
    Recorded,
    RunId,
    Stretch,
    TeamId,
)
from events.chain import Chain, extended
from events.chapter import RollCause
from events.head import LeadershipTaken, LogFounded, RoundDecided
from events.job import JobAdmitted, JobCancelRequested, JobSpec, JobSubmitted
from events.log.append import JetStreamLog
from events.log.memory import MemoryLog
from events.log.port import Log, Reader, Roll, Rolled, Rolling
from events.log.streams import StreamSettings, found
from events.log.wire import WireReader
from events.node import ShareStarted
from events.policy import PolicySet
from events.queues import QueuesSet
from events.teller import GrantAsked
from runtime.nats import Connection, Login, connect

NOW: Final = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)
TEAM: Final = TeamId("red")
NODE: Final = NodeId("node-1")
WITHIN_S: Final = 20.0

Put = Callable[[str, bytes], Awaitable[None]]


@dataclass(frozen=True)
class Rig:
    """A founded log, a reader of it, and a way to put bytes onto it that no writer would."""

    log: Log
    reader: Reader
    put: Put
    rolling: Rolling

    async def chain(self) -> Chain:
        """The digest of all that is there."""
        return extended(Chain(), tuple(await read_to(self.reader, await self.reader.end())))

    async def roll(self, *, by: str = "", cause: RollCause = RollCause.ASKED) -> Rolled:
        """The next chapter is open."""
        return await self.rolling.roll(await self.chain(), Roll(log_id="x", at=NOW, cause=cause, by=by))


def taken(instance: str = "one") -> LeadershipTaken:
    """A decision record that says only who leads."""
    return LeadershipTaken(at=NOW, instance=instance, version="1")


def decided(*jobs: str) -> list[Event]:
    """A round that admitted these jobs."""
    record = RoundDecided(at=NOW, epoch=START, decided_at=START, events=len(jobs))
    return [record, *(JobAdmitted(at=NOW, team=TEAM, job_id=JobId(job)) for job in jobs)]


def submitted(job: str) -> JobSubmitted:
    """A job asked for, for the first time."""
    return JobSubmitted(
        at=NOW,
        team=TEAM,
        job_id=JobId(job),
        spec=JobSpec(name="x", command=("true",), gpus=1),
        key=job,
        request_hash="0",
    )


def grant(ask: str) -> GrantAsked:
    """Credits asked for, for the first time."""
    return GrantAsked(
        at=NOW, account=AccountId("red"), ask_id=AskId(ask), key=ask, request_hash="0", amount_micro=1_000_000
    )


def cancel(job: str) -> JobCancelRequested:
    """A fact that assumes nothing."""
    return JobCancelRequested(at=NOW, team=TEAM, job_id=JobId(job))


def started(run: str) -> ShareStarted:
    """A report of a node."""
    return ShareStarted(at=NOW, node_id=NODE, node_epoch=NodeEpoch(START), run_id=RunId(run))


def policy(replaces: Position | None) -> PolicySet:
    """A document over the one at that position."""
    return PolicySet(at=NOW, replaces=replaces)


def queues(replaces: Position | None) -> QueuesSet:
    """Another document over the one at that position."""
    return QueuesSet(at=NOW, replaces=replaces)


@asynccontextmanager
async def memory_rig() -> AsyncIterator[Rig]:
    """A log in memory, whose clock moves on by a millisecond at a time."""
    ticks = count()
    log = MemoryLog("main", lambda: NOW + timedelta(milliseconds=next(ticks)))
    await log.append([LogFounded(at=NOW, log_id="m", cell="main")], after=START)

    async def put(subject: str, payload: bytes) -> None:
        log.write_raw(subject, payload)

    yield Rig(log, log, put, log)


@asynccontextmanager
async def server_rig(login: Login, reader: str, replicas: int = 1) -> AsyncIterator[Rig]:
    """A log on JetStream, read by `nats` or by `wire`."""
    async with AsyncExitStack() as stack:
        connection = await connected(login, stack)
        await found(connection, StreamSettings(replicas=replicas))
        log = JetStreamLog(connection)

        async def put(subject: str, payload: bytes) -> None:
            await connection.request(f"muster.main.ev.{subject}", payload, timeout=5)

        yield Rig(log, wired(login, stack) if reader == "wire" else log, put, log)


async def connected(login: Login, stack: AsyncExitStack) -> Connection:
    """A connection that is closed with the stack."""
    connection = await connect(login, name="test", lost=lambda _: None)
    stack.push_async_callback(connection.close)
    return connection


def wired(login: Login, stack: AsyncExitStack) -> WireReader:
    """A reader on its own socket that is closed with the stack."""
    reader = WireReader(login.urls, user=login.user, password=login.password, inbox_prefix=login.inbox_prefix)
    stack.callback(reader.close)
    return reader


async def read_to(reader: Reader, end: Position, *, after: Position = START) -> list[Recorded]:
    """All records after a position, up to another, once they are there."""
    records: list[Recorded] = []
    if end <= after:
        return records
    async with asyncio.timeout(WITHIN_S), aclosing(following(reader, after)) as stretches:
        async for stretch in stretches:
            records += stretch
            if records and records[-1].position >= end:
                break
    return records


def following(reader: Reader, after: Position = START) -> AsyncGenerator[Stretch, None]:
    """What following gives, to be closed."""
    return cast(AsyncGenerator[Stretch, None], reader.follow(after))
