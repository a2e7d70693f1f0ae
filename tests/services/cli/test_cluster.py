"""Commands that start processes here, where there is nothing to start or to look at."""

import subprocess
import sys
from pathlib import Path

import pytest

from services.cli import cluster
from services.cli.app import main
from services.cli.failure import ExitCode


@pytest.mark.parametrize("command", [cluster.verify.__name__, cluster.rebuild.__name__])
def test_without_a_cluster_there_is_nothing_to_verify(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says where it looked and how a cluster is started; 1 would mean that something differs."""
    monkeypatch.setattr("sys.argv", ["muster", command, "--data-dir", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == ExitCode.UNREACHABLE
    err = capsys.readouterr().err
    assert f"No cluster runs on {tmp_path}." in err
    assert "muster up" in err


def test_processes_of_ours_start_isolated_from_the_folder_they_are_started_in(tmp_path: Path) -> None:
    """A job's folder may hold a package of the same name: it is not the one that runs."""
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    argv = (sys.executable, "-I", "-m", "services.cli.__main__", "--version")
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
