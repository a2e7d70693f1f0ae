"""The control plane: follow the log, fold it, and while leading decide a round and append it. The one loop."""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from events.base import Event, Position, Recorded, Stretch, sequence_of
from events.desired import Heartbeat
from events.head import LeadershipTaken, RoundDecided
from events.log.port import Conflict, Log, Shut, Unknown
from projections.cluster.evolve import evolve
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from runtime.clock import Clock
from runtime.logging import get_logger
from services.control.chapters import Chapters
from services.control.retreat import Retreat
from services.control.round import decide_all
from services.control.silence import Silences
from services.control.skews import Skews

logger = get_logger(__name__)

ROUND_EVERY_S: Final = 0.2  # a round comes at least so often, whatever is silent

Watcher = Callable[[Cluster, Stretch], None]  # sees each stretch after it is folded; must not change the cluster


class Lease(Protocol):
    """A hint who should try to lead."""

    @property
    def held(self) -> bool:
        """Whether we should."""
        ...


class Name(NamedTuple):
    """Who this is: an instance that no other process has or had, and the version of its code."""

    instance: str
    version: str


class ControlPlane:
    """One candidate for leading. Any number may run against one log: the head lets one of them decide."""

    def __init__(self, log: Log, cluster: Cluster, lease: Lease, clock: Clock, *, name: Name) -> None:
        self.cluster = cluster
        self.silences = Silences(clock.monotonic())
        self.skews = Skews()
        self._log = log
        self._lease = lease
        self._clock = clock
        self._instance, self._version = name
        self._read_first = cluster.position  # no round before this is folded
        self._round_at = float("-inf")
        self._retreat = Retreat()
        self._halted = False
        self._chapters: Chapters | None = None

    @property
    def leading(self) -> bool:
        """Whether the log names us as the leader and the lease is ours."""
        return self._lease.held and self.cluster.leader == self._instance

    def may_lead(self, end: Position) -> bool:
        """Whether the lease is for us: we have read as far as `end`, and nothing that keeps us from deciding.

        Whoever reads all of a long log anew, or cannot read what a newer version decided, leaves it to one that can go on.
        """
        return not self.cluster.unread and (self.cluster.position >= end or not sequence_of(end))

    async def run(self, *watchers: Watcher, chapters: Chapters | None = None) -> None:
        """Follow, fold, decide, append; until cancelled. Closes chapters of the log where it is given what does so."""
        self._chapters = chapters
        async for stretch in self._log.follow(self.cluster.position):
            for recorded in stretch:
                self._note(recorded)
                self.cluster = evolve(self.cluster, recorded)
            for watch in watchers:
                watch(self.cluster, stretch)
            self.silences.turn(self._clock.monotonic())
            if chapters is not None:
                chapters.watch(self.cluster, stretch)
                if cause := chapters.due(leading=self.leading):
                    self._read_first = max(self._read_first, await chapters.roll(self.cluster, cause))
                    continue
            if self._due(stretch):
                await self._round()

    def heard(self, beat: Heartbeat) -> None:
        """A node beat."""
        self.silences.heard(beat.node_id, beat.epoch, self._clock.monotonic(), promised_s=beat.patience_s)
        if beat.at is not None:
            ahead_s = (beat.at - self._clock.now()).total_seconds()
            self.skews.heard(beat.node_id, beat.epoch, ahead_s)

    def _note(self, recorded: Recorded) -> None:
        """The record, which is folded next, may keep us from a round."""
        match recorded.event:
            case RoundDecided(events=events):  # a stretch may end in the middle of what it announces
                self._read_first = max(self._read_first, Position(recorded.position + events))
            case LeadershipTaken(instance=instance) if self.cluster.leader == self._instance != instance:
                self._retreat.shut_out(self._clock.monotonic())

    def _due(self, stretch: Stretch) -> bool:
        if not self._lease.held or self.cluster.position < self._read_first or self._must_not_decide():
            return False
        if self.cluster.leader != self._instance and not self._retreat.over(self._clock.monotonic()):
            return False
        return bool(stretch) or self._clock.monotonic() - self._round_at >= ROUND_EVERY_S

    def _must_not_decide(self) -> bool:
        """Whether the control plane's own records hold one that this version cannot read: it might say anything."""
        if self.cluster.unread and not self._halted:
            logger.error(
                "deciding_stopped",
                position=self.cluster.unread,
                hint="muster verify says what is wrong with it; if it is of a newer version, run that",
            )
        self._halted = bool(self.cluster.unread)
        return self._halted

    async def _round(self) -> None:
        self._round_at = self._clock.monotonic()
        try:
            self._read_first = await self._log.end()
            if events := self._decide():
                self._read_first = await self._log.append(events, after=self.cluster.head)
        except Shut:
            if self._chapters is not None:
                self._chapters.found_shut()
        except (Conflict, Unknown) as lost:  # what holds is in the log: read on, decide again
            say = logger.error if lost.code == "log_full" else logger.info
            say("round_dropped", cause=type(lost).__name__, head=self.cluster.head, code=lost.code, hint=lost.hint)

    def _decide(self) -> list[Event]:
        now = self._clock.now()
        at = now if self.cluster.at is None else max(now, self.cluster.at)
        if self.cluster.leader != self._instance:  # shuts out whoever led before; nothing is decided until it is read
            self.silences.restart(self._clock.monotonic())
            logger.info("leadership_tried", instance=self._instance, before=self.cluster.leader)
            return [LeadershipTaken(at=at, instance=self._instance, version=self._version)]
        self.silences.turn(self._clock.monotonic())  # we may have slept since the log was asked for its end
        silent = self.silences.silent(self.cluster, self._clock.monotonic())
        tick = Tick(
            at=at,
            position=self.cluster.position,
            silent=silent,
            promised={node_id: self.silences.promised(self.cluster, node_id) for node_id in silent},
            skews=self.skews.taken(self.cluster),
        )
        return decide_all(self.cluster, tick, version=self._version)
