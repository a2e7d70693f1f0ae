"""Moments as people type them: a time with its zone, or so long from now."""

from datetime import datetime, timedelta
from typing import Final

from pydantic_core import PydanticCustomError

from services.gate.durations import SECONDS_MAX, seconds
from services.gate.names import shown
from services.gate.problems import wrong

RULE: Final = "a time with its zone, such as 2026-12-01T14:00:00Z, or how long from now, such as 30m"


def moment(typed: str, now: datetime) -> datetime:
    """The moment that is meant. Raises what a validator raises."""
    try:
        found = datetime.fromisoformat(typed.strip())
    except ValueError:
        return now + timedelta(seconds=_from_now(typed))
    if found.tzinfo is None:
        raise wrong(f"must be {RULE}, not {shown(typed)}", f"add the zone: {typed.strip()}Z is UTC")
    return found


def _from_now(typed: str) -> float:
    try:
        span_s = float(str(seconds(typed)))
    except PydanticCustomError as error:
        raise wrong(f"must be {RULE}, not {shown(typed)}") from error
    if span_s > SECONDS_MAX:
        raise wrong(f"must be within a year, not {shown(typed)}")
    return span_s
