"""How old an answer is: every read of the tables says at which position they were, and for how long they lack what came."""

from contextvars import ContextVar
from datetime import datetime
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from events.base import START, Position
from runtime.clock import Clock
from services.api.tail import Tail

POSITION: Final = "Muster-Position"  # as a number, as in documents
BEHIND: Final = "Muster-Behind"  # seconds since what the tables do not show yet was stored; 0: they show all


class Read:
    """What one request read from the tables."""

    def __init__(self) -> None:
        self.position: Position = START  # of the last read; 0: none


_read: ContextVar[Read | None] = ContextVar("read", default=None)


def note(position: Position) -> None:
    """The answer that is being made shows the tables at a position."""
    read = _read.get()
    if read is not None:
        read.position = position


class Aged:
    """Tells of every answer that was read from the tables how old it is."""

    def __init__(self, app: ASGIApp, *, tail: Tail, clock: Clock) -> None:
        self._app = app
        self._tail = tail
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        read = Read()
        _read.set(read)

        async def aged(message: Message) -> None:
            if message["type"] == "http.response.start" and read.position:
                headers = MutableHeaders(scope=message)
                headers.setdefault(POSITION, str(read.position))  # a route may know better
                headers[BEHIND] = f"{self._behind_s(read.position):.1f}"
            await send(message)

        await self._app(scope, receive, aged)

    def _behind_s(self, position: Position) -> float:
        since: datetime | None = self._tail.since(position)
        return 0.0 if since is None else max(0.0, (self._clock.now() - since).total_seconds())
