"""The period family (`period`, one literal subject): which months are closed."""

from typing import ClassVar

from events.base import PERIOD, Event, Family


class PeriodClosed(Event, kw_only=True, frozen=True, tag="musterbook.period.closed.v1"):
    """All that was used up to the end of the month is recorded: exports of it are the same from now on, byte for byte.

    What is corrected later is a record of a month that is open then.
    """

    family: ClassVar[Family] = PERIOD

    month: str  # "2026-11", of UTC; months are closed in order
