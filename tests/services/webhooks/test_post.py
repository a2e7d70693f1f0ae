"""One attempt over HTTP: what may be reached, what is sent there, and that it ends."""

import asyncio
import ssl
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

import pytest

from runtime.clock import ManualClock
from services.webhooks import post
from services.webhooks.address import Address, parse_networks
from services.webhooks.post import Post
from services.webhooks.schedule import Answer
from tests.services.webhooks.receiver import Receiver

CLOCK = ManualClock()
LOOPBACK = parse_networks(["127.0.0.0/8"])
HEADERS = {"webhook-id": "a"}


class Names:
    """A resolver that gives each answer once, the last for ever, and counts how often it was asked."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        """The next answer."""
        del host, port
        self.asked += 1
        found = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [ip_address(text) for text in found]


async def test_what_is_sent_is_the_body_with_its_headers(receiver: Receiver) -> None:
    """The Host header has the name, although the request goes to the number; no proxy and no redirect is followed."""
    port = urlsplit(receiver.url).port
    receiver.answers += ["307 Temporary Redirect\r\nLocation: /elsewhere", "429 Slow\r\nRetry-After: 7"]
    names = Names(["127.0.0.1"])
    async with Post(CLOCK, LOOPBACK, resolve=names) as sending:
        answers = [await sending.send(f"http://hooks.example:{port}/a?b=c", HEADERS, b"{ }") for _ in range(3)]
    assert answers == [Answer(307), Answer(429, 7.0), Answer(204)]
    assert names.asked == 3
    first, *_ = receiver.received
    assert (first.path, first.body, first.headers["host"]) == ("/a?b=c", b"{ }", f"hooks.example:{port}")
    assert first.headers["webhook-id"] == "a"
    assert len(receiver.received) == 3


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_nothing_is_sent_inside(receiver: Receiver, host: str) -> None:
    """Unless an operator has allowed it; however the host is written."""
    port = urlsplit(receiver.url).port
    async with Post(CLOCK) as sending:
        answer = await sending.send(f"http://{host}:{port}/", HEADERS, b"{}")
    assert answer.status == 0
    assert "no operator has allowed it" in answer.problem
    assert receiver.received == []


async def test_a_name_is_resolved_once(receiver: Receiver) -> None:
    """Whoever runs its DNS cannot answer with a harmless address first, and with one inside when it is connected to."""
    port = urlsplit(receiver.url).port
    names = Names(["127.0.0.2"], ["127.0.0.1"])
    async with Post(CLOCK, parse_networks(["127.0.0.2/32"]), resolve=names) as sending:
        await sending.send(f"http://hooks.example:{port}/", HEADERS, b"{}")
        assert names.asked == 1
        assert receiver.received == []
        answer = await sending.send(f"http://hooks.example:{port}/", HEADERS, b"{}")
    assert "127.0.0.1 is not an address of the public internet" in answer.problem
    assert receiver.received == []


async def test_of_several_addresses_the_first_that_may_be_and_answers_is_taken(receiver: Receiver) -> None:
    """Those inside are left out; one where nobody listens is passed over."""
    port = urlsplit(receiver.url).port
    names = Names(["10.0.0.1", "127.0.0.3", "127.0.0.1"])
    async with Post(CLOCK, LOOPBACK, resolve=names) as sending:
        assert await sending.send(f"http://hooks.example:{port}/", HEADERS, b"{}") == Answer(204)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://127.0.0.1:1/", "connect"),
        ("https://nowhere.invalid/", ""),
        ("nonsense", "must begin with https://"),
    ],
)
async def test_what_goes_wrong_on_the_way_is_an_answer(url: str, told: str) -> None:
    """It is tried again like any other."""
    async with Post(CLOCK, LOOPBACK) as sending:
        answer = await sending.send(url, HEADERS, b"{}")
    assert answer.status == 0
    assert told in answer.problem
    assert answer.problem


async def test_who_does_not_answer_is_given_up(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time for an attempt, all of it."""
    monkeypatch.setattr(post, "TIMEOUT_S", 0.05)
    receiver.open.clear()
    async with Post(CLOCK, LOOPBACK) as sending:
        assert "no answer within" in (await sending.send(receiver.url, HEADERS, b"{}")).problem


async def test_a_certificate_must_be_right_for_the_name() -> None:
    """The name of the URL is what the server is asked for, not its number; one that nobody vouches for gets nothing."""
    asked: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda _connection, name, _context: asked.append(name)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server, Post(CLOCK, LOOPBACK, resolve=Names(["127.0.0.1"])) as sending:
        port = server.sockets[0].getsockname()[1]
        answer = await sending.send(f"https://hooks.example:{port}/", HEADERS, b"{}")
    assert answer.status == 0
    assert asked == ["hooks.example"]
