"""The NATS protocol as far as reading needs it: takes apart MSG, HMSG and PING, and gives each message to who waits."""

import asyncio
from typing import cast

from events.log.server import Raw


class Reply:
    """What has come of the answer to one request. A direct get has many records, then a status; others have one message."""

    def __init__(self) -> None:
        self.found: list[Raw] = []
        self.end: asyncio.Future[tuple[str, bytes]] = asyncio.get_running_loop().create_future()

    def finish(self, status: str, data: bytes = b"") -> None:
        """It has ended, if it had not yet."""
        if not self.end.done():
            self.end.set_result((status, data))


class Socket(asyncio.Protocol):
    """One connection. Logs in, and gives each message to the reply that waits for it by its inbox."""

    def __init__(self, login: bytes) -> None:
        self.ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # what the server has against us
        self.replies: dict[bytes, Reply] = {}
        self.moved = asyncio.Event()
        self.transport: asyncio.Transport | None = None
        self._login = login
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self.transport = cast(asyncio.Transport, transport)  # those of uvloop are none by descent
        self.transport.write(self._login)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._end(f"connection lost: {exc or 'closed'}")
        self.transport = None

    def _end(self, why: str) -> None:
        if not self.ready.done():
            self.ready.set_result(why)
        for reply in self.replies.values():
            reply.finish(why)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        buffer = self._buffer + data if self._buffer else data
        start, size = 0, len(buffer)
        while (end := buffer.find(b"\r\n", start)) >= 0:
            match buffer[start : start + 4]:
                case b"HMSG" | b"MSG ":
                    words = buffer[start:end].split(b" ")
                    body, after = end + 2, end + 2 + int(words[-1])
                    if after + 2 > size:
                        break  # the rest is to come
                    split = body + int(words[-2]) if words[0] == b"HMSG" else body
                    self._message(words[1], buffer[body:split], buffer[split:after])
                    start = after + 2
                    continue
                case b"PING" if self.transport is not None:
                    self.transport.write(b"PONG\r\n")
                case b"PONG" if not self.ready.done():
                    self.ready.set_result("")
                case b"-ERR":
                    self._end(buffer[start:end].decode())
                case _:
                    pass  # INFO: other servers of the cluster, which the operator named already
            start = end + 2
        self._buffer = buffer[start:]

    def _message(self, subject: bytes, headers: bytes, payload: bytes) -> None:
        reply = self.replies.get(subject)
        if reply is None:  # the hint, or too late
            if subject.endswith(b".moved"):
                moved, self.moved = self.moved, asyncio.Event()
                moved.set()
        elif headers[8:9] == b" ":
            reply.finish(headers[9:12].decode())
        elif not headers:
            reply.finish("200", payload)
        else:  # the server's own headers come last: stream, subject, sequence, time
            own = headers[headers.rindex(b"\r\nNats-Stream: ") :].decode().split("\r\n", 5)
            assert own[3].startswith("Nats-Sequence: "), own
            reply.found.append(Raw(own[2][14:], int(own[3][15:]), own[4][17:], payload))
