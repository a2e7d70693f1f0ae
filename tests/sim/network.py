"""The way between processes and servers: it delays, loses, repeats and delivers late, and can be cut."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeVar

from events.log.port import LogFault
from runtime.fault import Fault
from tests.sim.loop import VirtualLoop

T = TypeVar("T")

LATE_MOST_S: Final = 20.0


class Silence(Exception):
    """No answer came in time."""


@dataclass
class Weather:
    """How bad the network is. All zero: as good as a network can be."""

    loss: float = 0.0  # of messages
    late: float = 0.0  # of those lost: they come after all, much later
    repeated: float = 0.0  # requests that arrive twice
    slow: float = 0.0  # messages that take up to `slow_s`
    slow_s: float = 1.0


class Network:
    """Carries messages. What runs in it belongs to no process: it goes on when who sent it is gone."""

    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        self._loop = loop
        self._random = random
        self._context: Context = copy_context()
        self._flying: set[asyncio.Task[Any]] = set()
        self.weather = Weather()
        self.cut: set[str] = set()  # who cannot reach the servers
        self.apart: set[tuple[str, str]] = set()  # of two that can, whose messages do not reach whom

    def reaches(self, who: str) -> bool:
        """Whether what somebody sends now gets to the servers."""
        return who not in self.cut

    def drawn(self, chance: float) -> bool:
        """Whether something happens this time."""
        return chance > 0 and self._random.random() < chance

    async def call(self, who: str, work: Callable[[], Awaitable[T]], *, within_s: float, once: bool = False) -> T:
        """What `work` gives, done where the servers are, or what it raises. Raises `Silence`: it may be done or not.

        `once`: it is never done twice.
        """
        answer: asyncio.Future[tuple[T | None, Exception | None]] = self._loop.create_future()
        for _ in range(1 if once or not self.drawn(self.weather.repeated) else 2):
            self.background(self._carry(who, work, answer))
        try:
            async with asyncio.timeout(within_s):
                value, error = await answer
        except TimeoutError:
            raise Silence from None
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def pass_on(self, whom: str, deliver: Callable[[], None]) -> None:
        """What reached the servers comes to who listens there, unless that one is cut off."""

        async def carried() -> None:
            most_s = self.weather.slow_s if self.drawn(self.weather.slow) else 0.004
            await asyncio.sleep(self._random.uniform(0.0005, most_s))
            if self.reaches(whom):
                deliver()

        self.background(carried())

    def send(self, who: str, whom: str, deliver: Callable[[], None]) -> None:
        """`deliver` is called once, late, twice or never. Nobody waits for it."""
        if (who, whom) in self.apart:
            return
        for _ in range(2 if self.drawn(self.weather.repeated) else 1):
            self.background(self._deliver(who, whom, deliver))

    def background(self, work: Coroutine[Any, Any, Any]) -> None:
        """It is done by nobody."""
        task = self._loop.create_task(work, context=self._context.copy())
        self._flying.add(task)
        task.add_done_callback(self._flying.discard, context=self._context)

    async def _deliver(self, who: str, whom: str, deliver: Callable[[], None]) -> None:
        if await self._there(who) and self.reaches(whom):
            deliver()

    async def _carry(
        self, who: str, work: Callable[[], Awaitable[T]], answer: asyncio.Future[tuple[T | None, Exception | None]]
    ) -> None:
        if not await self._there(who):
            return
        value: T | None = None
        failure: Exception | None = None
        try:
            value = await work()
        except (LogFault, Fault, Silence) as error:  # it belongs to who asked
            failure = error
        except Exception as error:  # noqa: BLE001 - told, and this world ends
            self._loop.failed("what was asked for failed", error)
            return
        if await self._there(who) and not answer.done():
            answer.set_result((value, failure))

    async def _there(self, who: str) -> bool:
        """Whether a message arrives; it does now."""
        weather = self.weather
        most_s = weather.slow_s if self.drawn(weather.slow) else 0.004
        await asyncio.sleep(self._random.uniform(0.0005, most_s))
        if self.reaches(who) and not self.drawn(weather.loss):
            return True
        if not self.drawn(weather.late):
            return False
        await asyncio.sleep(self._random.uniform(0.1, LATE_MOST_S))
        return self.reaches(who)
