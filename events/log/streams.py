"""The streams of a cell: created and founded when they are not there, and checked at every start."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from events.base import START, Position, position_of
from events.chapter import ChapterClosed
from events.codec import Codec
from events.head import LogFounded
from events.log.batch import FENCE, PLAIN
from events.log.follow import JetStreamReader, linked
from events.log.port import BATCH_MAX, Broken, Unfit, Unknown
from events.log.server import NatsWay, NoAnswer, Raw, Refusal, answered, ask, record_of, request
from events.log.writing import Pen
from events.subjects import CELL_DEFAULT, DESIRED_STREAM, HEARTBEATS_STREAM, LOGS_STREAM, Subjects, events_stream

LEASE_STREAM: Final = "KV_LEASE"  # as JetStream names the stream of a bucket
FOUND_S: Final = 30.0  # for a cluster to choose the leaders of new streams
FOUND_EVERY_S: Final = 0.1
SERVER_MIN: Final = (2, 12)  # the first with atomic batches
LEVEL_MIN: Final = 2  # of the JetStream API: likewise
TRIAL_S: Final = 10.0
SERVERS_S: Final = 3.0
BATCH_HINT: Final = f"Set jetstream.limits.batch.max_msgs to {BATCH_MAX} on every server."
NEVER: Final = str(1 << 53)  # a sequence that no stream has reached
UNFINISHED: Final = "musterbook.unfinished"  # metadata of the first chapter, while a copy of the log is being put back

MOVED: Final = 10071
NAME_TAKEN: Final = 10058  # by a stream with other settings
NO_STREAM: Final = 10059

NS_PER_S: Final = 1_000_000_000
UNSET: Final[tuple[Any, ...]] = (
    None,
    0,
    -1,
    False,
    "",
    "none",
    "default",
    {},
    [],
)  # servers differ in which of these they say


class StreamSettings(NamedTuple):
    """What an operator may choose of a cell's streams."""

    cell: str = CELL_DEFAULT
    replicas: int = 1  # 3 in production
    logs_bytes: int = 4 << 30  # of ranks' output, all in all; the oldest goes first
    logs_age_s: int = 7 * 24 * 3600


class Founded(NamedTuple):
    """What a check found."""

    log_id: str
    cell: str
    at: datetime  # when it was founded
    end: Position
    server: str  # version


async def found(
    nc: Client, settings: StreamSettings, *, log_id: Callable[[], str] = lambda: uuid4().hex, trial: bool = False
) -> Founded:
    """The cell has its streams, and its log a first record. Several may do this at once, and again at every start.

    A server that is slow to answer is asked again. `trial`: see `check`.
    Raises `Unfit` where a stream is there with other settings, `Unknown` when the server did not answer in time.
    """
    way = NatsWay(nc)
    try:
        async with asyncio.timeout(FOUND_S):
            for config in wanted(settings):
                await create(way, config)
            await _first_record(nc, settings, log_id)
            while True:
                with suppress(Unknown):
                    return await check(nc, settings, trial=trial)
                await asyncio.sleep(FOUND_EVERY_S)
    except TimeoutError as error:
        raise Unknown(
            f"The streams were not there after {FOUND_S:.0f} s.",
            code="log_away",
            hint="Are enough servers up, and does every stream have a leader?",
        ) from error


async def check(nc: Client, settings: StreamSettings, *, trial: bool = False) -> Founded:
    """What the log is, now that the server and all streams are as they must be.

    With `trial`, also that every batch of `BATCH_MAX` is taken: one is sent that must be refused for another reason,
    so nothing is written. That takes permission to publish on `head`, and a quarter of a second.
    Raises `Unfit`, `Broken` when the log does not begin as one, `Unknown` when the server did not answer.
    """
    way = NatsWay(nc)
    try:
        _fit_server(nc, await ask(way, "INFO"))
        first, *others = wanted(settings)
        reader = JetStreamReader(nc, settings.cell)
        newest = await reader.chapters.newest()
        for chapter in range(1, newest.chapter + 1):
            takes = newest.takes and chapter == newest.chapter
            subjects = first["subjects"] if takes else [reader.subjects.closing(chapter)]
            await _fit_stream(way, first | {"name": events_stream(chapter), "subjects": subjects})
            await _fit_link(way, reader, chapter)
        for config in others:
            await _fit_stream(way, config)
        if trial and newest.takes:
            await _fit_batches(nc, settings)
        founding = await record_of(way, events_stream(1), {"seq": 1})
    except (NoAnswer, Refusal) as error:
        raise Unknown(f"The server did not say how the log is: {error}.", code="log_away") from error
    return _founded(founding, settings, position_of(newest.chapter, newest.last), _version(nc))


