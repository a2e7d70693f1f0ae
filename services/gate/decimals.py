"""Decimals as people type them in documents, exactly: credits with up to six places, factors with up to three."""

from decimal import Decimal
from typing import Any, Final

from events.amounts import DECIMAL_RULE, MICRO, micro_credits, spelled_credits
from services.gate.names import shown
from services.gate.problems import wrong

CREDITS_MAX: Final = 1_000_000_000_000  # of one amount that people type
MILLI: Final = 1_000
# A number with a point is a binary fraction by the time it gets here. Below this the shortest decimal that it can be is
# the one that was typed, if that has at most six places.
NUMBER_MAX: Final = 1_000_000_000


def credits_typed(value: object) -> int:
    """The micro-credits of a number, or of text such as "0.5": 0 or more. Raises what a validator raises."""
    micro = _micro(value)
    if micro < 0:
        raise wrong(f"must be 0 or more, not {shown(value)}")
    if micro > CREDITS_MAX * MICRO:
        raise wrong(f"must be {CREDITS_MAX} or less, not {shown(value)}")
    return micro


def milli_typed(value: object) -> int:
    """The thousandths of a factor: 0 or more. Raises what a validator raises."""
    micro = _micro(value)
    if micro < 0:
        raise wrong(f"must be 0 or more, not {shown(value)}")
    if micro % MILLI:
        raise wrong(f"must have up to 3 places, not {shown(value)}", "factors are whole thousandths: 1.25")
    return micro // MILLI


def typed_decimal(micro: int) -> int | float | str:
    """How an amount is typed: a number where that says it exactly, else text. Read back, it is the same."""
    if micro % MICRO == 0:
        return micro // MICRO
    text, number = spelled_credits(micro), micro / MICRO
    return number if repr(number) == text and abs(number) < NUMBER_MAX else text


def decimal_schema(description: str) -> dict[str, Any]:
    """The JSON Schema of such a field."""
    text = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]{1,6})?$"}
    return {"anyOf": [{"type": "number", "minimum": 0}, text], "description": description}


def _micro(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value * MICRO
    if isinstance(value, str):
        text = value.strip()
    elif isinstance(value, float) and abs(value) < NUMBER_MAX:
        text = format(Decimal(repr(value)), "f")
    elif isinstance(value, float) and abs(value) < CREDITS_MAX:
        raise wrong(f"{shown(value)} may not be what was typed: it is too large for a number with a point", QUOTES)
    else:
        text = ""
    micro = micro_credits(text)
    if micro is None:
        raise wrong(f"must be {DECIMAL_RULE}, not {shown(value)}")
    return micro


QUOTES: Final = 'put quotes around it: "1234567890.5"'
