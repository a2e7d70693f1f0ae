"""`muster credits reconcile` where there is nothing to compare: what it compares is tested where it is done."""

from pathlib import Path

import pytest

from services.cli import reconcile
from services.cli.app import main
from services.cli.failure import ExitCode


def test_without_a_cluster_there_is_nothing_to_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says where it looked; 1 would mean that something differs."""
    assert reconcile.reconcile.__doc__
    monkeypatch.setattr("sys.argv", ["muster", "credits", "reconcile", "--data-dir", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == ExitCode.UNREACHABLE
    assert f"No cluster runs on {tmp_path}." in capsys.readouterr().err
