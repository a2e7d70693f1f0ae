"""The HTTP API: `create_app` puts its routes together, `open_api` runs it until the block is left."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib.metadata import version
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from fastapi.responses import RedirectResponse
from fastapi_offline import FastAPIOffline

from runtime.fault import Fault
from runtime.logging import get_logger
from services.api import (
    chapters,
    cordon,
    credit_asks,
    credits,  # noqa: A004  # hides a word that only a prompt needs
    drains,
    events,
    exports,
    fleet,
    gpus,
    health,
    jobs,
    logs,
    problems,
    reconcile,
    standing,
    submit,
    webhooks,
    why,
)
from services.api.age import Aged
from services.api.limits import BodyLimit, Counted
from services.api.parts import Here, Parts
from services.api.schemas import Problem
from services.api.tail import Tail

logger = get_logger(__name__)

GRACE_S: Final = 2  # for answers under way when the API stops; streams are cut then
BACKLOG: Final = 1_024
KEEP_ALIVE_S: Final = 60
ROUTES: Final = (  # in the order of the page at /docs
    submit,
    jobs,
    why,
    logs,
    events,
    standing,
    credits,
    credit_asks,
    reconcile,
    exports,
    webhooks,
    chapters,
    cordon,
    drains,
    gpus,
    fleet,
    health,
)
ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    "4XX": {"model": Problem, "description": "What is wrong with the request."},
    "5XX": {"model": Problem, "description": "What is not well here; with 503, try again."},
}


def create_app(parts: Parts, tail: Tail) -> FastAPI:
    """The API over these parts. `tail` must be running for streams that go on to be cheap."""
    app = FastAPIOffline(  # the page at /docs brings its own scripts: many a cluster has no way to the internet
        title="Musterbook",
        version=version("musterbook"),
        summary="Submit gang jobs for GPUs, follow them, and read everything that happened.",
        responses=ERRORS,
        redoc_url=None,
    )
    app.add_api_route("/", _root, include_in_schema=False)
    app.state.here = here = Here(parts, tail)
    problems.install(app)
    for module in ROUTES:
        app.include_router(module.router)
    app.add_middleware(BodyLimit)
    app.add_middleware(Aged, tail=tail, clock=parts.clock)
    app.add_middleware(Counted, registry=here.registry, clock=parts.clock)
    return app


async def _root() -> RedirectResponse:
    """Whoever opens the bare address is shown what there is."""
    return RedirectResponse("/docs")


@asynccontextmanager
async def open_api(parts: Parts, *, host: str, port: int) -> AsyncIterator[str]:
    """The API answers at the URL that this gives until the block is left. `port` 0: any free one.

    Raises `Fault` when the address cannot be had.
    """
    with _listening(host, port) as listener:
        tail = Tail(parts.log)
        app = create_app(parts, tail)
        here: Here = app.state.here
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            server_header=False,
        )
        server = _Server(config)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(tail.run())
            reconciling = group.create_task(here.reconciling.keep(parts.reconcile_every_s))
            serving = group.create_task(server.serve(sockets=[listener]))
            try:
                yield f"http://{host}:{listener.getsockname()[1]}"
            finally:
                server.should_exit = True
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(asyncio.wait({serving}))
                following.cancel()
                reconciling.cancel()


class _Server(uvicorn.Server):
    """Leaves signals to the process that it is a part of."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is captured."""
        yield


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    try:
        listener = socket.create_server((host, port), backlog=BACKLOG, family=_family(host))
    except OSError as error:
        raise Fault(
            "address_taken", f"{host}:{port} cannot be listened on: {error}.", "Choose another port."
        ) from error
    with listener:
        yield listener


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
