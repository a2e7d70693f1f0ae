"""What the log promises: append all or nothing, read everything in order, and say plainly when no answer came."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from events.base import Event, Position, Recorded, Stretch, chapter_of
from events.chain import Chain
from events.chapter import ChapterClosed, ChapterOpened, RollCause
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


class Shut(Unknown):
    """The chapter is being closed and the next is not open yet: nothing was written. It goes on in a moment."""


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

        The first event is on `head` and moves it. Raises `Conflict`, `Unknown` when no answer came, or `Shut` at once.
        """
        ...

    async def record(self, facts: Sequence[Event]) -> Position:
        """The position of the last of `facts`, now in the log in one batch; they are consecutive.

        Facts assume nothing, except that one with a key (`events.keyed`) is the first record of its subject, and that
        the last one there is what a `StandingDocument` replaces.
        Raises `Conflict` when one of those is not, or `Unknown` when no answer came.
        """
        ...


class Roll(NamedTuple):
    """What is said of a chapter when it is closed."""

    log_id: str
    at: datetime
    cause: RollCause = RollCause.ASKED
    by: str = ""  # who asked

    def closing(self, chain: Chain) -> ChapterClosed:
        """The last record of the chapter that `chain` ends in, which has all others."""
        return ChapterClosed(
            at=self.at,
            by=self.by,
            chapter=chapter_of(chain.position) or 1,
            log_id=self.log_id,
            records=chain.records,
            size_bytes=chain.size_bytes,
            digest=chain.digest.hex(),
            cause=self.cause,
        )

    def opening(self, chain: Chain) -> ChapterOpened:
        """The first record of the chapter after the one that `chain` has all of."""
        return ChapterOpened(
            at=self.at,
            by=self.by,
            chapter=chapter_of(chain.position) + 1,
            log_id=self.log_id,
            previous=chain.position,
            digest=chain.digest.hex(),
        )


class Rolled(NamedTuple):
    """A chapter that was closed, and the next."""

    closed: Position  # of the last record of the one
    opened: Position  # of the first record of the other
    gap_s: float  # for how long nothing was written


class Rolling(Protocol):
    """Goes on in another chapter of the log. Only the control plane holds one."""

    async def roll(self, chain: Chain, roll: Roll) -> Rolled:
        """The chapter in which `chain` ends is closed, and the next is open. Any number may do this at once.

        `chain` should end near the end of the log: what follows it is read while nothing can be written.
        Raises `Unknown` when a server does not answer: call again, then it is finished.
        """
        ...
