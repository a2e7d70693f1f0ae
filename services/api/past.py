"""The cluster as it was: the log folded up to a moment, in a thread of its own, one question at a time."""

import asyncio
import threading
from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from typing import Final, Protocol, TypeVar

from events.base import START, Position, spelled
from events.codec import EPOCH
from events.log.port import LogFault, Reader
from projections.cluster.evolve import evolve
from projections.cluster.state import Cluster
from services.api.moment import Moment
from services.api.problems import Troubled, trouble

WAIT_S: Final = 25.0  # for one answer; what was folded by then is kept, so that asking again goes on from there

T = TypeVar("T")


class ClosingReader(Reader, Protocol):
    """A reader with a connection of its own."""

    def close(self) -> None:
        """There is no connection any more."""
        ...


class Past:
    """Folds the log up to moments of the past. What was folded last is kept: a later moment goes on from it.

    The work is done in a thread with a loop and a connection of its own, so that other requests do not wait for it.
    """

    def __init__(self, open_reader: Callable[[], ClosingReader]) -> None:
        self._open_reader = open_reader
        self._cluster = Cluster()
        self._turn = asyncio.Lock()

    async def look(self, moment: Moment, ask: Callable[[Cluster], T]) -> T:
        """What `ask` says of the cluster as it was. It must not keep the cluster, nor change it.

        Raises: `Troubled` when the log has nothing by then or does not reach so far, when it does not answer, when it
        took too long, and when another question is being answered.
        """
        if self._turn.locked():
            raise trouble(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "busy",
                "another question about the past is being answered",
                "try again in a moment",
            )
        async with self._turn:
            stop = threading.Event()
            working = asyncio.ensure_future(asyncio.to_thread(self._work, moment, stop, ask))
            try:
                async with asyncio.timeout(WAIT_S):
                    return await asyncio.shield(working)
            except TimeoutError:
                raise _too_long(moment, self._cluster) from None
            finally:
                stop.set()
                await asyncio.wait({working})  # the thread owns the cluster until it ends

    def _work(self, moment: Moment, stop: threading.Event, ask: Callable[[Cluster], T]) -> T:
        """In the thread."""
        asyncio.run(self._fold(moment, stop))
        return ask(self._cluster)

    async def _fold(self, moment: Moment, stop: threading.Event) -> None:
        reader = self._open_reader()
        try:
            end = await reader.end()
            if moment.position is not None and moment.position > end:
                raise _not_written(moment, end)
            if is_after(moment, self._cluster.position, self._cluster.at or EPOCH):
                self._cluster = Cluster()  # it was folded further: from the beginning
            await self._follow(reader, moment, stop, end)
        except LogFault as fault:
            raise trouble(
                HTTPStatus.SERVICE_UNAVAILABLE, "log_away", f"the event log cannot be read: {fault}", "try again"
            ) from fault
        finally:
            reader.close()
        if self._cluster.position == START:
            raise _before_all(moment)

    async def _follow(self, reader: Reader, moment: Moment, stop: threading.Event, end: Position) -> None:
        """Fold on until the moment; where `stop` was set, not so far."""
        if self._cluster.position >= end:
            return
        async for stretch in reader.follow(self._cluster.position, since=self._cluster.at or EPOCH):
            for recorded in stretch:
                if is_after(moment, recorded.position, recorded.at):
                    return
                self._cluster = evolve(self._cluster, recorded)
            if stop.is_set() or self._cluster.position >= end:
                return


def is_after(moment: Moment, position: Position, at: datetime) -> bool:
    """Whether a record came after the moment."""
    if moment.position is not None:
        return position > moment.position
    return moment.time is not None and at > moment.time


def _not_written(moment: Moment, end: Position) -> Troubled:
    told = f"at: {moment.typed} is not written yet: the log ends at {spelled(end)}"
    return trouble(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", told, "muster events shows positions", position=end)


def _before_all(moment: Moment) -> Troubled:
    told = f"at: {moment.typed} is before the first record of the log"
    return trouble(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", told, "muster events shows when that was")


def _too_long(moment: Moment, cluster: Cluster) -> Troubled:
    told = (
        f"reading the log up to {moment.typed} took longer than {WAIT_S:.0f} s; {spelled(cluster.position)} was reached"
    )
    return trouble(HTTPStatus.GATEWAY_TIMEOUT, "too_long", told, "ask again: it goes on from there")
