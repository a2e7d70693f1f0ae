"""Reads what a stream stores on the subjects that a filter names, in order, a page at a time."""

import asyncio
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from runtime.fault import Fault

PAGE_MAX: Final = 500  # messages
PAGE_BYTES_MAX: Final = 4 << 20
WITHIN_S: Final = 3.0
NONE_LEFT: Final = frozenset({"204", "404"})  # the end of the page, nothing there


class Message(NamedTuple):
    """A message as stored."""

    sequence: int
    subject: str
    at: datetime
    headers: dict[str, str]
    payload: bytes


async def read_page(connection: Client, stream: str, subjects: str, *, after: int) -> list[Message]:
    """The next messages after a sequence on `subjects`, which may hold wildcards; empty where there are none yet.

    Raises `Fault` when the server does not answer.
    """
    found: list[Message] = []
    end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def take(message: Msg) -> None:
        headers = message.headers or {}
        if status := headers.get("Status"):
            if not end.done():
                end.set_result(status)
            return
        at = datetime.fromisoformat(headers["Nats-Time-Stamp"])
        found.append(Message(int(headers["Nats-Sequence"]), headers["Nats-Subject"], at, headers, message.data))

    query = {"seq": after + 1, "next_by_subj": subjects, "batch": PAGE_MAX, "max_bytes": PAGE_BYTES_MAX}
    inbox = connection.new_inbox()
    try:
        subscription = await connection.subscribe(inbox, cb=take, pending_msgs_limit=0, pending_bytes_limit=0)
        try:
            await connection.publish(f"$JS.API.DIRECT.GET.{stream}", msgspec.json.encode(query), reply=inbox)
            async with asyncio.timeout(WITHIN_S):
                status = await end
        finally:
            await subscription.unsubscribe()
    except (OSError, TimeoutError, nats.errors.Error) as error:
        if found:
            return found  # the rest is asked for again
        raise Fault("nats_away", f"Stream {stream} was not read: {error!r}.", "Is NATS running?") from error
    if not found and status not in NONE_LEFT:
        raise Fault("stream_refused", f"Stream {stream} was not read: status {status}.", "The NATS log says more.")
    return found
