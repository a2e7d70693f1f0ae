"""Times as people type them in documents: seconds of `90s` or `10m`, and back."""

from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from events.base import Count
from services.gate.names import shown
from services.gate.problems import wrong
from services.gate.spec import DURATION, DURATION_RULE

COUNT_MAX: Final = (1 << 31) - 1
SECONDS_MAX: Final = 31_536_000  # a year
UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60))


def seconds(value: object) -> object:
    """The seconds of a number, or of text such as 1h30m. Raises what a validator raises."""
    if isinstance(value, str) and (found := DURATION.fullmatch(value.strip())) and any(found.groups()):
        days, hours, minutes, left = (int(part or 0) for part in found.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + left
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise wrong(f"must be {DURATION_RULE}, not {shown(value)}")


def whole_seconds(value: object) -> object:
    """`seconds`, where no part of one is meant."""
    found = seconds(value)
    if isinstance(found, float) and not found.is_integer():
        raise wrong(f"must be whole seconds, not {shown(value)}")
    return int(found) if isinstance(found, float) else found


def duration(given_s: float) -> str | float:
    """How a time is typed: in the largest unit that divides it; a number where it has parts of a second."""
    if given_s != int(given_s):
        return given_s
    name, unit_s = next((unit for unit in UNITS if given_s and given_s % unit[1] == 0), ("s", 1))
    return f"{int(given_s) // unit_s}{name}"


Span = Annotated[float, BeforeValidator(seconds), Field(gt=0, le=SECONDS_MAX)]
WholeSpan = Annotated[Count, BeforeValidator(whole_seconds), Field(ge=0, le=SECONDS_MAX)]
