"""Credits as people type and read them: decimals with up to six places, kept as whole micro-credits."""

import re
from typing import Final

MICRO: Final = 1_000_000
PLACES: Final = 6
DECIMAL: Final = re.compile(r"([+-]?)([0-9]{1,30})(?:\.([0-9]{1,30}))?")
DECIMAL_RULE: Final = f"a decimal with up to {PLACES} places, such as 192 or 0.5"


def spelled_credits(micro: int) -> str:
    """An amount as people read it, exactly: `192`, `0.5`, `-0.000001`; no zeros at its end."""
    whole, rest = divmod(abs(micro), MICRO)
    places = f".{rest:0{PLACES}}".rstrip("0") if rest else ""
    return f"{'-' if micro < 0 else ''}{whole}{places}"


def told_credits(micro: int) -> str:
    """An amount in a sentence: `192 credits`, `1 credit`."""
    return f"{spelled_credits(micro)} credit{'' if abs(micro) == MICRO else 's'}"


def micro_credits(text: str) -> int | None:
    """The micro-credits that such a text means, exactly; None for any other text, and for more than six places."""
    found = DECIMAL.fullmatch(text)
    if found is None:
        return None
    sign, whole, places = found[1], found[2], (found[3] or "").rstrip("0")
    if len(places) > PLACES:
        return None
    micro = int(whole) * MICRO + int(places.ljust(PLACES, "0"))
    return -micro if sign == "-" else micro
