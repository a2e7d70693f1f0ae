"""The ways to a JetStream server: what is asked of it, and how nats-py carries that. `wire.py` is another way."""

import asyncio
import itertools
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

ASK_S: Final = 1.0  # for one answer of the server
GET_BYTES_MAX: Final = 8 << 20  # of payload in one read; a record above it still comes, alone
NO_MESSAGE: Final = 10037
NO_STREAM: Final = 10059


class NoAnswer(Exception):
    """No answer came: the server is away, or the stream has no leader."""


class NotSent(NoAnswer):
    """No answer came, and none will: nobody can have got what was asked."""


class Refusal(Exception):
    """The server said no."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{description} ({code})")
        self.code = code


class Raw(NamedTuple):
    """A record as stored."""

    subject: str
    sequence: int
    time: str  # of storing, RFC 3339
    payload: bytes
    batch: str = ""  # the batch that it was written in; known only where the leader was asked for this one record


class Standing(NamedTuple):
    """How a stream stands, as its leader knows."""

    created: str  # tells it from another of the same name; empty when there is none
    last: int  # sequence
    subjects: tuple[str, ...] = ()  # where it listens


class Way(Protocol):
    """A connection to the server."""

    @property
    def moved(self) -> asyncio.Event:
        """Set once the log has moved since this was asked; a new one each time."""
        ...

    async def start(self) -> None:
        """From here on `moved` is set by what comes."""
        ...

    async def ask(self, subject: str, body: bytes) -> bytes:
        """The answer of the server. Raises `NoAnswer`."""
        ...

    async def get(self, stream: str, query: bytes) -> list[Raw]:
        """The records that a direct get finds, such as `direct_get`; empty where there are none. Raises `NoAnswer`."""
        ...


async def ask(way: Way, subject: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The answer of the JetStream API below `$JS.API.`. Raises `Refusal` or `NoAnswer`."""
    data = await way.ask(f"$JS.API.{subject}", msgspec.json.encode(body) if body else b"")
    return answered(data)


def answered(data: bytes) -> dict[str, Any]:
    """What an answer says. Raises `Refusal`."""
    answer: dict[str, Any] = msgspec.json.decode(data)
    if error := answer.get("error"):
        raise Refusal(error.get("err_code", 0), error.get("description", ""))
    return answer


async def record_of(way: Way, stream: str, query: Mapping[str, Any]) -> Raw | None:
    """The record that the leader has for a query, such as `{"seq": 7}`; None where there is none. Raises `NoAnswer`."""
    try:
        message = (await ask(way, f"STREAM.MSG.GET.{stream}", query))["message"]
    except Refusal as refusal:
        if refusal.code == NO_MESSAGE:
            return None
        raise NoAnswer(str(refusal)) from refusal
    headers = b64decode(message.get("hdrs", "")).decode()
    batch = headers.partition("\r\nNats-Batch-Id: ")[2].partition("\r\n")[0]
    return Raw(message["subject"], message["seq"], message["time"], b64decode(message.get("data", "")), batch)


async def standing_of(way: Way, stream: str) -> Standing:
    """How the stream stands. Raises `NoAnswer`."""
    try:
        info = await ask(way, f"STREAM.INFO.{stream}")
    except Refusal as refusal:
        if refusal.code == NO_STREAM:
            return Standing("", 0)
        raise NoAnswer(str(refusal)) from refusal
    return Standing(info["created"], info["state"]["last_seq"], tuple(info["config"].get("subjects", ())))


def direct_get(sequence: int, count: int) -> bytes:
    """Asks for at most `count` records from `sequence` on."""
    return b'{"seq":%d,"batch":%d,"max_bytes":%d}' % (sequence, count, GET_BYTES_MAX)


async def request(
    nc: Client, subject: str, payload: bytes, *, headers: dict[str, str] | None = None, wait_s: float = ASK_S
) -> bytes:
    """The answer to a message. Raises `NotSent` where nobody can have got it, `NoAnswer` where somebody may."""
    try:
        return (await nc.request(subject, payload, timeout=wait_s, headers=headers)).data
    except (nats.errors.NoRespondersError, nats.errors.OutboundBufferLimitError) as error:
        raise NotSent(f"{subject}: {type(error).__name__}") from error
    except (nats.errors.Error, OSError) as error:
        raise NoAnswer(f"{subject}: {type(error).__name__}") from error


class Got(NamedTuple):
    """What has come of one direct get."""

    found: list[Raw]
    end: asyncio.Future[str]  # its status


class NatsWay:
    """The way through nats-py, which connects again by itself."""

    def __init__(self, nc: Client, moved: str = "") -> None:
        self.nc = nc
        self.moved = asyncio.Event()
        self._moved_subject = moved
        self._started: Subscription | None = None
        self._inbox = ""  # below it come the records of direct gets: one subscription for all of them
        self._listening = asyncio.Lock()
        self._gets: dict[str, Got] = {}
        self._numbers = itertools.count()

    async def start(self) -> None:
        """See `Way`."""
        if self._started is None and self._moved_subject:
            self._started = await self.nc.subscribe(self._moved_subject, cb=self._on_moved)

    async def _on_moved(self, _: Msg) -> None:
        moved, self.moved = self.moved, asyncio.Event()
        moved.set()

    async def ask(self, subject: str, body: bytes) -> bytes:
        """See `Way`."""
        return await request(self.nc, subject, body)

    async def get(self, stream: str, query: bytes) -> list[Raw]:
        """See `Way`."""
        number = str(next(self._numbers))
        got = self._gets[number] = Got([], asyncio.get_running_loop().create_future())
        try:
            reply = f"{await self._listen()}.{number}"
            await self.nc.publish(f"$JS.API.DIRECT.GET.{stream}", query, reply=reply)
            async with asyncio.timeout(ASK_S):
                status = await got.end
        except (nats.errors.Error, OSError, TimeoutError) as error:
            if got.found:
                return got.found  # the end of a read is no news; what is missing is asked for again
            raise NoAnswer(f"direct get: {type(error).__name__}") from error
        finally:
            del self._gets[number]
        return finished(got.found, status)

    async def _listen(self) -> str:
        async with self._listening:
            if not self._inbox:
                inbox = self.nc.new_inbox()
                # No limits: what comes was asked for, and is bounded by the request.
                await self.nc.subscribe(f"{inbox}.*", cb=self._take, pending_msgs_limit=0, pending_bytes_limit=0)
                self._inbox = inbox
        return self._inbox

    async def _take(self, message: Msg) -> None:
        got = self._gets.get(message.subject.rpartition(".")[2])
        headers = message.headers or {}
        if got is None or got.end.done():
            return  # too late
        if status := headers.get("Status"):
            got.end.set_result(status)
            return
        subject, sequence = headers["Nats-Subject"], int(headers["Nats-Sequence"])
        got.found.append(Raw(subject, sequence, headers["Nats-Time-Stamp"], message.data))


def finished(found: list[Raw], status: str) -> list[Raw]:
    """What a direct get gave, once its last message says how it ended. Raises `NoAnswer`."""
    if status in {"204", "404"} or found:  # the end of the read, nothing there yet
        return found
    raise NoAnswer(f"direct get: status {status}")
