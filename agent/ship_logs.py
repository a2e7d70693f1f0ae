"""The output of ranks, on its way from their log files to the LOGS stream: in order, whole, at least once.

Each message says in `Muster-Offset` which byte of the rank's output it begins with: a reader that has read up to byte n
skips what lies before n, since after a restart some of it comes again; one that finds a gap goes on behind it. Files are
cut once all of them was shipped, or, when shipping does not keep up, at `WAITING_MAX`: that makes a gap, and the output
itself says so behind it. The few bytes that a rank writes in the very moment of a cut are lost.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec

from agent.records import RunRecord
from events.base import RunId
from events.desired import DesiredShare
from runtime.files import write
from runtime.logging import get_logger

logger = get_logger(__name__)

OFFSET_HEADER: Final = "Muster-Offset"
CHUNK_MAX: Final = 64 * 1024  # bytes in one message
CHUNKS_MAX: Final = 32  # of one rank in one pass: then the next rank has its turn
CUT_AT: Final = 16 * 1024 * 1024  # a file as long as this is cut once all of it was shipped
WAITING_MAX: Final = 64 * 1024 * 1024  # and this long, shipped or not

Send = Callable[[DesiredShare, int, int, bytes], Awaitable[bool]]  # share, rank, offset, bytes: whether stored


class Mark(msgspec.Struct):
    """How far one rank's output has been shipped."""

    place: int = 0  # in the file
    offset: int = 0  # in the output
    dropped: int = 0  # bytes lost by a cut that have not been told of yet


class LogShipper:
    """Ships the output of runs. How far it came is kept in each run's folder."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._marks: dict[RunId, dict[int, Mark]] = {}
        self._one_at_a_time = asyncio.Lock()

    def waits(self, record: RunRecord) -> bool:
        """Whether output of the run was not shipped yet."""
        marks = self._marks_of(record)
        return any(_size(record, rank) != marks[rank].place or marks[rank].dropped for rank in record.ranks)

    async def ship(self, record: RunRecord) -> bool:
        """One pass over a run's ranks. True: all its output, as of now, is in the stream."""
        async with self._one_at_a_time:
            if not self.waits(record):
                return True
            whole = True
            for rank in record.ranks:
                whole = await self._ship_rank(record, rank) and whole
            return whole

    def forget(self, run_id: RunId) -> None:
        """Nothing more comes of this run."""
        self._marks.pop(run_id, None)

    async def _ship_rank(self, record: RunRecord, rank: int) -> bool:
        mark = self._marks_of(record)[rank]
        try:
            file = os.open(record.path(rank, "log"), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True  # it was never started
        try:
            if os.fstat(file).st_size < mark.place:  # it was cut, and the agent ended before it noted that
                mark.place = 0
            for _ in range(CHUNKS_MAX):
                if not (data := _told(mark) or os.pread(file, CHUNK_MAX, mark.place)):
                    break
                if not await self._send(record.start.share, rank, mark.offset, data):
                    break
                self._move(record, mark, len(data))
            self._cut(record, rank, file)
            return os.fstat(file).st_size == mark.place and not mark.dropped
        finally:
            os.close(file)

    def _move(self, record: RunRecord, mark: Mark, size: int) -> None:
        mark.offset += size
        if mark.dropped:
            mark.dropped = 0
        else:
            mark.place += size
        self._keep(record)

    def _cut(self, record: RunRecord, rank: int, file: int) -> None:
        mark = self._marks_of(record)[rank]
        size = os.fstat(file).st_size
        if size > WAITING_MAX or (size >= CUT_AT and size == mark.place):
            os.ftruncate(file, 0)
            mark.dropped += size - mark.place
            mark.offset += size - mark.place  # some of it may be stored, though no answer came
            mark.place = 0
            self._keep(record)
            if mark.dropped:
                logger.warning("log_dropped", run_id=record.start.share.run_id, rank=rank, bytes=mark.dropped)

    def _marks_of(self, record: RunRecord) -> dict[int, Mark]:
        run_id = record.start.share.run_id
        if run_id not in self._marks:
            kept: dict[int, Mark] = {}
            with suppress(FileNotFoundError):
                kept = msgspec.json.decode((record.folder / "shipped.json").read_bytes(), type=dict[int, Mark])
            self._marks[run_id] = {rank: kept.get(rank, Mark()) for rank in record.ranks}
        return self._marks[run_id]

    def _keep(self, record: RunRecord) -> None:
        """The marks are on the disk, if they can be. A run that was forgotten meanwhile needs none."""
        with suppress(OSError):  # without them, some output is shipped again after a restart
            write(record.folder / "shipped.json", msgspec.json.encode(self._marks_of(record)))


def _size(record: RunRecord, rank: int) -> int:
    try:
        return record.path(rank, "log").stat().st_size
    except FileNotFoundError:
        return 0


def _told(mark: Mark) -> bytes:
    """What the output says about bytes that were dropped; nothing when none were."""
    return b"\n[muster: %d bytes of output were dropped here]\n" % mark.dropped if mark.dropped else b""
