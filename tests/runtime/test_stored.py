"""Publishing into a stream: true only once the server says so."""

from runtime.embedded.nats import EmbeddedNats
from runtime.nats import Connection
from runtime.stored import stored


async def test_a_message_is_stored_or_not_known_to_be(nats_server: EmbeddedNats, nats_connection: Connection) -> None:
    """Taken by a stream, wanted by none, refused by its fence, and with the server gone."""
    await nats_connection.jetstream().add_stream(name="S", subjects=["s.>"])
    fence = {"Nats-Expected-Last-Subject-Sequence": "7"}

    assert await stored(nats_connection, "s.a", b"1", headers={"H": "v"}, within_s=5)
    assert not await stored(nats_connection, "elsewhere", b"1", headers={}, within_s=1)
    assert not await stored(nats_connection, "s.a", b"1", headers=fence, within_s=5)
    await nats_server.stop()
    assert not await stored(nats_connection, "s.a", b"1", headers={}, within_s=0.5)
