"""What an agent keeps on its disk, and what it does when that takes nothing more."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agent.core.found import Step, Told, Why
from agent.core.patience import Contact
from agent.records import Identity, Records, StartRecord, StopRecord
from events.base import GpuUuid, NodeEpoch, NodeId, RunId
from tests.agent.control import share_of

RUN = RunId("jaa-1")
IDENTITY = Identity(node_id=NodeId("n1"), instance="i", port_base=1)
STOP = StopRecord(why=Why.ORDER, began_s=1.0, step=Step.TERM)


def begun(folder: Path) -> Records:
    """The records of an agent that began a run."""
    records = Records(folder)
    share = share_of((GpuUuid("g"),), "true")
    records.begin(StartRecord(share=share, epoch=NodeEpoch(1), boot_id="b", instance="i", at_s=0.0))
    return records


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Records]:
    """The records of an agent whose disk takes nothing more, from after the begin of a run on."""
    records = begun(tmp_path)
    records.keep_identity(IDENTITY)

    opened = Path.open

    def read_only(path: Path, mode: str = "r", **options: Any) -> Any:
        if mode not in {"r", "rb"}:
            raise OSError(28, "No space left on device")
        return opened(path, mode, **options)

    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", read_only)
    monkeypatch.setattr("os.pwrite", refuse)
    yield records
    monkeypatch.undo()


def test_what_only_saves_work_is_left_out_where_the_disk_is_full(full: Records) -> None:
    """A stop goes on, and reports count as told; what would be forgotten by a restart is done once more then."""
    full.keep_stop(RUN, STOP)
    full.keep_told(RUN, Told.ENDED)
    full.keep_contact("b", Contact(sent_s=5.0, patience_s=90.0))
    full.keep_identity(replace(IDENTITY, epoch=NodeEpoch(7)))

    assert (full.runs[RUN].stop, full.runs[RUN].told) == (STOP, {Told.ENDED})


def test_nothing_begins_where_the_disk_is_full(full: Records) -> None:
    """A start that is not on the disk might be done twice."""
    share = share_of((GpuUuid("g"),), "true", job="other")
    with pytest.raises(OSError, match="No space left"):
        full.begin(StartRecord(share=share, epoch=NodeEpoch(1), boot_id="b", instance="i", at_s=0.0))
    assert list(full.runs) == [RUN]


def test_a_word_that_was_cut_off_is_not_told(tmp_path: Path) -> None:
    """The agent ended, or the disk was full, in the middle of it: it is told again."""
    begun(tmp_path)
    (tmp_path / "runs" / RUN / "told").write_text("started\nend")

    assert Records(tmp_path).runs[RUN].told == {Told.STARTED}