async def check_servers(system: Client, servers: int = 1) -> None:
    """Every server writes to disk before it acknowledges, and takes batches of `BATCH_MAX`.

    Only the system account may ask: `system` is connected to it; `servers` is how many must answer. Who has no such
    connection reads `sync_always` and `max_batch_size` from `/jsz` of each server, or trusts its configuration.
    Raises `Unfit`, or `Unknown` when fewer answered.
    """
    answers: list[dict[str, Any]] = []
    complete = asyncio.Event()

    async def take(message: Msg) -> None:
        answers.append(msgspec.json.decode(message.data))
        if len(answers) >= servers:
            complete.set()

    inbox = system.new_inbox()
    subscription = await system.subscribe(inbox, cb=take)
    try:
        await system.publish("$SYS.REQ.SERVER.PING.JSZ", b'{"config":true}', reply=inbox)
        async with asyncio.timeout(SERVERS_S):
            await complete.wait()
    except TimeoutError as error:
        raise Unknown(f"{len(answers)} of {servers} servers said how they are.", code="log_away") from error
    finally:
        await subscription.unsubscribe()
    for answer in answers:
        name, data = answer["server"]["name"], answer["data"]
        if not data.get("config", {}).get("sync_always"):
            hint = "Set jetstream.sync_interval to always: else what was acknowledged is lost with the power."
            raise Unfit(f"Server {name} acknowledges before it writes.", code="server_unsynced", hint=hint)
        if (most := data.get("limits", {}).get("max_batch_size", 0)) < BATCH_MAX:
            raise Unfit(f"Server {name} takes {most} events at once.", code="batch_limit", hint=BATCH_HINT)


def wanted(settings: StreamSettings) -> list[dict[str, Any]]:
    """The settings of all streams of a new cell, as the JetStream API has them; that of the log's first chapter first."""
    cell = f"muster.{settings.cell}"
    file = {"storage": "file", "retention": "limits", "num_replicas": settings.replicas, "allow_direct": True}
    # Bookkeeping that the log makes again: no fsync each. The server offers that for one replica only.
    lazy = file | ({"persist_mode": "async"} if settings.replicas == 1 else {})
    events: dict[str, Any] = {"name": events_stream(1), "subjects": [f"{cell}.ev.>"], "discard": "new"}
    heartbeats: dict[str, Any] = {"name": HEARTBEATS_STREAM, "subjects": [f"{cell}.hb.*"], "discard": "old"}
    desired: dict[str, Any] = {"name": DESIRED_STREAM, "subjects": [f"{cell}.desired.*"], "discard": "old"}
    logs: dict[str, Any] = {"name": LOGS_STREAM, "subjects": [f"{cell}.log.>"], "discard": "old"}
    lease: dict[str, Any] = {"name": LEASE_STREAM, "subjects": ["$KV.LEASE.>"], "discard": "new"}
    return [
        events | file | {"allow_atomic": True, "deny_delete": True, "deny_purge": True},
        heartbeats | file | {"storage": "memory", "max_msgs_per_subject": 3, "max_age": 600 * NS_PER_S},
        desired | lazy | {"max_msgs_per_subject": 1},
        logs | lazy | {"max_bytes": settings.logs_bytes, "max_age": settings.logs_age_s * NS_PER_S},
        lease | file | {"max_msgs_per_subject": 1, "max_age": 3600 * NS_PER_S, "allow_rollup_hdrs": True}
        | {"deny_delete": True},
    ]  # fmt: skip


async def create(way: NatsWay, config: Mapping[str, Any]) -> None:
    """The stream is there, ours or, where the name is taken, one that a check then judges. Raises `Unfit`."""
    while True:
        try:
            await ask(way, f"STREAM.CREATE.{config['name']}", config)
        except Refusal as refusal:
            if refusal.code == NAME_TAKEN:
                return
            if refusal.code < 10_000 or refusal.code in {10008, 10005, 10074}:  # not up yet, or too few servers
                await asyncio.sleep(FOUND_EVERY_S)
                continue
            raise Unfit(f"Stream {config['name']} cannot be: {refusal}.", code="stream_refused") from refusal
        except NoAnswer:
            await asyncio.sleep(FOUND_EVERY_S)
        else:
            return


async def _first_record(nc: Client, settings: StreamSettings, log_id: Callable[[], str]) -> None:
    """The log has a first record: `LogFounded`, ours or another's."""
    way = NatsWay(nc)
    stream = events_stream(1)
    while True:
        try:
            info = await ask(way, f"STREAM.INFO.{stream}")
            _assert_finished(info["config"])
            if info["state"]["last_seq"]:
                return
            # The server's own time, as the founder's clock has no part in it.
            event = LogFounded(at=datetime.fromisoformat(info["created"]), log_id=log_id(), cell=settings.cell)
            writing = Pen(Subjects(settings.cell), Codec(), "musterbook").decided([event], START)[0]
            headers = PLAIN | {FENCE: "0", "Nats-Expected-Last-Sequence": "0"}  # the first of all, not of `head` only
            answered(await request(nc, writing.subject, writing.payload, headers=headers))
        except Refusal as refusal:
            if refusal.code == MOVED:
                return
            await asyncio.sleep(FOUND_EVERY_S)
        except NoAnswer:
            await asyncio.sleep(FOUND_EVERY_S)
        else:
            return


def _version(nc: Client) -> str:
    version = nc.connected_server_version
    return f"{version.major}.{version.minor}.{version.patch}"


