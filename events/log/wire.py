"""`WireReader`: reads the log over a socket of its own, past nats-py, several times as fast."""

import asyncio
import itertools
import secrets
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from events.log.follow import LogReader
from events.log.frames import Reply, Socket
from events.log.port import Unfit
from events.log.server import ASK_S, NoAnswer, Raw, finished
from events.subjects import CELL_DEFAULT, Subjects

CONNECT_S: Final = 2.0


class WireWay:
    """The way over a socket of its own. Connects when asked something, to the servers in turn; without TLS."""

    def __init__(self, urls: Sequence[str], moved: str, *, user: str, password: str, inbox_prefix: str) -> None:
        self._urls = itertools.cycle(urls)
        self._inbox = f"{inbox_prefix}.{secrets.token_hex(8)}".encode()
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1}
        who = {"user": user, "pass": password, "name": "reader", "lang": "python", "version": "1"}
        connect = msgspec.json.encode(options | who)
        hello = b"CONNECT %b\r\nSUB %b.* 1\r\nSUB %b 2\r\nPING\r\n"
        self._login = hello % (connect, self._inbox, moved.encode())
        self._numbers = itertools.count()
        self._socket: Socket | None = None
        self._connecting = asyncio.Lock()
        self._none = asyncio.Event()

    @property
    def moved(self) -> asyncio.Event:
        """See `server.Way`."""
        return self._socket.moved if self._socket else self._none

    async def start(self) -> None:
        """See `server.Way`: every connection listens."""

    async def ask(self, subject: str, body: bytes) -> bytes:
        """See `server.Way`."""
        reply, status, data = await self._asked(subject, body)
        if status != "200" or reply.found:
            raise NoAnswer(f"{subject}: status {status}")
        return data

    async def get(self, stream: str, query: bytes) -> list[Raw]:
        """See `server.Way`."""
        reply, status, _ = await self._asked(f"$JS.API.DIRECT.GET.{stream}", query)
        return finished(reply.found, status)

    async def _asked(self, subject: str, body: bytes) -> tuple[Reply, str, bytes]:
        """The reply, and how it ended."""
        socket = await self._connected()
        inbox = b"%b.%d" % (self._inbox, next(self._numbers))
        reply = socket.replies[inbox] = Reply()
        try:
            assert socket.transport is not None
            socket.transport.write(b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), inbox, len(body), body))
            async with asyncio.timeout(ASK_S):
                status, data = await reply.end
        except TimeoutError as error:
            self.close()  # perhaps dead: the next question goes to the next server
            if reply.found:
                return reply, "timeout", b""
            raise NoAnswer(f"{subject}: no answer in {ASK_S} s") from error
        finally:
            del socket.replies[inbox]
        return reply, status, data

    async def _connected(self) -> Socket:
        async with self._connecting:
            if self._socket is not None and self._socket.transport is not None:
                return self._socket
            url = urlsplit(next(self._urls))
            loop = asyncio.get_running_loop()
            try:
                async with asyncio.timeout(CONNECT_S):
                    _, self._socket = await loop.create_connection(
                        lambda: Socket(self._login), url.hostname or "", url.port or 4222
                    )
                    against = await self._socket.ready
            except (OSError, TimeoutError) as error:
                self.close()
                raise NoAnswer(f"{url.netloc}: {error}") from error
            if "Authorization" in against:
                raise Unfit(
                    "NATS refuses the user that reads the log.", code="log_user_refused", hint="See its password."
                )
            if against:
                self.close()
                raise NoAnswer(f"{url.netloc}: {against}")
            return self._socket

    def close(self) -> None:
        """There is no connection any more, until something is asked again."""
        if self._socket is not None and self._socket.transport is not None:
            self._socket.transport.abort()
        self._socket = None


class WireReader(LogReader):
    """Reads the log over a socket of its own, several times as fast as through nats-py. Close it in the end."""

    def __init__(
        self,
        urls: Sequence[str],
        cell: str = CELL_DEFAULT,
        *,
        user: str = "",
        password: str = "",
        inbox_prefix: str = "_INBOX",
    ) -> None:
        moved = Subjects(cell).moved
        self._wire = WireWay(urls, moved, user=user, password=password, inbox_prefix=inbox_prefix)
        super().__init__(self._wire, cell)

    def close(self) -> None:
        """The connection is gone."""
        self._wire.close()
