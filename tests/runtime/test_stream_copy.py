"""Copies of streams: the same sequences, times and headers, in other servers; and what is refused."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from events.log.append import JetStreamLog
from events.log.streams import StreamSettings, found
from runtime.embedded.nats import EmbeddedNats
from runtime.fault import Fault
from runtime.nats import Connection, connect
from runtime.stored_messages import Message, read_page
from runtime.stream_copy import Saved, names, restored, saving
from tests.events.log.rigs import started

STREAM = "EVENTS_0001"


async def copied(connection: Connection) -> tuple[Saved, list[bytes]]:
    """The stream, with its bytes."""
    async with saving(connection, STREAM) as (saved, pieces):
        return saved, [piece async for piece in pieces]


async def given(pieces: list[bytes]) -> AsyncIterator[bytes]:
    """These bytes."""
    for piece in pieces:
        yield piece


async def stored(connection: Connection) -> list[Message]:
    """All messages of the stream."""
    found: list[Message] = []
    while page := await read_page(connection, STREAM, ">", after=found[-1].sequence if found else 0):
        found += page
    return [one._replace(headers={k: v for k, v in one.headers.items() if k != "Nats-Num-Pending"}) for one in found]


async def test_a_stream_is_the_same_in_other_servers(
    nats_server: EmbeddedNats, nats_connection: Connection, tmp_path: Path
) -> None:
    """Of several pieces, while it is written to: what came before the copy began is in it."""
    await found(nats_connection, StreamSettings())
    log = JetStreamLog(nats_connection)
    for n in range(10):
        await log.record([started(f"{n}-{k}-{'x' * 400}") for k in range(100)])
    saved, pieces = await copied(nats_connection)
    await log.record([started("later")])
    before = await stored(nats_connection)

    other = EmbeddedNats(tmp_path / "other")
    await other.start()
    connection = await connect(other.login("system"), name="test")
    try:
        assert await names(connection, "EVENTS_") == []
        assert await restored(connection, saved, given(pieces)) == saved.last == len(before) - 1
        assert await names(connection, "EVENTS_") == [STREAM]
        assert await stored(connection) == before[:-1]
        with pytest.raises(Fault, match="EVENTS_0001") as refused:
            await restored(connection, saved, given(pieces))
        assert refused.value.code in {"stream_exists", "stream_refused"}
    finally:
        await connection.close()
        await other.stop()


async def test_what_is_no_copy_makes_no_stream(nats_connection: Connection) -> None:
    """Bytes that were cut off or changed are refused by the server, and leave nothing."""
    await found(nats_connection, StreamSettings())
    saved, pieces = await copied(nats_connection)
    await nats_connection.jetstream().delete_stream(STREAM)
    with pytest.raises(Fault):
        await restored(nats_connection, saved, given([b"not a copy"]))
    assert await names(nats_connection, "EVENTS_") == []
    assert await restored(nats_connection, saved, given(pieces)) == saved.last


async def test_a_stream_that_is_not_there_is_named(nats_connection: Connection) -> None:
    """With a code by which it is told from a server that is away."""
    with pytest.raises(Fault) as missing:
        async with saving(nats_connection, "EVENTS_0009"):
            pass
    assert missing.value.code == "no_stream"
