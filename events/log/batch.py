"""One batch into a stream, all or nothing: how it is sent, tried again, and looked for when no answer came."""

import asyncio
import random
from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import uuid4

import nats.errors
from nats.aio.client import Client

from events.base import START, Position, chapter_of, position_of, sequence_of, spelled
from events.codec import CONTENT_TYPE
from events.log.chapters import Chapters, Newest
from events.log.port import Conflict, Shut, Unfit, Unknown
from events.log.server import NatsWay, NoAnswer, NotSent, Raw, Refusal, answered, record_of, request
from events.log.writing import Writing
from events.subjects import events_stream

WRITERS_MAX: Final = 16  # batches in flight; the server takes 50 a stream
TRIES_MAX: Final = 8
BACK_OFF_S: Final = 0.002  # doubled with each try, up to `BACK_OFF_MAX_S`, and drawn from half to all of it
BACK_OFF_MAX_S: Final = 0.25
ANSWER_S: Final = 2.0  # for the server to commit
ANSWER_PER_MESSAGE_S: Final = 0.000_2  # more for each message
RESOLVE_S: Final = 1.0  # to find out what became of a batch whose answer did not come
RESOLVE_EVERY_S: Final = 0.05
OPENING_S: Final = 0.01  # before trying again while the next chapter opens
PASS_EVERY: Final = 256  # messages, after which the connection may send and others run

FENCE: Final = "Nats-Expected-Last-Subject-Sequence"
STREAM: Final = "Nats-Expected-Stream"
PLAIN: Final = {"Content-Type": CONTENT_TYPE}

AWAY: Final = "log_away"  # the code of an `Unknown` where nothing was sent
MOVED: Final = 10071
OTHER_STREAM: Final = 10060
IN_FLIGHT: Final = 10164
INCOMPLETE: Final = 10176
TOO_MANY: Final = 10210
AGAIN: Final = frozenset(
    {IN_FLIGHT, INCOMPLETE, TOO_MANY, OTHER_STREAM}
)  # nothing was written, and trying again may help
FULL: Final = frozenset({10023, 10047, 10077})  # no room, by the server's own reckoning, which it makes at its start
LOG_FULL: Final = "log_full"
ROOM_HINT: Final = "Make room on the disks of the NATS servers, then restart them one after the other."
UNFIT: Final = {
    10174: "Set allow_atomic on the stream.",
    10199: "Set jetstream.limits.batch.max_msgs to 20000 on every server.",
}


class Chance(NamedTuple):
    """What a writer draws."""

    name: Callable[[], str]  # that never came before
    fraction: Callable[[], float]  # from 0 to 1


CHANCE: Final = Chance(lambda: uuid4().hex, random.random)


class Sent(NamedTuple):
    """How a batch was sent."""

    chapter: int
    batch: str
    known: int  # a sequence that the chapter had reached before


