"""A disk that is full: it is said, nothing that was acknowledged is lost, and with more room all goes on."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from events.ask import RefusalCode, Refused, Report
from events.base import NodeEpoch, Position, sequence_of
from events.log.append import JetStreamLog
from events.log.batch import LOG_FULL
from events.log.port import Unknown
from events.log.streams import StreamSettings, found
from runtime.clock import SystemClock
from runtime.embedded.nats import EmbeddedNats
from runtime.nats import connect
from services.gate.gate import open_gate
from services.gate.lane import FULL
from tests.events.log.rigs import NODE, decided, read_to, started

SMALL: Final = "6m"  # of which the server takes three quarters
LARGE: Final = "64m"
FACTS: Final = 100


def mounted(folder: Path, size: str, *options: str) -> bool:
    """Whether a disk of this size, in memory, is at the folder now."""
    argv = ["mount", "-t", "tmpfs", "-o", ",".join((f"size={size}", *options)), "tmpfs", str(folder)]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a small disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mounted(folder, SMALL):
        pytest.skip("this user may not mount a small disk: the log is not filled here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def filled(log: JetStreamLog) -> tuple[Position, Unknown]:
    """The last position that was acknowledged, and what is said then."""
    last = Position(0)
    for n in range(1_000):
        try:
            last = await log.record([started(f"{n}-{k}-{'x' * 300}") for k in range(FACTS)])
        except Unknown as full:
            return last, full
    raise AssertionError("the disk never was full")


async def test_a_full_disk_is_said_and_what_was_acknowledged_is_kept(disk: Path) -> None:
    """To deciders, and to whoever asks the gate; once there is room, and the server knows, all goes on."""
    server = EmbeddedNats(disk)
    await server.start()
    connection = await connect(server.login("system"), name="test")
    await found(connection, StreamSettings(logs_bytes=1 << 16))
    log = JetStreamLog(connection)
    last, full = await filled(log)
    assert full.code == LOG_FULL
    assert "room" in full.hint
    head = await log.last("head")
    assert head is not None
    with pytest.raises(Unknown) as refused:
        await log.append(decided("j1"), after=head.position)
    assert refused.value.code == LOG_FULL
    async with open_gate(log, SystemClock()) as gate:
        fact = msgspec.structs.replace(started("j1-1"), node_epoch=NodeEpoch(1))
        answer = await gate.report(NODE, Report(instance="i", reports=(fact,)))
    assert answer == FULL
    assert isinstance(answer, Refused)
    assert answer.code is RefusalCode.BUSY
    await connection.close()
    await server.stop()

    assert mounted(disk, LARGE, "remount")
    await server.start()
    connection = await connect(server.login("system"), name="test")
    log = JetStreamLog(connection)
    assert await log.end() == last
    assert len(await read_to(log, last)) == sequence_of(last)
    assert await log.append(decided("j1"), after=head.position) == last + 2
    await connection.close()
    await server.stop()
