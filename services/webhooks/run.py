"""The part that runs: follows the log, sends what is due, replays what was asked for, and forgets what is old."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import timedelta
from typing import Final, cast

from events.base import Stretch
from events.log.port import Reader, Unknown
from runtime import postgres
from runtime.clock import Clock
from runtime.fault import Fault
from runtime.logging import get_logger
from runtime.postgres import Connection, Pool
from services.webhooks import deliveries, endpoints, reached, replays, schema
from services.webhooks.deliveries import LEASE_S, Claimed
from services.webhooks.post import TIMEOUT_S, Post
from services.webhooks.schedule import State, judge
from services.webhooks.signature import headers, webhook_id_of

logger = get_logger(__name__)

LOOK_EVERY_S: Final = 2.0  # whether any endpoint is there, and the log still the one it was
SEND_EVERY_S: Final = 0.5  # whether anything is due
PACE_S: Final = 0.01  # between looks at what is due: attempts that end together are followed by others together
REPLAY_EVERY_S: Final = 1.0
TIDY_EVERY_S: Final = 60.0
AGAIN_S: Final = 5.0  # an attempt that the log did not give its event for
WAIT_FIRST_S: Final = 0.1
WAIT_MAX_S: Final = 5.0
FLYING_MAX: Final = 64  # attempts at once
WAITING_MAX: Final = 100_000  # deliveries to one endpoint; then it is disabled
FORGET_MAX: Final = 10_000  # deliveries in one statement
LATE_S: Final = LEASE_S - 2 * TIMEOUT_S  # an attempt that has not begun by then could end after its lease
READ_LOCK: Final = 0x6D757374_00000012
ALONE: Final = "SELECT pg_try_advisory_lock($1)"
NO_LONGER_ALONE: Final = "SELECT pg_advisory_unlock($1)"
PASSING: Final = (*postgres.PASSING, Unknown)

Step = Callable[[], Awaitable[bool]]  # whether there is more to do at once


class Webhooks:
    """Sends events to endpoints, each at least once. Any number of processes may do this together.

    While no endpoint is enabled it asks PostgreSQL now and then whether there is one, and does nothing else.
    """

    def __init__(self, log: Reader, pool: Pool, post: Post, clock: Clock, *, kept: timedelta) -> None:
        self._log = log
        self._pool = pool
        self._post = post
        self._clock = clock
        self._kept = kept
        self._made = False  # the schema
        self._wanted = asyncio.Event()  # set while an endpoint is enabled, and the log is the right one
        self._due = asyncio.Event()  # something may be due sooner than was thought
        self._flying: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Never returns; waits while PostgreSQL or the log are away.

        Raises, in a group, `Fault` for another log or one that was cut, and what the log raises when it is broken.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self._look, LOOK_EVERY_S))
            await self._wanted.wait()
            group.create_task(self._repeat(self._follow, LOOK_EVERY_S))
            group.create_task(self._repeat(self._replay, REPLAY_EVERY_S))
            group.create_task(self._repeat(self._tidy, TIDY_EVERY_S))
            await self._repeat(lambda: self._send(group), 0)

    async def _repeat(self, step: Step, every_s: float) -> None:
        """Never returns: `step` is taken again and again, at once where there is more to do."""
        faults = 0
        while True:
            if step != self._look:
                await self._wanted.wait()
            try:
                more = await step()
                faults = 0
            except PASSING as error:
                if faults == 0:
                    logger.warning("webhooks_wait", cause=type(error).__name__, reason=str(error))
                await asyncio.sleep(min(WAIT_FIRST_S * 2**faults, WAIT_MAX_S))
                faults = min(faults + 1, 16)
                continue
            if not more:
                await asyncio.sleep(every_s)

    async def _look(self) -> bool:
        """Whether anybody wants anything is known. Nothing is sent before the log was seen to be the right one."""
        async with self._pool.acquire() as conn:
            if not self._made:
                await schema.create(conn)
                self._made = True
            if await endpoints.some_enabled(conn):
                await reached.check(self._log, await reached.reached(conn))
                self._wanted.set()
            else:
                self._wanted.clear()
        return False

    async def _follow(self) -> bool:
        """One process of all reads the log, and puts down what is to be sent."""
        async with self._pool.acquire() as conn:
            if not await conn.fetchval(ALONE, READ_LOCK):
                return False
            try:
                there = await reached.begin(conn, self._log)
                return there is not None and await self._read_on(conn, there)
            finally:
                if not conn.is_closed():
                    await conn.execute(NO_LONGER_ALONE, READ_LOCK)

    async def _read_on(self, conn: Connection, there: reached.Reached) -> bool:
        """Whether to begin anew at once: another process went on. Not, when nobody wants anything any more."""
        following = cast("AsyncGenerator[Stretch, None]", self._log.follow(there.position))
        async with aclosing(following):
            async for stretch in following:
                if stretch:
                    taken = await reached.take(conn, there, stretch, self._clock.now())
                    if taken is None:
                        return True
                    there = taken
                    self._due.set()
                if conn.is_closed() or not self._wanted.is_set():
                    break
        return False

    async def _send(self, group: asyncio.TaskGroup) -> bool:
        """Attempts that are due are being made."""
        self._due.clear()
        free = FLYING_MAX - len(self._flying)
        if free:
            async with self._pool.acquire() as conn:
                claimed = await deliveries.claim(conn, self._clock.now(), free)
            for one in claimed:
                task = group.create_task(self._attempt(one, self._clock.monotonic()))
                self._flying.add(task)
                task.add_done_callback(self._landed)
        try:
            async with asyncio.timeout(SEND_EVERY_S):
                await self._due.wait()
        except TimeoutError:
            pass  # what waits for a time comes due without a word
        await asyncio.sleep(PACE_S)
        return True

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._flying.discard(task)
        self._due.set()

    async def _attempt(self, claimed: Claimed, began_s: float) -> None:
        """The attempt was made and noted. If this process ends in between, another one makes it again, under the same id."""
        try:
            body = claimed.document if claimed.document is not None else await self._body(claimed)
            if self._clock.monotonic() - began_s > LATE_S:
                return  # others may be making this attempt by now
            signed = headers(claimed.webhook_id, body, claimed.secrets, self._clock.now())
            answer = await self._post.send(claimed.url, signed, body)
            now = self._clock.now()
            chance = random.random()  # noqa: S311 - spreads load, guards nothing
            once = claimed.document is not None  # a test: somebody waits to see what comes back, and asks for another
            verdict = judge(answer, attempts=claimed.attempts, now=now, chance=chance, once=once)
            async with self._pool.acquire() as conn:
                await deliveries.note(conn, claimed, answer, verdict, now)
        except PASSING as error:
            logger.warning("webhook_put_off", cause=type(error).__name__, reason=str(error), **_names(claimed))
            return
        if verdict.state in {State.FAILED, State.DISABLED}:
            logger.info("webhook_given_up", state=verdict.state, status=answer.status, **_names(claimed))

    async def _body(self, claimed: Claimed) -> bytes:
        """The bytes of the event, as stored. Raises `Fault` where the log has another one there."""
        try:
            recorded = await self._log.read(claimed.position)
        except Unknown:
            async with self._pool.acquire() as conn:
                await deliveries.put_back(conn, claimed, self._clock.now() + timedelta(seconds=AGAIN_S))
            raise
        if recorded is None or webhook_id_of(recorded.id) != claimed.webhook_id:
            raise Fault(
                "webhooks_of_another_log",
                f"Event {claimed.webhook_id} is to be sent, and is not where it was in the log. Nothing is sent.",
                "Is this the log that webhooks were sent from?",
            )
        return recorded.document

    async def _replay(self) -> bool:
        """Whether there was a replay to go on with."""
        async with self._pool.acquire() as conn:
            went_on = await replays.step(conn, self._log, self._clock.now())
        if went_on:
            self._due.set()
        return went_on

    async def _tidy(self) -> bool:
        """What is old is gone, and endpoints that nobody takes anything from are disabled."""
        now = self._clock.now()
        async with self._pool.acquire() as conn:
            forgotten = await deliveries.forget(conn, now - self._kept, FORGET_MAX)
            await endpoints.forget_secrets(conn, now)
            for endpoint_id in await deliveries.overfull(conn, WAITING_MAX):
                await endpoints.stop(conn, endpoint_id, "backlog")
                logger.warning("webhook_backlog", endpoint_id=endpoint_id, waiting=WAITING_MAX)
        return forgotten == FORGET_MAX


def _names(claimed: Claimed) -> dict[str, object]:
    return {"endpoint_id": claimed.endpoint_id, "webhook_id": claimed.webhook_id, "attempts": claimed.attempts}
