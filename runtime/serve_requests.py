"""Answers requests over NATS: a bounded number at a time, in a queue group, each with its own subject in view."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from runtime.logging import get_logger

logger = get_logger(__name__)

AT_ONCE_MAX: Final = 4_000  # requests under way on one subject; more are told that it is busy

Answerer = Callable[[str, bytes], Awaitable[bytes]]


class Served(NamedTuple):
    """What is answered: requests on `subject`, shared by all of `queue`; `busy` is the answer when too many wait."""

    subject: str
    queue: str
    answer: Answerer
    busy: bytes
    at_once_max: int = AT_ONCE_MAX


@asynccontextmanager
async def serving(connection: Client, *served: Served) -> AsyncIterator[None]:
    """Requests are answered until the block is left; those under way then are cancelled.

    An answerer turns everything that can be wrong with a request into an answer: what it raises ends the block.
    """
    async with asyncio.TaskGroup() as group:
        tasks: set[asyncio.Task[None]] = set()
        subscriptions = [
            await connection.subscribe(one.subject, queue=one.queue, cb=_taking(one, group, tasks)) for one in served
        ]
        await connection.flush()
        try:
            yield
        finally:
            for subscription in subscriptions:
                if not connection.is_closed:
                    await subscription.unsubscribe()
            for task in list(tasks):
                task.cancel()


async def ask(connection: Client, subject: str, payload: bytes, *, within_s: float) -> bytes | None:
    """The answer to a request; None when nobody listens, or none came in time."""
    try:
        reply = await connection.request(subject, payload, timeout=within_s)
    except (OSError, TimeoutError, nats.errors.Error):
        return None
    return reply.data


def _taking(
    served: Served, group: asyncio.TaskGroup, tasks: set[asyncio.Task[None]]
) -> Callable[[Msg], Awaitable[None]]:
    under_way: set[asyncio.Task[None]] = set()

    async def take(message: Msg) -> None:
        if not message.reply:
            return  # nobody waits for an answer, so nobody could know what became of it
        if len(under_way) >= served.at_once_max:
            await _respond(message, served.busy)
            return
        task = group.create_task(_answer(served.answer, message))
        for kept in (under_way, tasks):
            kept.add(task)
            task.add_done_callback(kept.discard)

    return take


async def _answer(answer: Answerer, message: Msg) -> None:
    await _respond(message, await answer(message.subject, message.data))


async def _respond(message: Msg, payload: bytes) -> None:
    try:
        await message.respond(payload)
    except (OSError, nats.errors.Error) as error:  # who asked sees no answer, and asks again
        logger.warning("answer_not_sent", subject=message.subject, cause=type(error).__name__)
