"""How long the credits of an account last at the pace of the last days. Pure.

Burn is what the account's usage records of the last seven days add up to, corrections taken off, and what runs now used
since their last record, divided by the days: seven, or as many as there are since its first use. Days left are the
balance divided by that: what is reserved is not in it, nor what may be overdrawn.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from events.amounts import told_credits
from projections.cluster.credit.price import cost_micro, half_even

DAYS_MAX: Final = 7
WINDOW: Final = timedelta(days=DAYS_MAX)
HISTORY_MIN: Final = timedelta(hours=1)  # one job of a minute says nothing about a day
DAY: Final = timedelta(days=1)
HOUR: Final = timedelta(hours=1)
US: Final = timedelta(microseconds=1)
LEFT_MAX: Final = 36_500.0  # days: beyond that no forecast means anything


class Recorded(NamedTuple):
    """What an account's usage records of the window say."""

    micro: int  # of all, corrections taken off
    first: datetime | None  # when the first use that was ever recorded of it began


class Running(NamedTuple):
    """A run that goes on."""

    since: datetime  # what it used up to then is recorded
    gpus: int
    nano_per_gpu_hour: int


class Forecast(NamedTuple):
    """The pace of an account, and what follows from it."""

    since: datetime | None  # None: nothing was ever used
    used_micro: int  # since then
    per_day_micro: int | None  # None: not enough is known
    days_left: float | None  # None: not enough is known, or nothing is used
    basis: str  # a sentence


def forecast(balance_micro: int, recorded: Recorded, running: Iterable[Running], now: datetime) -> Forecast:
    """How much an account uses a day, and for how many days its balance is enough."""
    going = list(running)
    firsts = [run.since for run in going] + ([recorded.first] if recorded.first is not None else [])
    if not firsts:
        return Forecast(None, 0, None, None, "nothing was used yet")
    since = max(min(firsts), now - WINDOW)
    used = max(0, recorded.micro + sum(_unrecorded_micro(run, since, now) for run in going))
    span = now - since
    if span < HISTORY_MIN:
        told = f"not enough is known: it was first used at {_time(since)}, and an hour of use is the least that says something"
        return Forecast(since, used, None, None, told)
    per_day = half_even(used * (DAY // US), span // US)
    told = f"since {_time(since)}, {told_credits(used)} of recorded use and of runs that go on, over {_span(span)}"
    return Forecast(since, used, per_day, _days_left(balance_micro, per_day), told)


def window_of(now: datetime) -> datetime:
    """From when on usage records count."""
    return now - WINDOW


def _unrecorded_micro(run: Running, since: datetime, now: datetime) -> int:
    span_us = max(timedelta(), now - max(run.since, since)) // US
    return cost_micro(run.gpus * span_us, run.nano_per_gpu_hour)


def _days_left(balance_micro: int, per_day_micro: int) -> float | None:
    if not per_day_micro:
        return None
    return min(LEFT_MAX, round(max(0, balance_micro) / per_day_micro, 2))


def _span(span: timedelta) -> str:
    """`7 days`, `2.5 days`, `3.2 hours`."""
    number, unit = (span / DAY, "days") if span >= 2 * DAY else (span / HOUR, "hours")
    return f"{round(number, 1):g} {unit}"


def _time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
