"""Groups what many callers record into one append at a time, and answers each with its own position."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from events.ask import Accepted, Answer, RefusalCode, Refused
from events.base import START, Event, Position, Recorded, StandingDocument, spelled
from events.keyed import Keyed
from events.log.port import Conflict, Log, Unknown
from events.subjects import family_subject
from runtime.logging import get_logger
from services.gate.keys import Keys, answer_over, ask_id_in, job_id_in

logger = get_logger(__name__)

GROUP_MAX: Final = 1_000  # facts in one append
GROUP_BYTES_MAX: Final = 8 << 20
WAITING_MAX: Final = 20_000  # facts that wait for their append
WAITING_BYTES_MAX: Final = 64 << 20
ATTEMPTS_MAX: Final = 8  # appends tried for one group, each without those that turned out to be repeats
BACKOFF_S: Final = 0.02  # doubled with each attempt that met another writer and no repeat, up to `BACKOFF_MAX_S`
BACKOFF_MAX_S: Final = 0.2
LOOKUPS_MAX: Final = 50  # under way at once
AWAY_S: Final = 3.0  # how long a log that takes nothing is tried again
RESOLVE_S: Final = 3.0  # how long an append without an answer is looked for in the log
RESOLVE_EVERY_S: Final = 0.1

BUSY: Final = Refused(
    code=RefusalCode.BUSY,
    message="more waits to be recorded than the gate may hold; nothing was written",
    hint="try again in a second, with the same key",
)
STOPPING: Final = Refused(
    code=RefusalCode.BUSY, message="the gate is stopping; nothing was written", hint="try again, with the same key"
)
AWAY: Final = Refused(
    code=RefusalCode.BUSY,
    message="the log is away; nothing was written",
    hint="try again in a moment, with the same key",
)
FULL: Final = Refused(
    code=RefusalCode.BUSY,
    message="the servers have no room for the log: nothing is taken until an operator has made some",
    hint="try again later, with the same key",
)
NOTHING_SENT: Final = "log_away"  # the code of an `Unknown` that is known after all
ANSWERS: Final = {NOTHING_SENT: AWAY, "log_full": FULL}  # to one of which it is known that nothing was written
NO_ANSWER: Final = Refused(
    code=RefusalCode.UNKNOWN,
    message="the log did not answer: it may or may not be done",
    hint="ask again with the same key; it is never done twice",
)


@dataclass
class Counts:
    """What a lane has done since it was made, for metrics."""

    appends: int = 0  # that went through
    facts: int = 0  # in them
    conflicts: int = 0  # appends refused
    unknown: int = 0  # appends without an answer
    waiting: int = 0  # facts that wait now


class Entry:
    """The facts of one caller, and the answer that it waits for."""

    def __init__(self, facts: Sequence[Event], size: int) -> None:
        self.facts = tuple(facts)
        self.size = size
        first = self.facts[0]
        self.keyed = first if isinstance(first, Keyed) else None
        self.document = first if isinstance(first, StandingDocument) else None
        self.outcome: Answer = NO_ANSWER
        self._answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    @property
    def settled(self) -> bool:
        """Whether it has its answer, or nobody waits for one any more."""
        return self._answer.done()

    def settle(self, answer: Answer) -> None:
        """Answer its caller; only the first answer counts."""
        if not self._answer.done():
            self.outcome = answer
            self._answer.set_result(answer)

    async def answer(self) -> Answer:
        """The answer, once there is one."""
        return await self._answer


class Lane:
    """Collects facts while an append is in flight; the next append takes all that came meanwhile."""

    def __init__(self, log: Log, *, waiting_max: int = WAITING_MAX, group_max: int = GROUP_MAX) -> None:
        self._log = log
        self._waiting_max = waiting_max
        self._group_max = group_max
        self._waiting: deque[Entry] = deque()
        self._waiting_bytes = 0
        self.counts = Counts()
        self._filled = asyncio.Event()
        self._open = True
        self._keys = Keys()
        self._reached = Position(0)  # of its last append

    async def record(self, facts: Sequence[Event], *, size: int) -> Answer:
        """Put `facts`, of about `size` bytes, into the log together with those of others. The position is of the last."""
        if not self._open:
            return STOPPING
        facts_ahead, bytes_ahead = self.counts.waiting + len(facts), self._waiting_bytes + size
        if facts_ahead > self._waiting_max or bytes_ahead > WAITING_BYTES_MAX:
            return BUSY
        entry = Entry(facts, size)
        self._waiting.append(entry)
        self.counts.waiting, self._waiting_bytes = facts_ahead, bytes_ahead
        self._filled.set()
        return await entry.answer()

    async def run(self) -> None:
        """Append what waits, until cancelled. Who waits then is told that the gate is stopping."""
        flying: list[Entry] = []
        try:
            while True:
                await self._filled.wait()
                flying = self._take()
                await self._settle(flying)
        finally:
            self._open = False
            for entry in flying:
                entry.settle(NO_ANSWER)
            _answer_all(self._drop_waiting(), STOPPING)

    def _take(self) -> list[Entry]:
        """The next group: what waits, as far as one append may hold it; at least one."""
        taken: list[Entry] = []
        facts = size = 0
        while self._waiting:
            entry = self._waiting[0]
            facts, size = facts + len(entry.facts), size + entry.size
            if taken and (facts > self._group_max or size > GROUP_BYTES_MAX):
                break
            taken.append(self._waiting.popleft())
            self.counts.waiting -= len(entry.facts)
            self._waiting_bytes -= entry.size
        if not self._waiting:
            self._filled.clear()
        return [entry for entry in taken if not entry.settled]

    async def _settle(self, group: Sequence[Entry]) -> None:
        """Every entry of the group has its answer. Of several with one key the first is recorded, the others compared."""
        firsts: dict[str, Entry] = {}
        recorded: list[Entry] = []
        twins: list[tuple[Entry, Entry]] = []  # each with the first of its key
        for entry in group:
            if entry.keyed is not None:
                if self._answer_known(entry, entry.keyed):
                    continue
                first = firsts.setdefault(family_subject(entry.keyed), entry)
                if first is not entry:
                    twins.append((entry, first))
                    continue
            recorded.append(entry)
        await self._append(recorded)
        for twin, first in twins:
            assert twin.keyed is not None
            if not self._answer_known(twin, twin.keyed):
                twin.settle(first.outcome)

    async def _append(self, entries: list[Entry]) -> None:
        """Record the entries in one append. Where it is refused, answer those that repeat something, and append the rest."""
        for attempt in range(ATTEMPTS_MAX):
            if not entries:
                return
            facts = [fact for entry in entries for fact in entry.facts]
            try:
                last = await self._record(facts)
            except Conflict:
                self.counts.conflicts += 1
                await self._answer_repeats(entries)
            except Unknown as unknown:
                self.counts.unknown += 1
                logger.warning("append_unknown", facts=len(facts), code=unknown.code, cause=str(unknown))
                await self._answer_unknown(entries, unknown)
                return
            else:
                self.counts.appends += 1
                self.counts.facts += len(facts)
                self._accept(entries, last)
                return
            left = [entry for entry in entries if not entry.settled]
            if len(left) == len(entries):  # met another writer in flight, and no repeat
                await asyncio.sleep(min(BACKOFF_S * 2**attempt, BACKOFF_MAX_S))
            entries = left
        _answer_all(entries, BUSY)

    async def _record(self, facts: list[Event]) -> Position:
        """See `port.Log.record`; a log that takes nothing is tried again for `AWAY_S`."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + AWAY_S
        while True:
            try:
                return await self._log.record(facts)
            except Unknown as unknown:
                if unknown.code != NOTHING_SENT or loop.time() >= until_s:
                    raise
                await asyncio.sleep(BACKOFF_MAX_S)

    async def _answer_unknown(self, entries: Iterable[Entry], unknown: Unknown) -> None:
        """Answer entries whose append had no answer: by what the log has of it, where that can be told."""
        entries = list(entries)
        if (answer := ANSWERS.get(unknown.code)) is not None:  # who waits would only wait for the same
            _answer_all([*entries, *self._drop_waiting()], answer)
        elif found := await self._found(entries[-1].facts[-1]):
            self._accept(entries, found)
        else:
            _answer_all(entries, NO_ANSWER)

    def _drop_waiting(self) -> list[Entry]:
        dropped = list(self._waiting)
        self._waiting.clear()
        self._filled.clear()
        self.counts.waiting = self._waiting_bytes = 0
        return dropped

    def _accept(self, entries: Iterable[Entry], last: Position) -> None:
        """Answer each entry with the position of its last fact; the last of them all is at `last`."""
        entries = list(entries)
        self._reached = last
        position = last - sum(len(entry.facts) for entry in entries)
        for entry in entries:
            position += len(entry.facts)
            fact = entry.facts[-1]
            if entry.keyed is not None:
                self._keys.learn(entry.keyed, Position(position))
            entry.settle(Accepted(position=Position(position), job_id=job_id_in(fact), ask_id=ask_id_in(fact)))

    def _answer_known(self, entry: Entry, keyed: Keyed) -> bool:
        """Whether the entry repeats what this lane knows, and so was answered."""
        answer = self._keys.answer(keyed)
        if answer is not None:
            entry.settle(answer)
        return answer is not None

    async def _answer_repeats(self, entries: Iterable[Entry]) -> None:
        """Answer all whose key has a record already, and every document over one that no longer holds."""
        gate = asyncio.Semaphore(LOOKUPS_MAX)

        async def look_up(entry: Entry, keyed: Keyed) -> None:
            async with gate:
                try:
                    first = await self._log.first(family_subject(keyed))
                except Unknown:
                    entry.settle(NO_ANSWER)
                    return
            if first is None:
                return
            if isinstance(first.event, Keyed):
                self._keys.learn(first.event, first.position)
            entry.settle(answer_over(keyed, first))

        async def look_at(entry: Entry, document: StandingDocument) -> None:
            try:
                last = await self._log.last(family_subject(document))
            except Unknown:
                entry.settle(NO_ANSWER)
                return
            if (last.position if last else START) != document.replaces:
                entry.settle(moved(document, last))

        async with asyncio.TaskGroup() as group:
            for entry in entries:
                if entry.keyed is not None:
                    group.create_task(look_up(entry, entry.keyed))
                elif entry.document is not None and entry.document.replaces is not None:
                    group.create_task(look_at(entry, entry.document))

    async def _found(self, fact: Event) -> Position:
        """Where the log has this very fact, looked for during `RESOLVE_S`; 0 where it was not seen."""
        subject = family_subject(fact)
        look = self._log.first if isinstance(fact, Keyed) else self._log.last
        with suppress(TimeoutError):
            async with asyncio.timeout(RESOLVE_S):
                while True:
                    with suppress(Unknown):  # the way to the log is still gone: go on until the time is over
                        seen = await look(subject)
                        if seen is not None and seen.event == fact and seen.position > self._reached:
                            return seen.position
                    await asyncio.sleep(RESOLVE_EVERY_S)
        return Position(0)


def moved(document: StandingDocument, held: Recorded | None) -> Refused:
    """The answer to a document over one that no longer holds: which does, since when, and who set it."""
    name = family_subject(document)
    if held is None:
        told = "nobody has set any"
    else:
        by = f" by {held.event.by}" if held.event.by else ""
        told = f"the one that holds is at position {spelled(held.position)}, set at {held.at:%Y-%m-%d %H:%M:%S} UTC{by}"
    return Refused(
        code=RefusalCode.MOVED,
        message=f"{name}: not the document that this was made from: {told}; nothing was written",
        hint=f"look at what holds, and set the {name} again over that",
        position=held.position if held else START,
    )


def _answer_all(entries: Iterable[Entry], answer: Answer) -> None:
    for entry in entries:
        entry.settle(answer)
