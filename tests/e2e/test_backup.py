"""A cluster that loses its servers' data is put back from a copy, and goes on with the agents that lived on."""

import shutil
from pathlib import Path

import pytest

from runtime.fault import Fault
from services.cli.backup import backup, restore
from tests.e2e.user import User, eventually

pytestmark = pytest.mark.slow

QUICK = {"name": "quick", "gpus": 2, "command": ["true"]}
LONG = {"name": "long", "gpus": 8, "command": ["sleep", "600"], "stop_grace_s": 1}


def test_what_is_no_copy_is_neither_written_nor_read(tmp_path: Path) -> None:
    """A folder that holds something else is left alone."""
    (tmp_path / "mine").touch()
    with pytest.raises(Fault) as full:
        backup(tmp_path, data_dir=tmp_path)
    assert full.value.code == "folder_not_empty"
    with pytest.raises(Fault) as none:
        restore(tmp_path, data_dir=tmp_path)
    assert none.value.code == "no_backup"


def test_a_cluster_is_put_back_from_a_copy(breaker: User) -> None:
    """Jobs of the copy are there and go on; what came after it is gone, its ranks are ended, and its GPUs come back."""
    user = breaker
    before = user.submit(QUICK)
    user.ok("wait", before)
    running = user.submit(LONG)
    eventually(lambda: user.state(running) == "running", "the job of the copy runs")
    said = user.ok("backup", "copy")
    assert "log " in said.out
    assert "tables " in said.out
    user.ok("log", "roll")
    lost = user.submit(LONG | {"gpus": 4})
    eventually(lambda: user.state(lost) == "running", "the job after the copy runs")
    assert user.down() == 0
    for part in ("nats", "postgres"):
        shutil.rmtree(user.data_dir / part)

    assert "goes on at 3:1" in user.ok("restore", "copy").out
    assert user.muster("restore", "copy").code != 0, "a log is never replaced"
    user.up()

    assert (user.state(before), user.state(running)) == ("succeeded", "running")
    assert user.muster("job", lost).code != 0
    after = user.submit(QUICK)
    user.ok("wait", after)
    eventually(lambda: free(user) == 8, "the GPUs of the lost job are free")
    user.ok("cancel", running)
    eventually(lambda: user.state(running) == "cancelled", "the job of the copy ends")
    assert user.ok("verify").code == 0


def free(user: User) -> int:
    """GPUs that may be given away."""
    return sum(node["gpus_free"] for node in user.ok("nodes", "--json").documents)
