"""What the API is made of: the gate, the log, the tables, a connection; and how routes get at it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Final, NamedTuple

from fastapi import Depends, Query, Request, Response
from prometheus_client import CollectorRegistry, disable_created_metrics

from events.base import Position, spelled
from events.log.port import Reader
from events.subjects import Subjects
from projections.tables import projection_position
from projections.tables.waiting import Shown
from runtime.clock import Clock
from runtime.nats import Connection
from runtime.postgres import ABSENT, AWAY, OUTDATED, Pool
from runtime.postgres import Connection as Session
from services.api.age import POSITION, note
from services.api.costs import Markets
from services.api.credit_metrics import CreditMetrics
from services.api.metrics import FleetMetrics, GateMetrics, Gauges
from services.api.past import ClosingReader, Past
from services.api.problems import trouble
from services.api.reconciling import Reconcile, Reconciling
from services.api.sse import Streams
from services.api.tail import Tail
from services.gate.gate import Gate
from services.webhooks.address import Network

READ_S: Final = 10.0  # for all that one request reads from the tables
EXPORTS_MAX: Final = 8  # sent at once
BEHIND_S: Final = 10.0  # how long a request waits for the tables to show a position


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the API answers from."""

    gate: Gate
    log: Reader
    pool: Pool
    connection: Connection
    subjects: Subjects
    clock: Clock
    open_reader: Callable[[], ClosingReader]  # of the log, over a connection of its own
    reconcile: Reconcile | None = None  # None: not in this process
    reconcile_every_s: float = 0.0  # 0: only when asked
    webhooks_allow: tuple[Network, ...] = ()  # that are not of the public internet


class Here:
    """The parts, and what is kept beside them while the API runs."""

    def __init__(self, parts: Parts, tail: Tail) -> None:
        self.gate = parts.gate
        self.log = parts.log
        self.pool = parts.pool
        self.connection = parts.connection
        self.subjects = parts.subjects
        self.clock = parts.clock
        self.webhooks_allow = parts.webhooks_allow
        self.tail = tail
        self.past = Past(parts.open_reader)
        self.streams = Streams()
        self.exports = asyncio.Semaphore(EXPORTS_MAX)
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a line more for each, that nobody reads
        self.registry = CollectorRegistry()
        self.registry.register(GateMetrics(parts.gate))
        self.gauges = Gauges(self.registry)
        self.fleet_metrics = FleetMetrics()
        self.registry.register(self.fleet_metrics)
        self.credit_metrics = CreditMetrics()
        self.registry.register(self.credit_metrics)
        self.shown = Shown(parts.pool)
        self.markets = Markets(parts.log, parts.clock)
        self.reconciling = Reconciling(parts.reconcile, parts.clock)
        self.registry.register(self.reconciling)

    @asynccontextmanager
    async def tables(self, min_position: int | None = None) -> AsyncIterator["Tables"]:
        """The tables as they are at one position, which is at least `min_position`. Raises `Troubled`."""
        if min_position:
            await self._caught_up(Position(min_position))
        try:
            async with (
                asyncio.timeout(READ_S),
                self.pool.acquire() as conn,
                conn.transaction(isolation="repeatable_read", readonly=True),
            ):
                reached = await projection_position.shown(conn)
                note(reached.position)
                yield Tables(conn, reached.position)
        except AWAY as error:
            raise trouble(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "tables_away",
                f"the tables cannot be read now: {type(error).__name__}",
                "jobs can be submitted meanwhile; try again in a moment",
            ) from error
        except ABSENT as error:
            raise trouble(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "tables_absent",
                "there are no tables yet: no projector has run",
                "start one: muster serve projector",
            ) from error
        except OUTDATED as error:
            raise trouble(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "tables_of_another_version",
                "the tables are not those of this version",
                "start its projector, which brings them up to date: muster serve projector",
            ) from error

    async def _caught_up(self, position: Position) -> None:
        shown = await self.shown.wait_for(position, BEHIND_S)
        if shown < position:
            raise trouble(
                HTTPStatus.GATEWAY_TIMEOUT,
                "behind",
                f"the tables are at position {spelled(shown)} and did not reach {spelled(position)} within {BEHIND_S:.0f} s",
                "try again, or leave out min_position; is the projector running?",
                position=shown,
            )


class Tables(NamedTuple):
    """A session whose reads all see the tables at `position`."""

    db: Session
    position: Position


async def here(request: Request) -> Here:
    """The parts that the app was made with."""
    found: Here = request.app.state.here
    return found


async def at_least(
    min_position: Annotated[
        int | None, Query(ge=0, description="Wait, up to 10 s, until the tables show this position.")
    ] = None,
) -> int | None:
    """The position that a request must not be answered before."""
    return min_position


InHere = Annotated[Here, Depends(here)]
AtLeast = Annotated[int | None, Depends(at_least)]


def say_position(response: Response, position: int) -> None:
    """The response says what position it shows."""
    response.headers[POSITION] = str(position)
