"""Shipping output: nothing twice for a reader that minds offsets, nothing silently lost, and bounded files."""

from pathlib import Path

import pytest

from agent import ship_logs
from agent.records import Records, RunRecord, StartRecord
from agent.ship_logs import CHUNK_MAX, LogShipper
from events.base import GpuUuid, NodeEpoch
from events.desired import DesiredShare
from tests.agent.control import share_of


class Stream:
    """Keeps what it is sent, at least once; says no when told to."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, bytes]] = []
        self.answers = True

    async def send(self, _share: DesiredShare, _rank: int, offset: int, data: bytes) -> bool:
        """As `Send`."""
        self.sent.append((offset, data))
        return self.answers

    @property
    def output(self) -> bytes:
        """As a reader puts it together."""
        output = b""
        length = 0
        for offset, data in self.sent:
            length = max(length, offset)  # behind a gap
            output += data[length - offset :]
            length = max(length, offset + len(data))
        return output


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    """A run of one rank."""
    share = share_of((GpuUuid("GPU-0"),), "true")
    return Records(tmp_path).begin(StartRecord(share=share, epoch=NodeEpoch(1), boot_id="b", instance="i", at_s=0.0))


def write(record: RunRecord, data: bytes) -> None:
    """The rank printed `data`."""
    with record.path(0, "log").open("ab") as file:
        file.write(data)


async def test_what_was_not_stored_comes_again_also_after_a_restart(record: RunRecord) -> None:
    """No gap, and repeats that the offset tells."""
    stream = Stream()
    shipper = LogShipper(stream.send)
    write(record, b"a" * (CHUNK_MAX + 5))
    assert shipper.waits(record)
    assert await shipper.ship(record)
    assert not shipper.waits(record)
    assert [len(data) for _, data in stream.sent] == [CHUNK_MAX, 5]

    stream.answers = False
    write(record, b"bb")
    assert not await shipper.ship(record)
    stream.answers = True
    write(record, b"cc")
    assert await LogShipper(stream.send).ship(record)

    assert stream.output == b"a" * (CHUNK_MAX + 5) + b"bbcc"


async def test_a_long_file_is_cut_once_it_was_shipped(record: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is bounded, and the output goes on without a gap."""
    monkeypatch.setattr(ship_logs, "CUT_AT", 100)
    stream = Stream()
    shipper = LogShipper(stream.send)
    write(record, b"x" * 150)

    assert await shipper.ship(record)
    assert record.path(0, "log").stat().st_size == 0
    write(record, b"y")
    assert await LogShipper(stream.send).ship(record)

    assert stream.output == b"x" * 150 + b"y"


async def test_what_is_dropped_is_said_in_the_output(record: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the servers are away for long, the file is cut all the same."""
    monkeypatch.setattr(ship_logs, "WAITING_MAX", 100)
    stream = Stream()
    stream.answers = False
    shipper = LogShipper(stream.send)
    write(record, b"x" * 150)
    assert not await shipper.ship(record)
    assert record.path(0, "log").stat().st_size == 0
    assert shipper.waits(record)

    stream.sent.clear()
    stream.answers = True
    write(record, b"more")
    assert await LogShipper(stream.send).ship(record)

    assert stream.sent[0][0] == 150
    assert stream.output == b"\n[muster: 150 bytes of output were dropped here]\nmore"
