"""The command as a whole: its help, its usage errors, its messages."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.cli.app import app, main
from services.cli.failure import ExitCode, Failure
from services.cli.options import job_path

COMMANDS = (
    "submit", "run", "jobs", "job", "why", "logs", "wait", "cancel", "resume", "nodes", "queues", "promises", "events", "up", "demo",
    "rebuild", "verify", "serve", "agent",
)  # fmt: skip


def test_help_lists_every_command_and_the_exit_codes() -> None:
    """Each has a help of its own; those that read take --json."""
    runner = CliRunner()
    out = runner.invoke(app, ["--help"]).stdout
    assert "Exit codes: 0 ok" in out
    for command in COMMANDS:
        assert command in out
        said = runner.invoke(app, [command, "--help"], env={"COLUMNS": "200"})
        assert said.exit_code == 0
        assert ("--json" in said.stdout) == (command not in {"up", "demo", "serve", "agent"})


def test_help_wraps_where_the_terminal_ends() -> None:
    """Not where lines of the source do, which are longer than a terminal is wide."""
    said = CliRunner().invoke(app, ["up", "--help"], env={"COLUMNS": "80"}).stdout
    paragraph = said.partition("Ctrl-C ends it")[2].partition("cancel them first.")[0]
    assert min(len(line.strip()) for line in paragraph.splitlines()[1:-1]) > 60


def test_an_interrupt_while_it_is_imported_shows_no_traceback() -> None:
    """Before there is a command that could be interrupted, it ends as any program does."""
    interrupted = """
import os, runpy, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
runpy.run_module("services.cli", run_name="__main__")
"""
    ended = subprocess.run([sys.executable, "-I", "-c", interrupted], capture_output=True, check=False, timeout=60)
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr == b""


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["serve", "all"], "there is no part 'all': control, dispatcher, gate, api, projector"),
        (["jobs", "--api-url", "localhost:80"], "is no http:// or https:// address"),
        (["job", "../x"], "cannot be a job's id"),
    ],
)
def test_wrong_usage_is_a_message_and_exit_code_2(
    argv: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, after the name of the program."""
    monkeypatch.setattr("sys.argv", ["muster", *argv])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.err.startswith("muster: ")
    assert says in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("argv", [["jobs"], ["run", "--", "true"], ["up"], ["verify"]])
def test_a_folder_that_is_gone_is_a_message(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Whatever the command wanted of it."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    monkeypatch.setattr("sys.argv", ["muster", *argv])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("muster: this folder: has been removed\n")


@pytest.mark.parametrize("text", ["", "a/b", "a?b", "a b", "é", "x" * 65, "a.b"])
def test_what_can_be_no_id_is_never_sent(text: str) -> None:
    """It would become a part of an address."""
    with pytest.raises(Failure):
        job_path(text)
