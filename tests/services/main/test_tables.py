"""The verdict on tables and log, and where it is read from."""

from pathlib import Path

import pytest

from events.base import Position
from projections.cluster.audit.audit import Finding
from projections.tables.verify import Difference, Verified
from runtime.embedded.credentials import Credentials
from runtime.fault import Fault
from runtime.settings import ReaderSettings
from services.main.local import Running, write_running
from services.main.parts import read_here
from services.main.tables import lines_of

SAME = Verified(Position(9), {"job_view": 2, "run_view": 1}, (), {})


def test_the_verdict_says_what_was_compared_and_what_differs() -> None:
    """One line each when all is well; what is wrong is listed."""
    assert lines_of(SAME, 7, []) == [
        "tables  same as the log says: 3 rows in 2 tables, up to position 0:9",
        "log     holds: 7 records, no GPU twice, no partial gang, every GPU given back by its run",
    ]
    difference = Difference("job_view", {"job_id": "jx"}, ("state",), {"state": "queued"}, {"state": "running"})
    differs = Verified(Position(9), {"job_view": 2}, (difference,), {"job_view": 1})
    text = "\n".join(lines_of(differs, 7, [Finding(Position(5), "no_gpu_twice", "slot 3 of node-1")]))
    for part in (
        "DIFFER",
        "job_view: 1",
        "{'job_id': 'jx'} in state",
        "BROKEN: 1 findings",
        "at 0:5: no_gpu_twice: slot 3",
    ):
        assert part in text


def test_a_running_cluster_is_read_as_reader(tmp_path: Path) -> None:
    """Its servers from its data directory, its password from the file beside; nothing by another name."""
    write_running(tmp_path, Running("http://x", "nats://x:1", "postgresql://x"))
    password = Credentials(tmp_path).ensure(["reader"])["reader"]
    settings = read_here(ReaderSettings, tmp_path)
    assert settings.nats_urls == ("nats://x:1",)
    assert (settings.nats_user, settings.nats_password.get_secret_value()) == ("reader", password)
    assert settings.postgres_dsn.get_secret_value() == "postgresql://x"


def test_the_environment_goes_before_a_cluster_that_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And without both there is nothing to read."""
    with pytest.raises(Fault, match="No cluster runs on"):
        read_here(ReaderSettings, tmp_path)
    write_running(tmp_path, Running("http://x", "nats://x:1", "postgresql://x"))
    monkeypatch.setenv("MUSTER_NATS_URLS", "nats://elsewhere:1")
    assert read_here(ReaderSettings, tmp_path).nats_urls == ("nats://elsewhere:1",)
