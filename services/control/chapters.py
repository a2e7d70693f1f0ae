"""When the log goes on in another chapter: an operator asks, or one holds as much as it may; and its digest until then."""

import asyncio
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from events.base import START, Position, Stretch, chapter_of, spelled
from events.chain import Chain, extended
from events.chapter import ChapterOpened, RollCause
from events.codec import EPOCH
from events.log.between import holds
from events.log.port import Reader, Roll, Rolled, Rolling, Unknown
from projections.cluster.state import Cluster
from runtime.clock import Clock
from runtime.files import write
from runtime.logging import get_logger

logger = get_logger(__name__)

FILE: Final = "log.chain"
SAVE_EVERY_S: Final = 60.0

_encoder = msgspec.msgpack.Encoder()


class Limits(NamedTuple):
    """How much a chapter may hold; the next round closes one that holds more."""

    records: int = 20_000_000
    size_bytes: int = 64 << 30  # of documents


LIMITS: Final = Limits()


class Kept(msgspec.Struct, frozen=True):
    """The digest as it is saved."""

    log_id: str = ""
    chain: Chain = Chain()


class Asked(NamedTuple):
    """An operator who waits until a chapter is closed and the next is open."""

    by: str
    chapter: int
    rolled: asyncio.Future[Rolled]


class Closed(NamedTuple):
    """The last chapter that was closed here, and for how long nothing was written."""

    chapter: int = 0
    gap_s: float = 0.0


class Chapters:
    """Keeps the digest of the log beside the fold, and closes chapters.

    Any control plane may do that, leader or not: the log itself sees to it that it is done once. So whoever is asked
    does it, and a leader that finds a chapter half closed finishes it.
    """

    def __init__(self, log: Rolling, clock: Clock, limits: Limits = LIMITS, *, folder: Path | None = None) -> None:
        self.chain = Chain()
        self._log = log
        self._clock = clock
        self._limits = limits
        self._path = folder / FILE if folder is not None else None
        self._saved_at = clock.monotonic()
        self._asked: list[Asked] = []
        self._shut = 0  # the chapter that was found so
        self._closed = Closed()

    @property
    def chapter(self) -> int:
        """The one that the log was read in."""
        return chapter_of(self.chain.position) or 1

    async def restore(self, reader: Reader, *, log_id: str, to: Position, end: Position) -> None:
        """The digest reaches `to`: from where it was saved, or from the beginning of a log that it was not saved of.

        Raises `Unknown`.
        """
        saved = kept(self._path.parent) if self._path is not None else Kept()
        if (
            saved.log_id == log_id
            and START < saved.chain.position <= end
            and await holds(reader, saved.chain.position, saved.chain.at)
        ):
            self.chain = saved.chain
        if self.chain.position >= to:
            return
        logger.info("chain_read_on", after=self.chain.position, to=to)
        async for stretch in reader.follow(self.chain.position, since=self.chain.at):
            self.chain = extended(self.chain, stretch)
            if self.chain.position >= to:
                return

    def watch(self, cluster: Cluster, stretch: Stretch) -> None:
        """The digest goes on; it is saved now and then. Where it cannot be saved, the next start reads more."""
        before = self.chapter
        self.chain = extended(self.chain, stretch)
        if self.chapter != before:
            self._answer(stretch)
        now = self._clock.monotonic()
        if self._path is None or now - self._saved_at < SAVE_EVERY_S or not cluster.log_id:
            return
        self._saved_at = now
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write(self._path, _encoder.encode(Kept(cluster.log_id, self.chain)), lasting=True)
        except OSError as error:
            logger.error("chain_not_saved", path=str(self._path), error=str(error))

    async def asked(self, by: str) -> Rolled:
        """What came of closing this chapter, once the next is open."""
        asked = Asked(by, self.chapter, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        try:
            return await asked.rolled
        finally:
            self._asked.remove(asked)

    def found_shut(self) -> None:
        """An append was told that the chapter is being closed; perhaps whoever does so has died."""
        self._shut = self.chapter

    def due(self, *, leading: bool) -> RollCause | None:
        """Why the chapter is to be closed now; None where it is not, or was, and that is not read yet."""
        if self._closed.chapter == self.chapter:
            return None
        if self._shut == self.chapter or any(asked.chapter == self.chapter for asked in self._asked):
            return RollCause.ASKED
        if leading and self.chain.records >= self._limits.records:
            return RollCause.RECORDS
        return RollCause.BYTES if leading and self.chain.size_bytes >= self._limits.size_bytes else None

    async def roll(self, cluster: Cluster, cause: RollCause) -> Position:
        """The position of the first record of the next chapter; `START` where it is to be tried again at the next turn."""
        by = next((asked.by for asked in self._asked), "")
        at = max(self._clock.now(), cluster.at or EPOCH)
        self._shut = self.chapter  # until it is read that the next one is open
        try:
            rolled = await self._log.roll(self.chain, Roll(log_id=cluster.log_id, at=at, cause=cause, by=by))
        except Unknown as unknown:
            logger.warning("chapter_not_closed", chapter=self.chapter, cause=str(unknown))
            return START
        self._closed = Closed(self.chapter, rolled.gap_s)
        logger.info("chapter_opened", after=spelled(rolled.closed), why=cause, by=by, gap_s=round(rolled.gap_s, 3))
        return rolled.opened

    def _answer(self, stretch: Stretch) -> None:
        """Who waits for a chapter that was opened in `stretch` is told."""
        for recorded in stretch:
            if isinstance(e := recorded.event, ChapterOpened):
                gap_s = self._closed.gap_s if self._closed.chapter == e.chapter - 1 else 0.0
                for asked in self._asked:
                    if asked.chapter < e.chapter and not asked.rolled.done():
                        asked.rolled.set_result(Rolled(e.previous, recorded.position, gap_s))


def kept(folder: Path) -> Kept:
    """The digest as it was saved in the folder, of whatever log; of none where there is none that can be read."""
    try:
        return msgspec.msgpack.decode((folder / FILE).read_bytes(), type=Kept)
    except (FileNotFoundError, msgspec.MsgspecError):
        return Kept()
