"""Moments of the past as people type them: a time, how long ago, or a position in the log."""

import re
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Final, NamedTuple

from events.base import Position, position_of
from services.api.problems import Troubled, trouble
from services.gate.names import shown

RULE: Final = "a time such as 2026-01-31T14:30:00Z, 14:30 or 10m ago, or a position such as 1:27"
AGO: Final = re.compile(r"(?:(\d+)d)?\s*(?:(\d+)h)?\s*(?:(\d+)m)?\s*(?:(\d+)s)?\s+ago")
CLOCK_TIME: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
POSITION: Final = re.compile(r"(?:(\d{1,6}):)?(\d{1,18})")
HOURS, MINUTES, TYPED_MAX = 24, 60, 60
SEQUENCE_MAX: Final = (1 << 40) - 1


class Moment(NamedTuple):
    """A place in the past: a position, or the last record stored by a time."""

    typed: str
    position: Position | None
    time: datetime | None


def moment_of(typed: str, now: datetime) -> Moment:
    """What `typed` means. `14:30` is the last such time, in UTC; a time without a zone is meant in UTC.

    `1:27` is a position: an hour has two digits, and no log has so many chapters.

    Raises: `Troubled`, also for a time that has not come.
    """
    text = typed.strip()
    if len(text) > TYPED_MAX:
        raise _wrong(f"{shown(typed)} is no moment")
    if (found := AGO.fullmatch(text)) and any(found.groups()):
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return _time(typed, _before(now, days=days, hours=hours, minutes=minutes, seconds=seconds), now)
    if (found := CLOCK_TIME.fullmatch(text)) and (time := _time_of_day(found, now)) is not None:
        return _time(typed, time, now)
    if found := POSITION.fullmatch(text):
        return Moment(typed, _position(found, typed), None)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise _wrong(f"{shown(typed)} is no moment") from None
    return _time(typed, time if time.tzinfo else time.replace(tzinfo=UTC), now)


def _before(now: datetime, *, days: int, hours: int, minutes: int, seconds: int) -> datetime:
    try:
        return now - timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _time_of_day(found: re.Match[str], now: datetime) -> datetime | None:
    """The last moment with this time of day; None where it is none."""
    hour, minute, second = (int(part or 0) for part in found.groups())
    if len(found[1]) < 2 or hour >= HOURS or minute >= MINUTES or second >= MINUTES:
        return None
    today = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
    return today if today <= now else today - timedelta(days=1)


def _position(found: re.Match[str], typed: str) -> Position:
    chapter, number = found[1], int(found[2])
    if chapter is None:
        return Position(number)
    if number > SEQUENCE_MAX:
        raise _wrong(f"{shown(typed)} is beyond every position")
    return position_of(int(chapter), number)


def _time(typed: str, time: datetime, now: datetime) -> Moment:
    if time > now:
        raise _wrong(f"{shown(typed)} has not come: it is {now:%Y-%m-%dT%H:%M:%SZ} here")
    return Moment(typed, None, time)


def _wrong(problem: str) -> Troubled:
    return trouble(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", f"at: {problem}", f"give {RULE}")
