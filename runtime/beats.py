"""Heartbeats over NATS: core messages that nobody waits for. A lost one is a beat not heard, which is what it means."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg


@asynccontextmanager
async def hearing(connection: Client, subject: str, heard: Callable[[str, bytes], None]) -> AsyncIterator[None]:
    """`heard(subject, payload)` is called for every message on `subject` until the block is left."""

    async def take(message: Msg) -> None:
        heard(message.subject, message.data)

    subscription = await connection.subscribe(subject, cb=take)
    await connection.flush()
    try:
        yield
    finally:
        if not connection.is_closed:
            with suppress(OSError, nats.errors.Error):
                await subscription.unsubscribe()


async def beat(connection: Client, subject: str, payload: bytes) -> None:
    """One message was sent, or could not be: both are fine."""
    if connection.is_connected:  # a beat kept for later would tell of a life that may be over by then
        with suppress(OSError, nats.errors.Error):
            await connection.publish(subject, payload)
