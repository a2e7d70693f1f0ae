"""The progress bar: only for what takes long, only on a terminal, and never on stdout."""

import sys

import pytest

from runtime.clock import ManualClock
from services.cli import progress


@pytest.mark.parametrize(
    ("terminal", "passed_s", "shown"), [(True, 3.0, True), (True, 1.0, False), (False, 3.0, False)]
)
def test_a_bar_is_shown_only_to_people_who_wait(
    terminal: bool, passed_s: float, shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program that reads stderr gets none, and a short simulation flashes none."""
    clock = ManualClock()
    monkeypatch.setattr(progress, "CLOCK", clock)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.progress("trace.csv") as watch:
        clock.advance(passed_s)
        watch(30, 100)
    said = capsys.readouterr()
    assert ("trace.csv" in said.err) == shown
    assert said.out == ""
