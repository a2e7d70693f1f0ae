"""Requests are answered, a bounded number at a time, and none outlives the block."""

import asyncio
from itertools import islice

import pytest

from runtime.nats import Connection
from runtime.serve_requests import Served, ask, serving


async def echo(subject: str, payload: bytes) -> bytes:
    """The subject and the payload."""
    return subject.encode() + b" " + payload


async def test_requests_are_answered_while_the_block_runs(nats_connection: Connection) -> None:
    """With the subject that they came on; nobody answers after it."""
    async with serving(nats_connection, Served("a.*", "q", echo, b"busy"), Served("b", "q", echo, b"busy")):
        assert await ask(nats_connection, "a.x", b"1", within_s=5) == b"a.x 1"
        assert await ask(nats_connection, "b", b"2", within_s=5) == b"b 2"
    assert await ask(nats_connection, "b", b"3", within_s=5) is None


async def test_one_of_a_queue_answers(nats_connection: Connection) -> None:
    """However many serve it."""
    answered: list[bytes] = []

    async def note(_: str, payload: bytes) -> bytes:
        answered.append(payload)
        return payload

    served = Served("a", "q", note, b"busy")
    async with serving(nats_connection, served), serving(nats_connection, served):
        await asyncio.gather(*(ask(nats_connection, "a", b"%d" % n, within_s=5) for n in range(50)))
    assert sorted(answered) == sorted(b"%d" % n for n in range(50))


async def test_more_than_may_be_under_way_are_told(nats_connection: Connection) -> None:
    """At once, while the others are still being answered."""
    go = asyncio.Event()

    async def wait(_: str, __: bytes) -> bytes:
        await go.wait()
        return b"done"

    async with serving(nats_connection, Served("a", "q", wait, b"busy", at_once_max=2)):
        asked = [asyncio.create_task(ask(nats_connection, "a", b"", within_s=5)) for _ in range(5)]
        first = [await one for one in islice(asyncio.as_completed(asked), 3)]
        assert first == [b"busy"] * 3
        go.set()
        assert sorted([await task or b"" for task in asked]) == [b"busy"] * 3 + [b"done"] * 2


async def test_a_bug_in_an_answerer_ends_the_block(nats_connection: Connection) -> None:
    """What it raises is not lost."""

    async def fail(_: str, __: bytes) -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as caught:
        async with serving(nats_connection, Served("a", "q", fail, b"busy")):
            await ask(nats_connection, "a", b"", within_s=10)
    assert caught.group_contains(ZeroDivisionError)
