"""Decimals that are exact: whole numbers of a power of ten, and their text."""

import re
from typing import Final, NamedTuple

DECIMAL: Final = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,12}))?")


class Exact(NamedTuple):
    """The number `units` / 10 ** `places`."""

    units: int
    places: int = 0

    def __str__(self) -> str:
        """Its digits, without a plus sign, without zeros at the end: `192`, `0.5`, `-0.000001`."""
        if not self.places:
            return str(self.units)
        digits = str(abs(self.units)).rjust(self.places + 1, "0")
        rest = digits[-self.places :].rstrip("0")
        text = digits[: -self.places]
        return f"{'-' if self.units < 0 else ''}{text}{'.' if rest else ''}{rest}"

    def times(self, other: "Exact") -> "Exact":
        """The product, with all its places."""
        return Exact(self.units * other.units, self.places + other.places)

    def at(self, places: int) -> int:
        """Its units at so many places, which are at least its own."""
        return int(self.units * 10 ** (places - self.places))

    def __neg__(self) -> "Exact":
        return Exact(-self.units, self.places)


ZERO: Final = Exact(0)


def exact(text: str) -> Exact | None:
    """The number that a decimal without a sign means, with as few places as say it; None for any other text."""
    found = DECIMAL.fullmatch(text)
    if found is None:
        return None
    places = (found[2] or "").rstrip("0")
    return Exact(int(found[1] + places), len(places))
