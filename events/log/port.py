"""What the log promises: append all or nothing, read everything in order, and say plainly when no answer came."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Final, Protocol

from events.base import Event, Position, Recorded, Stretch
from events.codec import EPOCH

QUIET_S: Final = 0.1  # following yields an empty stretch when nothing came for this long
BATCH_MAX: Final = 20_000  # events in one append; set on the server and asserted at start
STRETCH_MAX: Final = 2_000  # records in one stretch


class LogFault(Exception):
    """The log, or the way to it, is not as it must be: a sentence, and for programs and operators a code and a hint."""

    def __init__(self, sentence: str = "", *, code: str = "", hint: str = "") -> None:
        super().__init__(sentence)
        self.code = code
        self.hint = hint


class Conflict(LogFault):
    """The append was refused: what it assumed no longer holds. Nothing was written. Read on, decide again."""


class Unknown(LogFault):
    """No answer came: it is in the log, or it will be, or it never will. Read on; what holds is in the log."""


class Broken(LogFault):
    """The log is not contiguous, not the one expected, or shorter than what was already read. Stop."""


class Unfit(LogFault):
    """The server, or what was set up on it, cannot hold the log. Change it, then start again."""


class Reader(Protocol):
    """Reads the log."""

    async def end(self) -> Position:
        """The last position, as the leader of the stream knows it. Raises `Unknown` when it does not answer."""
        ...

    def follow(self, after: Position, *, since: datetime = EPOCH) -> AsyncIterator[Stretch]:
        """Every record after `after`, in order, without end; an empty stretch when `QUIET_S` passed without any.

        `since` is `Recorded.at` of the record at `after`, so that times are the same wherever reading began.
        Faults of the way there (a server that restarts) are waited out, in empty stretches. Raises `Broken`.
        """
        ...

    async def read(self, position: Position) -> Recorded | None:
        """The record at a position; None where there is none."""
        ...

    async def first(self, subject: str) -> Recorded | None:
        """The first record on a subject below `muster.<cell>.ev.`, from the leader; None where there is none."""
        ...

    async def last(self, subject: str) -> Recorded | None:
        """The last record on a subject below `muster.<cell>.ev.`, from the leader; None where there is none."""
        ...


class Log(Reader, Protocol):
    """Reads and writes the log. Only the gate and the control plane hold one."""

    async def append(self, events: Sequence[Event], *, after: Position) -> Position:
        """The position of the last of `events`, now in the log in one batch, if `head` was at `after`.

        The first event is on `head` and moves it. Raises `Conflict`, or `Unknown` when no answer came.
        """
        ...

    async def record(self, facts: Sequence[Event]) -> Position:
        """The position of the last of `facts`, now in the log in one batch; they are consecutive.

        Facts assume nothing, except that one with a key (`events.keyed`) is the first record of its subject, and that
        the last one there is what a `StandingDocument` replaces.
        Raises `Conflict` when one of those is not, or `Unknown` when no answer came.
        """
        ...
