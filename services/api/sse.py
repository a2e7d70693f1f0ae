"""Server-sent events: streams that live as long as their client does, a bounded number of them."""

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final

from fastapi.responses import StreamingResponse

from runtime.logging import get_logger
from services.api.problems import Troubled, trouble

logger = get_logger(__name__)

STREAMS_MAX: Final = 500  # at once, of one process
QUIET_MAX_S: Final = 15.0  # then a comment says that the stream still lives
HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
STILL_HERE: Final = b": still here\n\n"


class Streams:
    """Counts the streams that are open."""

    def __init__(self, most: int = STREAMS_MAX) -> None:
        self._most = most
        self.open = 0

    def respond(self, chunks: AsyncIterator[bytes]) -> StreamingResponse:
        """A response that streams `chunks` until they end or the client leaves. Raises `Troubled` when there are too many."""
        if self.open >= self._most:
            raise trouble(
                HTTPStatus.SERVICE_UNAVAILABLE, "busy", f"{self._most} streams are open, no more may be", "try again"
            )
        return StreamingResponse(self._counted(chunks), media_type="text/event-stream", headers=HEADERS)

    async def _counted(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self.open += 1
        try:
            yield b": open\n\n"  # so that clients see the answer begin at once
            async for chunk in chunks:
                yield chunk
        except Troubled as trouble_found:  # the answer has begun: it ends, and the client goes on where it was
            logger.warning("stream_ended", code=trouble_found.problem.code, detail=trouble_found.problem.detail)
        finally:
            self.open -= 1


def sent_event(data: bytes, *, identity: int | str = "", name: str = "") -> bytes:
    """One event. `data` holds no line breaks. Source: WHATWG HTML, section 9.2.6."""
    head = (f"id: {identity}\n" if identity != "" else "") + (f"event: {name}\n" if name else "")
    return head.encode() + b"data: " + data + b"\n\n"