def _fit_server(nc: Client, info: Mapping[str, Any]) -> None:
    """Raises `Unfit` unless the server has what the log is built on."""
    version = nc.connected_server_version
    level = info.get("api", {}).get("level", 0)
    if (version.major, version.minor) < SERVER_MIN or level < LEVEL_MIN:
        raise Unfit(
            f"nats-server {_version(nc)} with API level {level} has no atomic batches.",
            code="server_old",
            hint="Run nats-server 2.15 or later.",
        )


async def _fit_stream(way: NatsWay, config: Mapping[str, Any]) -> None:
    """Raises `Unfit` unless the stream is as wanted."""
    name = config["name"]
    try:
        actual = (await ask(way, f"STREAM.INFO.{name}"))["config"]
    except Refusal as refusal:
        if refusal.code != NO_STREAM:
            raise
        if config["storage"] == "memory":
            return  # a server that was restarted has it no more; beats travel all the same, founding makes it again
        hint = "Found the log first: `muster up` does so."
        raise Unfit(f"There is no stream {name}.", code="stream_missing", hint=hint) from refusal
    _assert_finished(actual)
    if differing := differences(config, actual):
        raise Unfit(
            f"Stream {name} is not as it must be: {'; '.join(differing)}.",
            code="stream_unfit",
            hint="Change it with `nats stream edit`, or start with an empty store.",
        )


def _assert_finished(config: Mapping[str, Any]) -> None:
    """Raises `Unfit` where the stream is of a copy of which not all was put back: what is there is no log."""
    if UNFINISHED in (config.get("metadata") or {}):
        raise Unfit(
            "A copy of the log is being put back, or was in part.",
            code="restore_unfinished",
            hint="Repeat muster restore: it begins anew.",
        )


def differences(config: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """What of a stream's settings is not as wanted, one phrase each. Servers leave out, or fill in, what is unset."""
    own = {"metadata", "duplicate_window", "compression"}  # the server's, or of no consequence
    keys = sorted((config.keys() | actual.keys()) - own)
    pairs = [(key, config.get(key), actual.get(key)) for key in keys]
    return [
        f"{key} is {msgspec.json.encode(have).decode()}, not {msgspec.json.encode(want).decode()}"
        for key, want, have in pairs
        if want != have and not (want in UNSET and have in UNSET)
    ]


async def _fit_link(way: NatsWay, reader: JetStreamReader, chapter: int) -> None:
    """Raises `Broken` unless the chapter begins where the one before it ended. What they hold is not looked at."""
    if chapter == 1:
        return
    stream = events_stream(chapter - 1)
    end = (await ask(way, f"STREAM.INFO.{stream}"))["state"]["last_seq"]
    last, first = [await reader.read(position) for position in (position_of(chapter - 1, end), position_of(chapter, 1))]
    if last is None or not isinstance(last.event, ChapterClosed) or first is None:
        raise Broken(
            f"Chapter {chapter - 1} does not end with its closing.",
            code="log_unlinked",
            hint="Another program wrote to its stream, or it was restored in part.",
        )
    linked(last.position, first)


async def _fit_batches(nc: Client, settings: StreamSettings) -> None:
    """Raises `Unfit` unless a batch of `BATCH_MAX` is refused only because of what it expects, which is never so."""
    subject = Subjects(settings.cell).head
    headers = {"Nats-Batch-Id": f"trial-{uuid4().hex}", "Nats-Batch-Sequence": "1"}
    try:
        first = await request(nc, subject, b"", headers=headers | {"Nats-Expected-Last-Sequence": NEVER})
        if first:
            answered(first)
        for n in range(2, BATCH_MAX):
            await nc.publish(subject, b"", headers=headers | {"Nats-Batch-Sequence": str(n)})
            if not n % 256:
                await asyncio.sleep(0)
        last = headers | {"Nats-Batch-Sequence": str(BATCH_MAX), "Nats-Batch-Commit": "1"}
        answered(await request(nc, subject, b"", headers=last, wait_s=TRIAL_S))
    except Refusal as refusal:
        if refusal.code == MOVED:
            return
        raise Unfit(
            f"The server does not take {BATCH_MAX} events at once: {refusal}.",
            code="batch_limit",
            hint=BATCH_HINT,
        ) from refusal
    raise AssertionError("a batch went through that expected what is never so")


def _founded(first: Raw | None, settings: StreamSettings, end: Position, server: str) -> Founded:
    """What the first record says. Raises `Broken` when it is not that of a log of this cell."""
    subjects = Subjects(settings.cell)
    event = None
    if first is not None:
        event, _ = Codec().decode(first.subject.removeprefix(subjects.events_prefix), first.payload)
    if first is None or not isinstance(event, LogFounded) or event.cell != settings.cell:
        raise Broken(
            "The log does not begin with its founding." if first else "The log is empty.",
            code="log_unfounded",
            hint="Another program wrote to the stream, or it was restored in part.",
        )
    return Founded(event.log_id, event.cell, datetime.fromisoformat(first.time), end, server)
