"""How a process ends: signals become a `Stop`, and what runs until then is cancelled and awaited."""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

from runtime.logging import get_logger

logger = get_logger(__name__)

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """That the process is to end, why, and whether that is a failure. The first reason stays."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason = ""
        self.failed = False

    @property
    def requested(self) -> bool:
        """Whether the end has been asked for."""
        return self._event.is_set()

    def request(self, reason: str) -> None:
        """The process ends as it was meant to."""
        if not self.requested:
            self.reason = reason
            logger.info("stopping", reason=reason)
            self._event.set()

    def fail(self, reason: str) -> None:
        """The process ends because it cannot go on; its exit code says so."""
        if not self.requested:
            self.failed = True
            logger.error("stopping", reason=reason)
        self.request(reason)

    async def wait(self) -> None:
        """Return once the end has been asked for."""
        await self._event.wait()


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """A `Stop` that SIGINT and SIGTERM request. To be used in the main thread, inside the running loop."""
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop.request, number.name)
    try:
        yield stop
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)


async def run_until_stopped(stop: Stop, *parts: Coroutine[Any, Any, object]) -> None:
    """Run `parts` together until `stop`, then cancel them and wait until each has ended.

    A part that raises stops the others, and its exception is raised in an `ExceptionGroup`. One that returns is done.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part) for part in parts]
        await stop.wait()
        for task in tasks:
            task.cancel()
