"""Positions in the log as people read them: `1:27` is record 27 of chapter 1. --json and the API have the one number."""

from typing import Final

import typer

SEQUENCE_BITS: Final = 40  # a position is chapter x 2**40 + sequence, see docs/events.md
LARGEST: Final = (1 << 63) - 1


def shown(position: int) -> str:
    """`1:27`."""
    return f"{position >> SEQUENCE_BITS}:{position & ((1 << SEQUENCE_BITS) - 1)}"


def parsed(typed: str | int) -> int:
    """The position that `1:27`, or its one number, names. Raises `typer.BadParameter`."""
    text = str(typed)  # the default of an option is parsed too
    chapter, colon, sequence = text.partition(":")
    parts = (chapter, sequence) if colon else (text,)
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise typer.BadParameter(f"{text!r} is no position: 1:27 is record 27 of chapter 1")
    position = (int(chapter) << SEQUENCE_BITS) + int(sequence) if colon else int(text)
    if position > LARGEST:
        raise typer.BadParameter(f"{text!r} is beyond every position")
    return position
