"""Copies of whole JetStream streams: as the server itself saves and restores them, sequences and times included.

Source: NATS ADR-1 (JetStream JSON API), `io.nats.jetstream.api.v1.stream_snapshot_request` and `…_restore_request`.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from runtime.fault import Fault

CHUNK_BYTES: Final = 256 * 1024  # of a copy that is made
# Of one that is put back: the server stores each message by itself, and gives up on a piece that takes it 5 s. Packed,
# and with a disk that has each message before the next, this much is some hundred messages.
PIECE_BYTES: Final = 4 * 1024
ANSWER_S: Final = 30.0
CHUNK_S: Final = 30.0  # for the next piece of a stream: one of many gigabytes is read from the disk meanwhile
STREAM_NOT_FOUND: Final = 10059
NAME_IN_USE: Final = 10058
SLOW_HINT: Final = (
    "The NATS log says more. If its disks are slow: start it without sync_interval: always, and try again."
)


class Saved(NamedTuple):
    """What a stream was when it was saved; given back with its bytes, it is that stream again."""

    config: dict[str, Any]
    state: dict[str, Any]

    @property
    def last(self) -> int:
        """The sequence of its last message."""
        return int(self.state.get("last_seq", 0))


@asynccontextmanager
async def saving(connection: Client, stream: str) -> AsyncIterator[tuple[Saved, AsyncIterator[bytes]]]:
    """What the stream is, and its bytes, to be read to the end. Writing to it goes on. Raises `Fault`."""
    pieces: asyncio.Queue[Msg] = asyncio.Queue()
    inbox = connection.new_inbox()
    subscription = await connection.subscribe(inbox, cb=pieces.put, pending_msgs_limit=0, pending_bytes_limit=0)
    try:
        wanted = {"deliver_subject": inbox, "chunk_size": CHUNK_BYTES, "no_consumers": True, "jsck": False}
        answer = await _ask(connection, f"STREAM.SNAPSHOT.{stream}", wanted)
        yield Saved(answer["config"], answer["state"]), _pieces(stream, pieces)
    finally:
        with suppress(OSError, nats.errors.Error):
            await subscription.unsubscribe()


async def _pieces(stream: str, pieces: asyncio.Queue[Msg]) -> AsyncIterator[bytes]:
    while True:
        try:
            async with asyncio.timeout(CHUNK_S):
                piece = await pieces.get()
        except TimeoutError as error:
            raise _away(f"Stream {stream} stopped in the middle of its copy") from error
        if not piece.data:
            status = (piece.headers or {}).get("Status", "")
            if status and not status.startswith("2"):
                raise Fault("stream_not_copied", f"Stream {stream} was not copied: {piece.headers}.", "Try again.")
            return
        yield piece.data
        if piece.reply:
            await piece.respond(b"")  # the next may come


async def restored(connection: Client, saved: Saved, pieces: AsyncIterable[bytes]) -> int:
    """The last sequence of the stream, which is there as it was saved. Raises `Fault`, also where one is there already.

    The server takes the pieces into the stream itself: who stops in between leaves a part of it, under its name.
    """
    stream = str(saved.config["name"])
    answer = await _ask(connection, f"STREAM.RESTORE.{stream}", {"config": saved.config, "state": saved.state})
    subject = str(answer["deliver_subject"])
    try:
        async for piece in pieces:
            for start in range(0, len(piece), PIECE_BYTES):
                reply = await connection.request(subject, piece[start : start + PIECE_BYTES], timeout=CHUNK_S)
                if reply.data:
                    _answered(reply.data, f"Stream {stream}", SLOW_HINT)
        final = await connection.request(subject, b"", timeout=ANSWER_S)
    except (OSError, TimeoutError, nats.errors.Error) as error:
        raise _away(f"Stream {stream} stopped in the middle of its restoring") from error
    return int(_answered(final.data, f"Stream {stream}")["state"]["last_seq"])


async def config_of(connection: Client, stream: str) -> dict[str, Any]:
    """The settings of the stream. Raises `Fault`."""
    config: dict[str, Any] = (await _ask(connection, f"STREAM.INFO.{stream}", {}))["config"]
    return config


async def configure(connection: Client, config: dict[str, Any]) -> None:
    """The stream that is named in the settings has them. Raises `Fault`."""
    await _ask(connection, f"STREAM.UPDATE.{config['name']}", config)


async def delete(connection: Client, stream: str) -> None:
    """The stream is gone, and all that it held. Raises `Fault`."""
    await _ask(connection, f"STREAM.DELETE.{stream}", {})


async def names(connection: Client, prefix: str) -> list[str]:
    """The streams whose names begin so, in order. Raises `Fault`."""
    answer = await _ask(connection, "STREAM.NAMES", {})
    return sorted(name for name in answer.get("streams") or () if name.startswith(prefix))


async def _ask(connection: Client, what: str, request: dict[str, Any]) -> dict[str, Any]:
    try:
        reply = await connection.request(f"$JS.API.{what}", msgspec.json.encode(request), timeout=ANSWER_S)
    except (OSError, TimeoutError, nats.errors.Error) as error:
        raise _away(f"{what} was not answered") from error
    return _answered(reply.data, what)


def _answered(data: bytes, what: str, hint: str = "The NATS log says more.") -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.json.decode(data) if data else {}
    if error := answer.get("error"):
        code = {STREAM_NOT_FOUND: "no_stream", NAME_IN_USE: "stream_exists"}.get(error.get("err_code", 0))
        raise Fault(code or "stream_refused", f"{what}: {error.get('description')}.", hint)
    return answer


def _away(sentence: str) -> Fault:
    return Fault("nats_away", f"{sentence}.", "Is NATS running, and may this user manage streams?")