class Batches:
    """Writes batches into the newest chapter. Several may be under way at once.

    No message has a `Nats-Msg-Id`: the server knows one for minutes only, drops another payload under the same id
    silently, refuses a whole batch for one repeat, and answers a repeat differently with one replica and with three.
    What must not happen twice is fenced by the sequence of its subject, which holds for ever.

    Every batch names the stream that it is meant for, and no other takes it: a fence that was made for one chapter is
    never held against the next, and a batch that is not in its chapter once that is closed was never written.
    """

    def __init__(self, nc: Client, chapters: Chapters, chance: Chance = CHANCE) -> None:
        self._nc = nc
        self._way = NatsWay(nc)
        self._chapters = chapters
        self._chance = chance
        self._writers = asyncio.Semaphore(WRITERS_MAX)
        self._looking = asyncio.Lock()
        self._known = START  # a position that the log had reached before all that is now under way

    async def write(self, writings: list[Writing], key: int = 0, *, patient: bool = True) -> Position:
        """The position of the last; they are consecutive.

        `key` is the writing whose subject tells what became of all when no answer came. While one chapter is closed
        and the next is not open, the `patient` wait. Raises `Conflict` when one is fenced and its subject has moved,
        `Unknown` when it cannot be told, `Shut`, `Unfit`.
        """
        async with self._writers:
            if not self._known:
                newest = await self._newest()
                self._known = position_of(newest.chapter, newest.last)
            position = await self._write(writings, key, patient=patient)
        self._known = max(self._known, position)
        return position

    async def _write(self, writings: list[Writing], key: int, *, patient: bool) -> Position:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _wait_s(writings)
        attempt = looked = 0
        while True:
            chapter = await self._chapter_for(writings)
            attempt += 1
            try:
                if looked != chapter:  # what older ones hold never changes
                    await self._assert_expected(writings, chapter)
                    looked = chapter
                return await self._try(writings, key, chapter)
            except (Refusal, NotSent) as error:
                overdue = loop.time() > deadline
                if isinstance(error, NotSent) or error.code == OTHER_STREAM:
                    newest = await self._look(chapter)
                    if newest is not None and newest.chapter != chapter:
                        continue
                    if newest is not None and not newest.takes:
                        if overdue or not patient:
                            raise Shut("A chapter of the log is being closed.", code=AWAY) from error
                        attempt = 0
                        continue
                last_try = attempt == TRIES_MAX or overdue
                await asyncio.sleep(self._back_off_s(error, attempt, last_try=last_try))

    async def _look(self, chapter: int) -> Newest | None:
        """How the newest chapter is; None where nobody says. Of all who wait for the next one, one asks at a time."""
        async with self._looking:
            if self._chapters.seen != chapter:
                return Newest(self._chapters.seen, 0, takes=True)
            try:
                newest = await self._chapters.newest()
            except NoAnswer:
                return None
            if newest.chapter == chapter and not newest.takes:
                await asyncio.sleep(OPENING_S)
            return newest

    async def _chapter_for(self, writings: list[Writing]) -> int:
        """The chapter that these go into: the newest. It was seen at least where what they expect lies in it."""
        expected = max((chapter_of(writing.expected) for writing in writings if writing.expected), default=0)
        if expected > self._chapters.seen:
            await self._newest()
            if expected > self._chapters.seen:
                raise Conflict(f"There is no chapter {expected}.", code="log_moved")
        return self._chapters.seen

    async def _assert_expected(self, writings: list[Writing], chapter: int) -> None:
        """Raises `Conflict` unless closed chapters hold what is expected of them, which no fence in this one can see.

        Raises `NotSent` where they do not answer.
        """
        older = {
            writing.subject: writing.expected
            for writing in writings
            if writing.expected is not None and chapter_of(writing.expected) < chapter
        }
        if not older or chapter == 1:
            return
        try:
            lasts = await self._chapters.lasts(older, before=chapter)
        except NoAnswer as error:
            raise NotSent(f"closed chapters: {error}") from error
        for subject, expected in older.items():
            if (actual := lasts.get(subject, START)) != expected:
                raise Conflict(f"The log has moved on: {subject} is at {spelled(actual)}.", code="log_moved")

    def _back_off_s(self, error: Refusal | NotSent, attempt: int, *, last_try: bool) -> float:
        """How long to wait where trying again may help: nothing was written. Raises what else it means."""
        code = error.code if isinstance(error, Refusal) else None
        if code == MOVED:
            raise Conflict(f"The log has moved on: {error}.", code="log_moved") from error
        if code in UNFIT:
            raise Unfit(f"The server refused a batch: {error}.", code="log_unfit", hint=UNFIT[code]) from error
        if code in FULL:
            raise Unknown(f"The servers have no room for the log: {error}.", code=LOG_FULL, hint=ROOM_HINT) from error
        if code is not None and code not in AGAIN:
            raise Unknown(f"The server failed: {error}.", code="log_failed") from error
        if last_try and code == IN_FLIGHT:
            raise Conflict("Others keep writing to the same subject.", code="log_contended") from error
        if last_try:
            raise Unknown(f"The log took nothing in {attempt} tries: {error}.", code=AWAY) from error
        return min(BACK_OFF_S * 2.0**attempt, BACK_OFF_MAX_S) * (0.5 + self._chance.fraction() / 2)

    async def _try(self, writings: list[Writing], key: int, chapter: int) -> Position:
        """The position of the last. Raises `Refusal`, `NotSent`: nothing was written; and what `_resolve` raises."""
        batch = self._chance.name()
        known = self._known if chapter_of(self._known) == chapter else START
        try:
            return position_of(chapter, await self._send(writings, batch, chapter))
        except NotSent:
            raise
        except NoAnswer as error:
            return await self._resolve(writings, key, Sent(chapter, batch, sequence_of(known)), error)

    async def _send(self, writings: list[Writing], batch: str, chapter: int) -> int:
        """The sequence of the last. Raises `Refusal`, `NotSent`: nothing was written; `NoAnswer`: it may have been."""
        *before, last = writings
        wait_s = _wait_s(writings)
        fence = _fence(last, chapter) | {STREAM: events_stream(chapter)}
        if not before:
            return await self._commit(last, PLAIN | fence, wait_s)
        headers = {**PLAIN, "Nats-Batch-Id": batch}
        try:
            for n, writing in enumerate(before, 1):
                headers["Nats-Batch-Sequence"] = str(n)
                mine = headers if writing.expected is None else headers | _fence(writing, chapter)
                if n == 1:  # asks whether the stream takes batches at all; the answer is empty when it does
                    if data := await request(self._nc, writing.subject, writing.payload, headers=mine, wait_s=wait_s):
                        answered(data)
                else:
                    await self._nc.publish(writing.subject, writing.payload, headers=mine)
                    if not n % PASS_EVERY:
                        await asyncio.sleep(0)
        except (NoAnswer, nats.errors.Error, OSError) as error:
            # Without its last message a batch is never written.
            raise NotSent(f"batch not sent: {type(error).__name__}") from error
        headers |= {"Nats-Batch-Sequence": str(len(writings)), "Nats-Batch-Commit": "1"}
        return await self._commit(last, headers | fence, wait_s)

    async def _commit(self, writing: Writing, headers: dict[str, str], wait_s: float) -> int:
        answer = answered(await request(self._nc, writing.subject, writing.payload, headers=headers, wait_s=wait_s))
        sequence: int = answer["seq"]
        return sequence

    async def _newest(self) -> Newest:
        try:
            return await self._chapters.newest()
        except NoAnswer as error:
            raise Unknown(f"The log did not answer, and nothing was sent: {error}.", code=AWAY) from error

    async def _resolve(self, writings: list[Writing], key: int, sent: Sent, lost: NoAnswer) -> Position:
        """The position of the last when the leader has our batch. Never sends anything.

        Raises `NotSent` when its chapter was closed without it, `Conflict` when another came first where ours was
        fenced: either way ours can never be written; else `Unknown`: it may still be under way.
        """
        writing, stream = writings[key], events_stream(sent.chapter)
        since = sent.known if writing.expected is None else _expected(writing, sent.chapter)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RESOLVE_S
        while loop.time() < deadline:
            try:
                closed = (await self._chapters.newest()).chapter > sent.chapter  # before looking: it holds for ever
                raw = await record_of(self._way, stream, {"seq": since + 1, "next_by_subj": writing.subject})
            except NoAnswer:
                raw, closed = None, False
            if raw is None and closed:
                raise NotSent("its chapter was closed without it") from lost
            if raw is None:
                await asyncio.sleep(RESOLVE_EVERY_S)
            elif _is_ours(raw, writing, sent.batch if len(writings) > 1 else ""):
                return position_of(sent.chapter, raw.sequence + len(writings) - 1 - key)
            elif writing.expected is not None:
                raise Conflict("The log has moved on, and no answer said so.", code="log_moved") from lost
            else:
                since = raw.sequence
        raise Unknown(
            f"No answer came for {len(writings)} events, and they are not in the log yet: {lost}.",
            code="log_unknown",
            hint="Read on: what holds is in the log.",
        ) from lost


def _expected(writing: Writing, chapter: int) -> int:
    """The sequence in this chapter that is expected of the last record on the subject; 0 where it has none here."""
    assert writing.expected is not None
    return sequence_of(writing.expected) if chapter_of(writing.expected) == chapter else 0


def _fence(writing: Writing, chapter: int) -> dict[str, str]:
    return {} if writing.expected is None else {FENCE: str(_expected(writing, chapter))}


def _wait_s(writings: list[Writing]) -> float:
    return ANSWER_S + ANSWER_PER_MESSAGE_S * len(writings)


def _is_ours(raw: Raw, writing: Writing, batch: str) -> bool:
    """Whether this is the record that was sent: in our batch, or the same to the last byte."""
    return raw.batch == batch and raw.payload == writing.payload
