"""Where a control plane starts from: its snapshot when that is of this log, and nothing when anything is doubtful."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from events.base import START, Position, position_of, sequence_of
from events.log.memory import MemoryLog
from projections.cluster.snapshot import dump
from runtime import files
from runtime.clock import ManualClock
from services.control.snapshots import EVENTS_MIN, FILE, Snapshots
from tests.clusters import World
from tests.events.log.rigs import started

EVERY_S = 60.0
BEGIN = datetime.fromisoformat("2020-01-01T00:00:00+00:00")  # before all that happens in a `World`


@pytest.fixture
def clock() -> ManualClock:
    """Moved by hand."""
    return ManualClock()


def grown(jobs: int) -> World:
    """A cluster that so many jobs wait in."""
    world = World({"n1": 4})
    for number in range(jobs):
        world.submit(f"job{number}", 1)
    return world


async def log_of(records: int, at: datetime = BEGIN) -> MemoryLog:
    """A log of so many records, all stored at one moment."""
    log = MemoryLog("main", lambda: at)
    for first in range(0, records, 1_000):
        await log.record([started(str(number)) for number in range(first, min(first + 1_000, records))])
    return log


async def test_a_snapshot_is_written_when_it_is_time_and_enough_has_happened(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Not before: few events are read again faster than a snapshot is written. Its folder need not be there."""
    folder = tmp_path / "control"
    kept = Snapshots(folder, clock, every_s=EVERY_S)
    cluster = grown(3).cluster
    kept.watch(cluster, ())
    assert not folder.exists()
    clock.advance(EVERY_S)
    kept.watch(cluster, ())
    assert not folder.exists(), "a few events are read again faster"
    cluster.position = Position(cluster.position + EVENTS_MIN)
    kept.watch(cluster, ())
    first = (folder / FILE).read_bytes()

    clock.advance(EVERY_S)
    cluster.position = Position(cluster.position + EVENTS_MIN - 1)
    kept.watch(cluster, ())
    assert (folder / FILE).read_bytes() == first
    cluster.position = Position(cluster.position + 1)
    kept.watch(cluster, ())
    assert (folder / FILE).read_bytes() == dump(cluster) != first
    cluster.position = Position(cluster.position + EVENTS_MIN)
    kept.watch(cluster, ())
    assert [path.name for path in folder.iterdir()] == [FILE]

    log = await log_of(sequence_of(cluster.position))
    restored = await Snapshots(folder, clock, every_s=EVERY_S).restore(log, log_id="test", end=cluster.position)
    assert restored.position == cluster.position - EVENTS_MIN


def test_a_snapshot_is_written_in_later_chapters_too(tmp_path: Path, clock: ManualClock) -> None:
    """Records of the chapter before are not counted against those of this one."""
    kept = Snapshots(tmp_path, clock, every_s=EVERY_S)
    cluster = grown(3).cluster
    for position, saved in (
        (position_of(1, 2 * EVENTS_MIN), True),
        (position_of(2, EVENTS_MIN - 1), False),
        (position_of(2, EVENTS_MIN), True),
        (position_of(2, 2 * EVENTS_MIN - 1), False),
    ):
        clock.advance(EVERY_S)
        cluster.position = position
        kept.watch(cluster, ())
        assert ((tmp_path / FILE).read_bytes() == dump(cluster)) == saved


def test_a_snapshot_that_cannot_be_written_is_tried_again_in_its_time(tmp_path: Path, clock: ManualClock) -> None:
    """Deciding goes on meanwhile: here a file stands where the folder should be, elsewhere a disk is full."""
    folder = tmp_path / "control"
    folder.touch()
    kept = Snapshots(folder, clock, every_s=EVERY_S)
    cluster = grown(3).cluster
    cluster.position = Position(cluster.position + EVENTS_MIN)
    clock.advance(EVERY_S)
    kept.watch(cluster, ())
    folder.unlink()
    kept.watch(cluster, ())
    assert not folder.exists()
    clock.advance(EVERY_S)
    kept.watch(cluster, ())
    assert (folder / FILE).read_bytes() == dump(cluster)


async def test_without_a_snapshot_a_plane_starts_from_nothing(tmp_path: Path, clock: ManualClock) -> None:
    """As on its first day."""
    log = await log_of(5)
    cluster = await Snapshots(tmp_path, clock, every_s=EVERY_S).restore(log, log_id="test", end=await log.end())

    assert (cluster.position, cluster.log_id) == (START, "")


@pytest.mark.parametrize(
    "what", ["nothing", "another log", "a log that was cut", "a log that was put back", "damaged", "empty"]
)
async def test_a_doubtful_snapshot_is_thrown_away(tmp_path: Path, clock: ManualClock, what: str) -> None:
    """Reading the whole log again is slow and right. Where nothing is wrong, it is taken."""
    world = grown(3)
    saved = dump(world.cluster)
    bad = {"damaged": saved[:-1] + bytes([saved[-1] ^ 1]), "empty": b""}
    (tmp_path / FILE).write_bytes(bad.get(what, saved))
    end = Position(world.cluster.position - (what == "a log that was cut"))
    assert world.cluster.at is not None
    later = world.cluster.at + timedelta(seconds=1)  # what was put back was written on from there
    log = await log_of(sequence_of(end), later if what == "a log that was put back" else BEGIN)
    log_id = "other" if what == "another log" else "test"
    cluster = await Snapshots(tmp_path, clock, every_s=EVERY_S).restore(log, log_id=log_id, end=end)

    assert (cluster.position, len(cluster.jobs)) == ((end, 3) if what == "nothing" else (START, 0))


def test_a_crash_while_writing_leaves_the_snapshot_before(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new one takes its place whole or not at all."""
    world = grown(1)
    kept = Snapshots(tmp_path, clock, every_s=0)
    world.cluster.position = Position(world.cluster.position + EVENTS_MIN)
    kept.watch(world.cluster, ())
    before = (tmp_path / FILE).read_bytes()

    def crash(_: int) -> None:
        raise RuntimeError("the power went")

    monkeypatch.setattr(files.os, "fsync", crash)  # type: ignore[attr-defined]  # where it is used
    world.cluster.position = Position(world.cluster.position + EVENTS_MIN)
    with pytest.raises(RuntimeError, match="the power went"):
        kept.watch(world.cluster, ())

    assert (tmp_path / FILE).read_bytes() == before
