"""The agent's loops: it reconciles its node, and while there is a connection it beats, reads, reports and ships output.

Losing the connection ends no loop but those that need one; ending the agent ends no rank.
"""

import asyncio
from contextlib import suppress
from typing import Final

import msgspec

from agent.contact import Contacts
from agent.core.action import (
    Action,
    Decline,
    Forget,
    Join,
    Local,
    Release,
    Report,
    ReportEnded,
    ReportStarted,
    Start,
)
from agent.core.found import Found
from agent.core.reconcile import reconcile, superseded
from agent.link import Dial, Link
from agent.node import Node
from agent.reports import Place, batch_of, event_of, note
from agent.ship_logs import LogShipper
from events.ask import Accepted, RefusalCode, Refused
from events.ask import Report as ReportMessage
from events.base import START
from events.desired import Desired, Heartbeat, Order, as_of_in, decode_desired
from runtime.clock import Clock
from runtime.fault import Fault
from runtime.logging import get_logger

logger = get_logger(__name__)

PASSES_MAX: Final = 4  # looks in one tick, while starts, declines and removals change what is found
QUIET_S: Final = 1.0  # between ticks when nothing is under way
STARTING_S: Final = 0.02  # while a rank is being started
CHANGING_S: Final = 0.05  # while something is stopping, or waits for its GPUs
SHIP_EVERY_S: Final = 0.25
LOOK_EVERY_S: Final = 0.5  # at the connection, for a reconnect
LOOK_AGAIN_S: Final = 0.002  # for a value that was heard of and is not stored yet; then twice as long, and so on
LOOKS_MAX: Final = 8  # then it was one that the server refused
FLUSH_S: Final = 2.0  # that the report of an end waits for the last output, at most
REPORTS_MAX: Final = 500  # in one message
BACK_OFF_FIRST_S: Final = 0.2
BACK_OFF_MAX_S: Final = 5.0


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and how long."""

    heartbeat_every_s: float = 10.0
    reread_every_s: float = 30.0
    gpus_every_s: float = 5.0
    lost_after_s: float = 90.0  # while nobody has said


class Agent:
    """One node's agent."""

    def __init__(self, node: Node, place: Place, *, clock: Clock, timing: Timing) -> None:
        self._node = node
        self._place = place
        self._clock = clock
        self._timing = timing
        self._node_id = node.identity.node_id
        self._desired: Desired | None = None
        self._contacts = Contacts(node.records, node.boot_id, clock, lost_after_s=timing.lost_after_s)
        self._wake = asyncio.Event()
        self._hint = asyncio.Event()
        self._has_to_beat = asyncio.Event()
        self._hinted = START  # the newest value that was heard of
        self._looks = 0  # in vain, for it
        self._absent_since_s: float | None = None  # since when nothing is desired of this node, not even nothing
        self._to_tell: list[Report] = []
        self._has_to_tell = asyncio.Event()
        self._told_at_once = REPORTS_MAX

    async def run(self, dial: Dial) -> None:
        """Until cancelled. The ranks live on."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._reconcile())
                group.create_task(self._node.health.run(self._timing.gpus_every_s, self._wake.set))
                group.create_task(self._stay_connected(dial))
        finally:
            self._node.unwatch()

    # On the node

    async def _reconcile(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._tick()):
                    await self._wake.wait()
            self._wake.clear()

    def _tick(self) -> float:
        """Bring the node closer to what is desired of it; returns after how many seconds to look again."""
        found = self._look()
        actions = reconcile(self._desired, found)
        for _ in range(PASSES_MAX):
            if not self._carried_out(actions):
                break
            found = self._look()
            actions = reconcile(self._desired, found)
        self._to_tell = [action for action in actions if isinstance(action, Report)]
        if self._to_tell:
            self._has_to_tell.set()
        return self._pace_s(found)

    def _look(self) -> Found:
        contacts = self._contacts
        return self._node.look(self._desired, silent_s=contacts.silent_s, lost_after_s=contacts.ended_by_s)

    def _carried_out(self, actions: list[Action]) -> bool:
        """Whether what is found may be another now that all was done that can be done on the node."""
        changed = False
        for action in actions:
            if isinstance(action, Local):
                try:
                    self._node.carry_out(action)
                except OSError as error:  # the next tick tries again, if it is still to be done
                    logger.error("action_failed", action=type(action).__name__, error=str(error))
                else:
                    changed = changed or isinstance(action, Start | Decline | Forget)
        return changed

    def _pace_s(self, found: Found) -> float:
        if not self._node.watch(found, self._wake.set):
            return STARTING_S
        traces = found.traces.values()
        if any(trace.alive and (trace.stopping or trace.failed or trace.strays) for trace in traces):
            return CHANGING_S
        shares = self._desired.shares if self._desired is not None and self._desired.epoch == found.epoch else ()
        waiting = any(share.order is Order.RUN and share.run_id not in found.traces for share in shares)
        unclean = any(not trace.alive and not found.busy.isdisjoint(trace.share.gpu_uuids) for trace in traces)
        return CHANGING_S if waiting or unclean or found.leftovers else QUIET_S

    # With the servers

    async def _stay_connected(self, dial: Dial) -> None:
        while not _cancelled():
            try:
                async with dial(self._hear_of_desired) as link:
                    await self._serve(link)
            except Fault as fault:  # whatever runs here, runs on
                logger.error(fault.code, error=str(fault))
                await asyncio.sleep(BACK_OFF_MAX_S)
            finally:
                self._node.shipper = None

    async def _serve(self, link: Link) -> None:
        """Everything that needs a link, until it is lost for good."""
        shipper = self._node.shipper = LogShipper(link.ship)
        loops = (self._beat(link), self._read(link), self._tell(link, shipper), self._ship(shipper))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop) for loop in loops]
            await link.lost()
            for task in tasks:
                task.cancel()

    async def _beat(self, link: Link) -> None:
        """Beats, and after each asks for an answer: what was sent before it on the same way has arrived then."""
        while not _cancelled():
            sent_s, patience_s, reconnects = self._clock.monotonic(), self._contacts.patience_s, link.reconnects
            found = self._node.identity
            if found.epoch > 0 and not self._superseded():
                pulse = Heartbeat(
                    node_id=self._node_id,
                    epoch=found.epoch,
                    instance=found.instance,
                    runs=self._node.alive,
                    at=self._clock.now(),
                    version=self._place.version,
                    patience_s=round(patience_s, 3),
                )
                await link.beat(pulse)
            arrived = await link.alive() and link.reconnects == reconnects
            if arrived:
                self._contacts.confirmed(sent_s, patience_s)
            every_s = self._contacts.every_s(self._timing.heartbeat_every_s) if arrived else LOOK_EVERY_S
            with suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await self._has_to_beat.wait()
            self._has_to_beat.clear()

    async def _read(self, link: Link) -> None:
        """What is desired is read at every hint, after a reconnect, and from time to time."""
        while not _cancelled():
            self._hint.clear()
            reconnects = link.reconnects
            payload = await link.desired()
            if payload is not None:
                self._note_absence(absent=not payload)
            if payload:
                self._take(payload)
            if payload is not None and await self._comes_later():
                continue
            again_s = self._clock.monotonic() + (self._timing.reread_every_s if payload is not None else LOOK_EVERY_S)
            while self._clock.monotonic() < again_s and link.reconnects == reconnects:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await self._hint.wait()
                        break

    def _hear_of_desired(self, payload: bytes) -> None:
        """A value was sent. It may not be stored yet, or never: it says only what to look for."""
        self._hinted = max(self._hinted, as_of_in(payload))
        self._hint.set()

    async def _comes_later(self) -> bool:
        """Whether a value that was heard of is still to be read; a moment has passed then."""
        if self._node.records.as_of >= self._hinted or self._looks == LOOKS_MAX:
            self._hinted, self._looks = START, 0
            return False
        await asyncio.sleep(LOOK_AGAIN_S * 2**self._looks)
        self._looks += 1
        return True

    def _take(self, payload: bytes) -> None:
        """Obey it from now on, unless something newer was obeyed before."""
        try:
            desired = decode_desired(payload)
        except msgspec.DecodeError as error:
            logger.error("desired_unreadable", error=str(error))
            return
        if desired.node_id != self._node_id or desired.as_of < self._node.records.as_of or desired == self._desired:
            return
        before = self._superseded()
        self._contacts.told(desired.waiting, desired.as_of)
        self._has_to_beat.set()  # with what is promised from now on
        self._node.records.keep_as_of(desired.as_of)
        self._desired = desired
        if self._superseded() and not before:
            hint = "Two agents have one node id. If this one is meant, remove its identity.json and start it again."
            logger.error("agent_superseded", by=desired.instance, epoch=desired.epoch, hint=hint)
        self._wake.set()

    def _note_absence(self, *, absent: bool) -> None:
        """Told for long that nothing is desired of this life, the node is one that the log does not know: as if lost.

        What is desired of a node stays written from its joining on. The log is another than the one that was joined.
        """
        identity = self._node.identity
        if not absent or identity.epoch == 0 or self._superseded():
            self._absent_since_s = None
            return
        now_s = self._clock.monotonic()
        if self._absent_since_s is None:
            self._absent_since_s = now_s
        elif now_s - self._absent_since_s >= self._timing.lost_after_s:
            logger.error("node_forgotten", epoch=identity.epoch, hint="The log is another one: the node joins it anew.")
            self._absent_since_s = None
            self._desired = Desired(
                node_id=self._node_id, epoch=identity.epoch, instance=identity.instance, as_of=START, lost=True
            )
            self._wake.set()

    def _superseded(self) -> bool:
        identity = self._node.identity
        former = frozenset(identity.former)
        return superseded(self._desired, Found(instance=identity.instance, former=former, epoch=identity.epoch))

    async def _ship(self, shipper: LogShipper) -> None:
        while not _cancelled():
            for record in list(self._node.records.runs.values()):
                await shipper.ship(record)
            await asyncio.sleep(SHIP_EVERY_S)

    async def _tell(self, link: Link, shipper: LogShipper) -> None:
        """One message at a time: what it does not hold, or was not accepted, is in a later one."""
        back_off_s = 0.0
        while not _cancelled():
            await self._has_to_tell.wait()
            self._has_to_tell.clear()
            batch = batch_of(self._to_tell, self._told_at_once)
            if not batch:
                continue
            await self._flush(batch, shipper)
            taken = await self._accepted(link, batch)
            back_off_s = 0.0 if taken else min(max(BACK_OFF_FIRST_S, back_off_s * 2), BACK_OFF_MAX_S)
            self._to_tell = []  # the next tick says what is left
            self._has_to_tell.clear()
            await asyncio.sleep(back_off_s)
            self._wake.set()

    async def _flush(self, batch: list[Report], shipper: LogShipper) -> None:
        """The output of runs whose end is told now is where it belongs, if that can be done in a moment."""
        ended = [action.run_id for action in batch if isinstance(action, ReportStarted | ReportEnded | Release)]
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                for run_id in ended:
                    if (record := self._node.records.runs.get(run_id)) is not None and not await shipper.ship(record):
                        return

    async def _accepted(self, link: Link, batch: list[Report]) -> bool:
        """Whether the gate took the batch, and that is noted."""
        events = tuple(event_of(action, self._node, self._place, self._clock) for action in batch)
        message = ReportMessage(instance=self._node.identity.instance, reports=events)
        answer = await link.tell(message)
        if answer is None:
            logger.warning("report_unanswered", reports=len(batch))
            return False
        match answer:
            case Accepted(position=position):
                for action in batch:
                    note(action, self._node, position, self._clock)
                    if isinstance(action, Join):
                        self._desired = None  # of the life before, perhaps of another log
                self._told_at_once = min(REPORTS_MAX, self._told_at_once * 2)
                return True
            case Refused() as refused:
                self._refused(refused, batch)
        return False

    def _refused(self, refused: Refused, batch: list[Report]) -> None:
        """What never will be taken is given up, once it stands alone; the rest is sent again."""
        logger.error("report_refused", code=refused.code, error=refused.message, hint=refused.hint, reports=len(batch))
        if refused.code is RefusalCode.STALE:
            self._hint.set()  # what is desired says who has taken over
        if refused.code in {RefusalCode.INVALID, RefusalCode.TOO_LARGE}:
            self._told_at_once = 1
            if len(batch) == 1 and not isinstance(batch[0], Join):
                note(batch[0], self._node, self._node.records.as_of, self._clock)


def _cancelled() -> bool:
    """Whether this task was asked to end: the client's waiting for answers may swallow that (Python 3.11, `wait_for`)."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
