"""Positions as people read and type them."""

import pytest
import typer
from typer.testing import CliRunner

from events.base import position_of
from services.cli.app import app
from services.cli.place import parsed, shown
from tests.services.cli.network import Network


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


@pytest.mark.parametrize(("argv", "asked"), [([], 0), (["--from", "1:27"], position_of(1, 27)), (["--from", "5"], 5)])
def test_events_are_read_from_there_or_from_the_beginning(network: Network, argv: list[str], asked: int) -> None:
    """The option may be left out."""
    network.answers.append((404, {"code": "not_found", "detail": "enough"}))
    CliRunner().invoke(app, ["events", *argv, "--api-url", network.url])
    ((path, _),) = network.asked
    assert f"from={asked}" in path.replace("?", "&").split("&")
