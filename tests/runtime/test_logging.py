"""Log lines: JSON for machines, with the same fields whoever writes them."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from runtime.logging import configure, get_logger


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Leave logging as the other tests expect it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_a_line_is_one_json_object_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """Off a terminal, each line has its event, level, time, process and fields; stdout stays free for results."""
    configure(level="info", process="control")
    get_logger(__name__).info("lease_taken", position=7)
    get_logger(__name__).debug("not_wanted")
    logging.getLogger("library").warning("theirs %s", "too")
    out, err = capsys.readouterr()
    ours, theirs = (json.loads(line) for line in err.splitlines())
    assert out == ""
    assert (ours["event"], ours["level"], ours["process"], ours["position"]) == ("lease_taken", "info", "control", 7)
    assert ours["at"].endswith("+00:00")
    assert (theirs["event"], theirs["level"]) == ("theirs too", "warning")


def test_a_bug_comes_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """An exception is text in a field, still on one line."""
    configure(json=True)
    try:
        raise KeyError("bug")
    except KeyError:
        get_logger(__name__).error("broken", exc_info=True)
    (line,) = capsys.readouterr().err.splitlines()
    assert "KeyError: 'bug'" in json.loads(line)["exception"]


def test_on_a_terminal_a_line_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """No JSON to read for who sits before it."""
    configure(json=False)
    get_logger(__name__).info("lease_taken", position=7)
    assert not capsys.readouterr().err.startswith("{")
