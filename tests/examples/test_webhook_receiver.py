"""The receiver in examples/: takes what the cluster signs, once, and nothing else."""

import importlib.util
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from events.codec import Codec, Stamp
from runtime.clock import SystemClock
from services.webhooks.address import parse_networks
from services.webhooks.post import Post
from services.webhooks.schedule import Answer
from services.webhooks.signature import headers, spell_secret
from tests.events.examples import EXAMPLES

PATH = Path(__file__).parents[2] / "examples" / "webhook_receiver.py"
SPEC = importlib.util.spec_from_file_location("webhook_receiver", PATH)
assert SPEC is not None
assert SPEC.loader is not None
EXAMPLE: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(EXAMPLE)

OLD, NEW, OTHER = (bytes([n]) * 32 for n in range(3))
BODY = Codec().encode(EXAMPLES[0], Stamp("e-1"))


@contextmanager
def receiving(*secrets: bytes) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its address, and what it took."""
    taken: list[dict[str, Any]] = []
    server = EXAMPLE.Receiver(("127.0.0.1", 0), [spell_secret(secret) for secret in secrets])
    server.take = taken.append
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", taken
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def send(url: str, signed: dict[str, str], body: bytes = BODY) -> Answer:
    """What the receiver answers to what the cluster sends."""
    async with Post(SystemClock(), parse_networks(["127.0.0.0/8"])) as post:
        return await post.send(url, signed, body)


async def test_what_the_cluster_signs_is_taken_once() -> None:
    """Sent again, it is acknowledged again."""
    now = datetime.now(UTC)
    with receiving(NEW) as (url, taken):
        for _ in range(2):
            assert await send(url, headers("e-1", BODY, [NEW], now)) == Answer(204)
    assert taken == [json.loads(BODY)]


async def test_while_a_secret_is_replaced_either_is_enough() -> None:
    """Whichever side changes first."""
    now = datetime.now(UTC)
    for held, signing in (([OLD], [NEW, OLD]), ([NEW], [NEW, OLD]), ([OLD, NEW], [OLD]), ([OLD, NEW], [NEW])):
        with receiving(*held) as (url, taken):
            assert (await send(url, headers("e-1", BODY, signing, now))).status == 204
        assert len(taken) == 1


async def test_nothing_else_is_taken() -> None:
    """Another secret, another body, another id, an old request, no signature at all."""
    now = datetime.now(UTC)
    right = headers("e-1", BODY, [NEW], now)
    with receiving(NEW) as (url, taken):
        for wrong, body in (
            (headers("e-1", BODY, [OTHER], now), BODY),
            (right, BODY + b" "),
            (right | {"webhook-id": "e-2"}, BODY),
            (right | {"webhook-timestamp": str(int(right["webhook-timestamp"]) + 1)}, BODY),
            (headers("e-1", BODY, [NEW], now - timedelta(minutes=6)), BODY),
            ({}, BODY),
        ):
            assert (await send(url, wrong, body)).status == 401
    assert taken == []


def test_a_body_that_is_too_large_is_not_read() -> None:
    """No event is as large."""
    with receiving(NEW) as (url, _):
        asked = HTTPConnection(url.removeprefix("http://").rstrip("/"), timeout=10)
        asked.putrequest("POST", "/")
        asked.putheader("Content-Length", str((1 << 20) + 1))
        asked.endheaders()
        assert asked.getresponse().status == 413
        asked.close()


@pytest.mark.parametrize("text", ["import services", "import httpx", "from services"])
def test_it_needs_nothing_of_ours(text: str) -> None:
    """It is copied to where receivers are."""
    assert text not in PATH.read_text()
