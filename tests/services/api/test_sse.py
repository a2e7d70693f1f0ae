"""Server-sent events: their form, and that streams are bounded and end well."""

from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest

from services.api.problems import Troubled, trouble
from services.api.sse import Streams, sent_event


async def two() -> AsyncIterator[bytes]:
    """A stream that breaks."""
    yield sent_event(b"{}", identity=7)
    raise trouble(HTTPStatus.SERVICE_UNAVAILABLE, "log_away", "the log is away")


def test_an_event_has_the_form_that_browsers_read() -> None:
    """Id and name only where there is one."""
    assert sent_event(b"{}", identity=7, name="end") == b"id: 7\nevent: end\ndata: {}\n\n"
    assert sent_event(b"{}") == b"data: {}\n\n"


async def test_a_stream_that_breaks_ends() -> None:
    """What was sent stays sent, and its place is free again."""
    streams = Streams()
    response = streams.respond(two())
    assert [chunk async for chunk in response.body_iterator] == [b": open\n\n", b"id: 7\ndata: {}\n\n"]
    assert streams.open == 0


async def test_no_more_streams_are_open_than_may_be() -> None:
    """The next one is told to come back."""
    streams = Streams(most=1)
    chunks = aiter(streams.respond(two()).body_iterator)
    await anext(chunks)
    assert streams.open == 1
    with pytest.raises(Troubled) as caught:
        streams.respond(two())
    assert caught.value.problem.code == "busy"
