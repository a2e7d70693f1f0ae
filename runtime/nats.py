"""Connections to NATS that survive a server's restart, say what was refused, and end the process when they are lost."""

import asyncio
import os
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import nats.errors
from nats.aio.client import Client, Server
from nats.aio.msg import Msg

from runtime.fault import Fault
from runtime.logging import get_logger

logger = get_logger(__name__)

PING_EVERY_S: Final = 2
PINGS_OUTSTANDING_MAX: Final = 2  # so a connection that died silently is noticed within 6 s
CONNECT_WITHIN_S: Final = 20.0
CONNECT_TRY_S: Final = 2
RECONNECT_FIRST_S: Final = 0.05
RECONNECT_MOST_S: Final = 2.0
ALIVE_WITHIN_S: Final = 2.0
FLUSH_WITHIN_S: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Login:
    """Where to connect, and as whom."""

    urls: tuple[str, ...]
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def inbox_prefix(self) -> str:
        """Where answers come: the only inbox that the user's permissions allow."""
        return f"_INBOX.{self.user}" if self.user else "_INBOX"


class Connection(Client):
    """A connection to NATS that tells a wanted end from a loss, and logs what the client only calls back."""

    def __init__(self, login: Login, *, name: str, lost: Callable[[str], None]) -> None:
        super().__init__()
        self._login = login
        self._called = name
        self._lost = lost
        self._closed_by_us = False
        self._ever_connected = False

    async def open(self) -> None:
        """Connected. Tries until it is cancelled; raises `Fault` when the server refuses the user."""
        await self.connect(
            list(self._login.urls),
            **_options(self._login, self._called),
            error_cb=self._on_error,
            closed_cb=self._on_closed,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
        )
        self._ever_connected = True

    async def close(self) -> None:
        """Closed, and meant so; also while the server is away."""
        self._closed_by_us = True
        if not self.is_connected:
            self._pending_data_size = 0  # the client would send what is left over a connection that is gone
        try:
            await super().close()
        except OSError as error:  # it went in this very moment, and the client left it open
            logger.debug("nats_gone_at_close", name=self._called, cause=type(error).__name__)
            if self._transport is not None:
                self._transport.close()  # type: ignore[no-untyped-call] # of the client

    async def _connect_to_server(self, s: Any) -> None:  # noqa: ANN401 - the client's own type is not public
        """See the client's, which leaves the connection of a try that came to nothing open."""
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call] # of the client
        await super()._connect_to_server(s)

    async def request(self, *args: Any, **options: Any) -> Msg:
        """See the client's. A cancellation that comes at the moment of the answer is not lost: the client swallows it."""
        with _cancelled_for_sure():
            return await super().request(*args, **options)

    async def _flush_pending(self, force_flush: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - likewise
        with _cancelled_for_sure():
            return await super()._flush_pending(force_flush)

    async def flush(self, timeout: float = FLUSH_WITHIN_S) -> None:  # noqa: ASYNC109 - the client's own signature
        """What was published so far has reached the server. Raises `FlushTimeoutError`.

        In place of the client's own, whose ping overtakes what is published, which returns at once when reading has
        stopped, and after whose timeout a late answer stops the reading.
        """
        if not await self.alive(timeout):
            raise nats.errors.FlushTimeoutError

    async def alive(self, within_s: float = ALIVE_WITHIN_S) -> bool:
        """Whether the server answers: a client whose reading has stopped still calls itself connected."""
        if not self.is_connected or self._reading_task is None or self._reading_task.done():
            return False
        answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._flush_pending(force_flush=True)
                await self._send_ping(answered)
                # Shielded: when the answer comes after all, it must find its place.
                return await asyncio.shield(answered)
        return False

    async def _on_error(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        match error:
            case _ if "authorization violation" in text.lower() and not self._ever_connected:
                # The client would try for ever.
                hint = "Check its name and its password."
                raise Fault("nats_user_refused", f"NATS refuses user {self._login.user!r}.", hint)
            case _ if "authorization violation" in text.lower():
                logger.error("nats_user_refused", user=self._login.user)
            case nats.errors.SlowConsumerError():
                logger.error("nats_message_dropped", subject=error.subject)
            case _ if "permissions violation" in text.lower():  # whoever asked only sees a timeout
                logger.error("nats_permission_refused", user=self._login.user, error=text)
            case _ if self._ever_connected:
                logger.warning("nats_trouble", error=text, cause=type(error).__name__)
            case _:
                pass  # not up yet: it is tried again

    async def _on_closed(self) -> None:
        if self._ever_connected and not self._closed_by_us:
            logger.error("nats_connection_lost", name=self._called)
            self._lost("nats_connection_lost")

    async def _on_disconnected(self) -> None:
        if self._ever_connected and not self._closed_by_us:
            logger.warning("nats_disconnected", name=self._called)

    async def _on_reconnected(self) -> None:
        logger.info("nats_reconnected", name=self._called)


@contextmanager
def _cancelled_for_sure() -> Iterator[None]:
    """Raises `CancelledError` at the end of the block if the task was cancelled in it, whatever became of that inside."""
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


async def connect(
    login: Login, *, name: str, lost: Callable[[str], None] | None = None, within_s: float = CONNECT_WITHIN_S
) -> Connection:
    """A connection that reconnects for ever, after waits that differ from process to process.

    While it is down, publishing raises at once and nothing piles up: what is sent after a reconnect, behind the back
    of a caller who was told of a timeout, is worse than an error. `lost` is called should the client give up for good;
    by default the process is asked to end. Raises `Fault` when there is no connection within `within_s`.
    """
    connection = Connection(login, name=name, lost=lost or _end_process)
    try:
        async with asyncio.timeout(within_s):
            await connection.open()
    except TimeoutError as error:
        await connection.close()
        where = ", ".join(login.urls)
        raise Fault("nats_unreachable", f"No NATS server answers at {where}.", "Is it running?") from error
    except BaseException:
        await connection.close()
        raise
    return connection


def _options(login: Login, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "user": login.user or None,
        "password": login.password or None,
        "inbox_prefix": login.inbox_prefix,
        "pending_size": -1,  # nothing is kept for later while disconnected
        "ping_interval": PING_EVERY_S,
        "max_outstanding_pings": PINGS_OUTSTANDING_MAX,
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": 0.1,  # of the first connect only: afterwards the handler decides
        "reconnect_to_server_handler": _next_server,
        "connect_timeout": CONNECT_TRY_S,
    }


def _next_server(servers: list[Server], _info: dict[str, Any]) -> tuple[Server, float]:
    """The server tried least, and a wait that grows with the tries and is drawn, so that no two processes agree."""
    server = min(servers, key=lambda candidate: candidate.reconnects)
    most_s = min(RECONNECT_MOST_S, RECONNECT_FIRST_S * 2.0 ** min(server.reconnects, 10))
    return server, most_s * (0.5 + secrets.randbelow(1000) / 2000)


def _end_process(_reason: str) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def alive(connection: Connection, within_s: float = ALIVE_WITHIN_S) -> bool:
    """Whether the server of a connection answers: see `Connection.alive`."""
    return await connection.alive(within_s)
