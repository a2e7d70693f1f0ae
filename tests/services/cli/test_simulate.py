"""`muster simulate` as it is typed: what is on stdout, what on stderr, and how it ends."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.cli.app import main
from services.cli.simulate import app

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
PLACE = ("place", "--nodes", "1250", "--gpus-per-node", "8", "--jobs", str(EXAMPLES / "worked-example.txt"))


def failed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    """The exit code and stderr of a command that fails."""
    monkeypatch.setattr("sys.argv", ["muster", "simulate", *argv])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), capsys.readouterr().err


def test_place_prints_the_document_and_nothing_else() -> None:
    """The worked example."""
    said = CliRunner().invoke(app, [*PLACE, "--policy", "spread", "--json"])
    assert said.exit_code == 0
    assert json.loads(said.stdout) == {
        "jobs": 862, "gpus": 8988, "placed": 807, "rejected": 55, "free_gpus": 2492, "free_whole_nodes": 0,
    }  # fmt: skip
    assert "free_whole_nodes    126" in CliRunner().invoke(app, PLACE).stdout


def test_trace_prints_the_same_bytes_twice_and_draws_the_same_picture(tmp_path: Path) -> None:
    """How long it took is on stderr."""
    (tmp_path / "t.csv").write_text("job_id,submit_s,gpus,runtime_s\na,0,8,10\nb,0,8,20\n")
    argv = ["trace", str(tmp_path / "t.csv"), "--nodes", "1", "--order", "sjf", "--backfill", "none"]
    said = [CliRunner().invoke(app, [*argv, "--json", "--plot", str(tmp_path / f"{n}.svg")]) for n in range(2)]
    assert said[0].stdout == said[1].stdout
    document = json.loads(said[0].stdout)
    assert (document["jobs"], document["dropped"], document["wait_mean_s"]) == (2, 0, 5.0)
    assert (tmp_path / "0.svg").read_bytes() == (tmp_path / "1.svg").read_bytes()
    table = CliRunner().invoke(app, argv)
    assert re.search(r"utilisation +100\.0%", table.stdout)
    assert "2 jobs in" in table.stderr


def test_a_workload_is_told_by_team_and_by_size() -> None:
    """As tables, and by field where it is wrong."""
    said = CliRunner().invoke(app, ["workload", str(EXAMPLES / "simulated-teams.yaml")])
    for words in ("two teams", "research", "33-64", "evictions"):
        assert words in said.stdout


@pytest.mark.parametrize(
    ("argv", "text", "said"),
    [
        (("trace", "F", "--nodes", "1"), "job_id,submit_s,gpu,runtime_s\n", "F:1: there is no column 'gpu'"),
        (("place", "--jobs", "F", "--nodes", "1"), "1\nx\n", "F:2: 'x' is no GPU count"),
        (("workload", "F"), "nodes: [{}]\njobs:\n- {name: j, gpus: 0, runtime: 1}\n", "F:3: jobs.0.gpus: must be 1"),
        (("workload", "F"), "a: [", "F:1: not YAML"),
        (("log", "--policy", "F"), "order: fifo\npromise: 1\n", "F:2: promise: there is no such field"),
        (("trace", "F", "--nodes", "1", "--plot", "p.gif"), "", "--plot: p.gif"),
    ],
)
def test_a_bad_file_is_wrong_usage_and_its_line_is_named(
    argv: tuple[str, ...],
    text: str,
    said: str,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever kind of file."""
    (tmp_path / "F").write_text(text)
    monkeypatch.chdir(tmp_path)
    code, err = failed(monkeypatch, capsys, *argv)
    assert code == 2
    assert f"muster: {said}" in err
