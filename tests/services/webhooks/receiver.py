"""A receiver of webhooks: a real HTTP server on loopback that keeps what it got, and answers as a test says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from services.webhooks.signature import sign


class Received(NamedTuple):
    """A request."""

    path: str
    headers: dict[str, str]  # by their names in lower case
    body: bytes

    @property
    def id(self) -> str:
        """What it is known by."""
        return self.headers["webhook-id"]

    def signed_by(self, secret: bytes) -> bool:
        """Whether one of its signatures is made with this secret."""
        made = sign(secret, self.id, int(self.headers["webhook-timestamp"]), self.body)
        return made in self.headers["webhook-signature"].split(" ")


class Receiver:
    """What a test works with: the answers to give, and what came."""

    def __init__(self) -> None:
        self.url = ""
        self.received: list[Received] = []
        self.answers: list[str] = []  # status line and headers of the next ones; then "204 No Content" for ever
        self.open = asyncio.Event()  # cleared: no answer is given
        self.open.set()
        self.waiting = 0  # requests that wait for their answer
        self.waiting_max = 0

    @property
    def ids(self) -> list[str]:
        """Of what came, in order."""
        return [one.id for one in self.received]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
            }
            body = await reader.readexactly(int(headers["content-length"]))
            self.received.append(Received(head[0].split(" ")[1], headers, body))
            self.waiting += 1
            self.waiting_max = max(self.waiting_max, self.waiting)
            try:
                await self.open.wait()
            finally:
                self.waiting -= 1
            answer = self.answers.pop(0) if self.answers else "204 No Content"
            writer.write(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the sender has ended
        finally:
            writer.close()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver that listens until the block is left."""
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    try:
        yield receiver
    finally:
        receiver.open.set()
        server.close()
