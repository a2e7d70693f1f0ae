"""Positions as people read and type them."""

import pytest
import typer

from events.base import position_of
from services.cli.place import parsed, shown


@pytest.mark.parametrize(("chapter", "sequence"), [(0, 0), (1, 1), (1, 27), (12, 999_999_999)])
def test_a_position_reads_as_chapter_and_record(chapter: int, sequence: int) -> None:
    """And is typed so, or as the one number."""
    position = position_of(chapter, sequence)

    assert shown(position) == f"{chapter}:{sequence}"
    assert parsed(shown(position)) == parsed(str(position)) == position


@pytest.mark.parametrize("text", ["", "x", "-1", "1:", ":1", "1:2:3", "1.5", "9" * 30, "²"])
def test_what_is_no_position_is_refused(text: str) -> None:
    """With an example of one."""
    with pytest.raises(typer.BadParameter):
        parsed(text)
