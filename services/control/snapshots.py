"""Keeps snapshots of the fold in the data directory, so that a start reads the tail of the log and not all of it."""

from pathlib import Path
from typing import Final

from events.base import START, Position, Stretch, chapter_of, sequence_of
from events.log.between import holds
from events.log.port import Reader
from projections.cluster.snapshot import dump, load
from projections.cluster.state import Cluster
from runtime.clock import Clock
from runtime.files import write
from runtime.logging import get_logger

logger = get_logger(__name__)

FILE: Final = "cluster.snapshot"
EVENTS_MIN: Final = 5_000  # since the last snapshot: fewer are read again faster than a snapshot is written


class Snapshots:
    """One snapshot, replaced by the next."""

    def __init__(self, folder: Path, clock: Clock, *, every_s: float) -> None:
        self._path = folder / FILE
        self._clock = clock
        self._every_s = every_s
        self._saved_at = clock.monotonic()
        self._saved: Position = START

    async def restore(self, reader: Reader, *, log_id: str, end: Position) -> Cluster:
        """The saved cluster, if the log has the record that it ends with; else an empty one. Raises `Unknown`.

        A log that was put back from a copy may have another one there, or none.
        """
        try:
            cluster = load(self._path.read_bytes(), log_id=log_id)
        except FileNotFoundError:
            return Cluster()
        if cluster is None or cluster.position > end or not await holds(reader, cluster.position, cluster.at):
            logger.info("snapshot_thrown_away", path=str(self._path))
            return Cluster()
        self._saved = cluster.position
        logger.info("snapshot_restored", position=cluster.position, jobs=len(cluster.jobs), nodes=len(cluster.nodes))
        return cluster

    def watch(self, cluster: Cluster, _stretch: Stretch) -> None:
        """Save the cluster when it is time to, and enough has happened. Where it cannot be saved, deciding goes on."""
        now = self._clock.monotonic()
        same = chapter_of(self._saved) in {0, chapter_of(cluster.position)}
        events = sequence_of(cluster.position) - (sequence_of(self._saved) if same else 0)  # at least
        if now - self._saved_at < self._every_s or events < EVENTS_MIN:
            return
        self._saved_at = now
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write(self._path, dump(cluster), lasting=True)
        except OSError as error:  # a full disk: the next start reads more of the log
            logger.error("snapshot_not_saved", path=str(self._path), error=str(error))
        else:
            self._saved = cluster.position
