"""What a stream stores is read in order, a page at a time, by a filter with wildcards."""

import pytest

from runtime.embedded.nats import EmbeddedNats
from runtime.fault import Fault
from runtime.nats import Connection
from runtime.stored_messages import PAGE_MAX, Message, read_page


async def test_all_that_fits_is_read_once_in_order(nats_connection: Connection) -> None:
    """Over many pages, with headers and times; then nothing until something comes."""
    jetstream = nats_connection.jetstream()
    await jetstream.add_stream(name="S", subjects=["s.*.*"], allow_direct=True)
    assert await read_page(nats_connection, "S", "s.a.*", after=0) == []
    for n in range(2 * PAGE_MAX):
        await nats_connection.publish(f"s.{'ab'[n % 2]}.x", b"%d" % n, headers={"N": str(n)})
    await jetstream.publish("s.a.y", b"last")
    found: list[Message] = []
    while page := await read_page(nats_connection, "S", "s.a.*", after=found[-1].sequence if found else 0):
        found += page
    assert [message.payload for message in found] == [b"%d" % n for n in range(0, 2 * PAGE_MAX, 2)] + [b"last"]
    assert found[1].headers["N"] == "2"
    assert found[0].at.tzinfo is not None
    assert await read_page(nats_connection, "S", "s.a.*", after=found[-1].sequence) == []


async def test_a_server_that_is_gone_is_a_fault(nats_server: EmbeddedNats, nats_connection: Connection) -> None:
    """And so is a stream that is not there."""
    with pytest.raises(Fault):
        await read_page(nats_connection, "NONE", "s.>", after=0)
    nats_server.kill()
    await nats_server.wait()
    with pytest.raises(Fault) as caught:
        await read_page(nats_connection, "S", "s.>", after=0)
    assert caught.value.code == "nats_away"
