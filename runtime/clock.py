"""The only place where a clock is read: the `Clock` that is passed on, the system's, and one moved by hand."""

import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

MANUAL_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Tells the time of day, and how much time has passed."""

    def now(self) -> datetime:
        """The time of day: aware, in UTC. May jump."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back. For spans, not comparable between machines."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """The time of day, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that the machine has been running, give or take a constant."""
        return time.monotonic()


class ManualClock:
    """Stands still until it is moved: for tests and simulations."""

    def __init__(self, start: datetime = MANUAL_START) -> None:
        assert start.tzinfo is not None
        self._now = start
        self._monotonic_s = 0.0

    def now(self) -> datetime:
        """The time it was moved to."""
        return self._now

    def monotonic(self) -> float:
        """Seconds it was moved by since it was made."""
        return self._monotonic_s

    def advance(self, by_s: float) -> None:
        """Both readings are `by_s` seconds later."""
        assert by_s >= 0
        self._now += timedelta(seconds=by_s)
        self._monotonic_s += by_s

    def jump(self, to: datetime) -> None:
        """The time of day is `to`, as when an operator sets it; no time has passed."""
        self._now = to
