"""What the server sends is taken apart alike, however the network cut it."""

import asyncio

import pytest

from events.log.frames import Reply, Socket
from events.log.server import Raw

RECORD = (
    b"NATS/1.0\r\nNats-Batch-Id: x\r\nNats-Stream: forged\r\nNats-Stream: EVENTS_0001\r\nNats-Subject: muster.main.ev.head\r\n"
    b"Nats-Sequence: 7\r\nNats-Time-Stamp: 2026-03-14T15:09:26.5Z\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 6\r\n\r\n"
)
END = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n\r\n"
PAYLOAD = b"{}\r\nHMSG in 1 2 3\r\n"  # what looks like the protocol is none
EXPECTED = Raw("muster.main.ev.head", 7, "2026-03-14T15:09:26.5Z", PAYLOAD)


def framed(subject: bytes, headers: bytes, payload: bytes) -> bytes:
    """A message with headers, as the server sends it."""
    return b"HMSG %b 1 %d %d\r\n%b%b\r\n" % (subject, len(headers), len(headers) + len(payload), headers, payload)


SENT = (
    b'INFO {"a":1}\r\nPONG\r\nPING\r\n'
    + framed(b"in", RECORD, PAYLOAD)
    + b"MSG muster.main.moved 2 1\r\n7\r\n"
    + b"MSG other 1 some.reply 5\r\nhe\r\nl\r\n"
    + framed(b"late", RECORD, b"")
    + framed(b"in", END, b"")
    + b"-ERR 'Permissions Violation'\r\n"
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, len(SENT)])
async def test_any_cut_gives_the_same_messages(size: int) -> None:
    """Records, an answer, the hint, and what came too late."""
    socket = Socket(b"")
    records, other = Reply(), Reply()
    socket.replies |= {b"in": records, b"other": other}
    moved = socket.moved

    for start in range(0, len(SENT), size):
        socket.data_received(SENT[start : start + size])

    assert records.found == [EXPECTED]
    assert await records.end == ("204", b"")
    assert await other.end == ("200", b"he\r\nl")
    assert moved.is_set()
    assert not socket.moved.is_set()
    assert await socket.ready == ""


async def test_an_error_ends_what_waits() -> None:
    """A permission that is missing is told at once, not after a timeout."""
    socket, reply = Socket(b""), Reply()
    socket.replies[b"in"] = reply

    socket.data_received(b"-ERR 'Authorization Violation'\r\n")

    assert "Authorization" in await socket.ready
    assert "Authorization" in (await reply.end)[0]
    await asyncio.sleep(0)
