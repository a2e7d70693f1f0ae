"""What every request passes first: the limit of its body, and the counters of /metrics."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.clock import Clock

BODY_MAX: Final = 256 * 1024
BODY_MANY_MAX: Final = 16 << 20
MANY: Final = "/v1/jobs:batch"


class BodyLimit:
    """Refuses bodies that are too large, said beforehand or found while reading: nothing of them is kept or parsed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = BODY_MANY_MAX if scope["path"] == MANY else BODY_MAX
        said = dict(scope["headers"]).get(b"content-length", b"0")
        said_too_large = said.isdigit() and int(said) > most
        read = 0

        async def limited() -> Message:
            nonlocal read
            if said_too_large:
                raise _too_large(most)
            message = await receive()
            read += len(message.get("body", b""))
            if read > most:
                raise _too_large(most)
            return message

        await self._app(scope, limited if scope["method"] in {"POST", "PUT", "PATCH"} else receive, send)


class Counted:
    """Counts requests by route and status, and measures them."""

    def __init__(self, app: ASGIApp, *, registry: CollectorRegistry, clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._requests = Counter(
            "muster_http_requests", "Requests answered.", ("method", "route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "muster_http_seconds", "Time to the first byte of an answer.", ("method", "route"), registry=registry
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = self._clock.monotonic()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "none")
                self._requests.labels(scope["method"], route, str(message["status"])).inc()
                self._seconds.labels(scope["method"], route).observe(self._clock.monotonic() - began_s)
            await send(message)

        await self._app(scope, receive, counted)


def _too_large(most: int) -> HTTPException:
    return HTTPException(413, f"the body is larger than {most} bytes")
