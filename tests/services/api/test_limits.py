"""The limit of bodies: told before or found while reading, and another one for many jobs at once."""

import httpx
import pytest
from fastapi import FastAPI, Request
from prometheus_client import CollectorRegistry, generate_latest

from runtime.clock import ManualClock
from services.api import problems
from services.api.limits import BODY_MANY_MAX, BODY_MAX, MANY, BodyLimit, Counted


@pytest.fixture
def registry() -> CollectorRegistry:
    """Where requests are counted."""
    return CollectorRegistry()


@pytest.fixture
def http(registry: CollectorRegistry) -> httpx.AsyncClient:
    """A client of an app that says how long the body was."""
    app = FastAPI()
    problems.install(app)
    app.add_middleware(BodyLimit)
    app.add_middleware(Counted, registry=registry, clock=ManualClock())

    @app.post("/v1/{name}")
    async def length(name: str, request: Request) -> int:
        return len(await request.body())

    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


@pytest.mark.parametrize(
    ("path", "size", "status"),
    [
        ("/v1/jobs", BODY_MAX, 200),
        ("/v1/jobs", BODY_MAX + 1, 413),
        (MANY, BODY_MAX + 1, 200),
        (MANY, BODY_MANY_MAX + 1, 413),
    ],
)
async def test_a_body_has_a_limit(http: httpx.AsyncClient, path: str, size: int, status: int) -> None:
    """Whether its length is told or not."""

    async def pieces() -> object:
        for start in range(0, size, 1 << 20):
            yield b"x" * min(1 << 20, size - start)

    told = await http.post(path, content=b"x" * size)
    found = await http.post(path, content=pieces())  # type: ignore[arg-type]  # an async iterator of bytes
    assert (told.status_code, found.status_code) == (status, status)
    if status == 413:
        assert told.json()["code"] == found.json()["code"] == "too_large"


async def test_requests_are_counted_by_route(http: httpx.AsyncClient, registry: CollectorRegistry) -> None:
    """Addresses would be without number."""
    await http.post("/v1/a")
    await http.post("/v1/b")
    await http.get("/nowhere")
    text = generate_latest(registry).decode()
    assert 'muster_http_requests_total{method="POST",route="/v1/{name}",status="200"} 2.0' in text
    assert 'route="none",status="404"' in text
