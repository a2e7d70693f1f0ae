"""One batch into a stream, all or nothing: how it is sent, tried again, and looked for when no answer came."""

import asyncio
import random
from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import uuid4

import nats.errors
from nats.aio.client import Client

from events.codec import CONTENT_TYPE
from events.log.port import Conflict, Unfit, Unknown
from events.log.server import (
    NatsWay,
    NoAnswer,
    NotSent,
    Raw,
    Refusal,
    answered,
    record_of,
    request,
    standing_of,
)
from events.log.writing import Writing

WRITERS_MAX: Final = 16  # batches in flight; the server takes 50 a stream
TRIES_MAX: Final = 8
BACK_OFF_S: Final = 0.002  # doubled with each try, up to `BACK_OFF_MAX_S`, and drawn from half to all of it
BACK_OFF_MAX_S: Final = 0.25
ANSWER_S: Final = 2.0  # for the server to commit
ANSWER_PER_MESSAGE_S: Final = 0.000_2  # more for each message
RESOLVE_S: Final = 1.0  # to find out what became of a batch whose answer did not come
RESOLVE_EVERY_S: Final = 0.05
PASS_EVERY: Final = 256  # messages, after which the connection may send and others run

FENCE: Final = "Nats-Expected-Last-Subject-Sequence"
PLAIN: Final = {"Content-Type": CONTENT_TYPE}

MOVED: Final = 10071
IN_FLIGHT: Final = 10164
INCOMPLETE: Final = 10176
TOO_MANY: Final = 10210
AGAIN: Final = frozenset({IN_FLIGHT, INCOMPLETE, TOO_MANY})  # nothing was written, and trying again may help
UNFIT: Final = {
    10174: "Set allow_atomic on the stream.",
    10199: "Set jetstream.limits.batch.max_msgs to 20000 on every server.",
}


class Chance(NamedTuple):
    """What a writer draws."""

    name: Callable[[], str]  # that never came before
    fraction: Callable[[], float]  # from 0 to 1


CHANCE: Final = Chance(lambda: uuid4().hex, random.random)


class Batches:
    """Writes batches into a stream. Several may be under way at once.

    No message has a `Nats-Msg-Id`: the server knows one for minutes only, drops another payload under the same id
    silently, refuses a whole batch for one repeat, and answers a repeat differently with one replica and with three.
    What must not happen twice is fenced by the sequence of its subject, which holds for ever.
    """

    def __init__(self, nc: Client, stream: str, chance: Chance = CHANCE) -> None:
        self._nc = nc
        self._way = NatsWay(nc)
        self._stream = stream
        self._chance = chance
        self._writers = asyncio.Semaphore(WRITERS_MAX)
        self._known = 0  # a sequence that the stream had reached before all that is now under way

    async def write(self, writings: list[Writing], key: int = 0) -> int:
        """The sequence of the last; they are consecutive.

        `key` is the writing whose subject tells what became of all when no answer came.
        Raises `Conflict` when one is fenced and its subject has moved, `Unknown` when it cannot be told, `Unfit`.
        """
        async with self._writers:
            if not self._known:
                self._known = await self._end()
            sequence = await self._write(writings, key, self._known)
        self._known = max(self._known, sequence)
        return sequence

    async def _write(self, writings: list[Writing], key: int, known: int) -> int:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _wait_s(writings)
        attempt = 0
        while True:
            attempt += 1
            batch = self._chance.name()
            try:
                return await self._send(writings, batch)
            except (Refusal, NotSent) as error:
                last_try = attempt == TRIES_MAX or loop.time() > deadline
                await asyncio.sleep(self._back_off_s(error, attempt, last_try=last_try))
            except NoAnswer as error:
                return await self._resolve(writings, key, batch, known, error)

    def _back_off_s(self, error: Refusal | NotSent, attempt: int, *, last_try: bool) -> float:
        """How long to wait where trying again may help: nothing was written. Raises what else it means."""
        code = error.code if isinstance(error, Refusal) else None
        if code == MOVED:
            raise Conflict(f"The log has moved on: {error}.", code="log_moved") from error
        if code in UNFIT:
            raise Unfit(f"The server refused a batch: {error}.", code="log_unfit", hint=UNFIT[code]) from error
        if code is not None and code not in AGAIN:
            raise Unknown(f"The server failed: {error}.", code="log_failed") from error
        if last_try and code == IN_FLIGHT:
            raise Conflict("Others keep writing to the same subject.", code="log_contended") from error
        if last_try:
            raise Unknown(f"The log took nothing in {attempt} tries: {error}.", code="log_away") from error
        return min(BACK_OFF_S * 2.0**attempt, BACK_OFF_MAX_S) * (0.5 + self._chance.fraction() / 2)

    async def _send(self, writings: list[Writing], batch: str) -> int:
        """The sequence of the last. Raises `Refusal`, `NotSent`: nothing was written; `NoAnswer`: it may have been."""
        *before, last = writings
        wait_s = _wait_s(writings)
        if not before:
            return await self._commit(last, dict(PLAIN), wait_s)
        headers = {**PLAIN, "Nats-Batch-Id": batch}
        try:
            for n, writing in enumerate(before, 1):
                headers["Nats-Batch-Sequence"] = str(n)
                mine = headers if writing.expected is None else {**headers, FENCE: str(writing.expected)}
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
        return await self._commit(last, headers, wait_s)

    async def _commit(self, writing: Writing, headers: dict[str, str], wait_s: float) -> int:
        if writing.expected is not None:
            headers[FENCE] = str(writing.expected)
        answer = answered(await request(self._nc, writing.subject, writing.payload, headers=headers, wait_s=wait_s))
        sequence: int = answer["seq"]
        return sequence

    async def _end(self) -> int:
        try:
            return (await standing_of(self._way, self._stream)).last
        except NoAnswer as error:
            raise Unknown(f"The log did not answer, and nothing was sent: {error}.", code="log_away") from error

    async def _resolve(self, writings: list[Writing], key: int, batch: str, known: int, lost: NoAnswer) -> int:
        """The sequence of the last when the leader has our batch. Never sends anything.

        Raises `Conflict` when another came first where ours was fenced, so that ours can never be written; else
        `Unknown`: it may still be under way.
        """
        writing = writings[key]
        since = known if writing.expected is None else writing.expected
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RESOLVE_S
        while loop.time() < deadline:
            try:
                query = {"seq": since + 1, "next_by_subj": writing.subject}
                raw = await record_of(self._way, self._stream, query)
            except NoAnswer:
                raw = None
            if raw is None:
                await asyncio.sleep(RESOLVE_EVERY_S)
            elif _is_ours(raw, writing, batch if len(writings) > 1 else ""):
                return raw.sequence + len(writings) - 1 - key
            elif writing.expected is not None:
                raise Conflict("The log has moved on, and no answer said so.", code="log_moved") from lost
            else:
                since = raw.sequence
        raise Unknown(
            f"No answer came for {len(writings)} events, and they are not in the log yet: {lost}.",
            code="log_unknown",
            hint="Read on: what holds is in the log.",
        ) from lost


def _wait_s(writings: list[Writing]) -> float:
    return ANSWER_S + ANSWER_PER_MESSAGE_S * len(writings)


def _is_ours(raw: Raw, writing: Writing, batch: str) -> bool:
    """Whether this is the record that was sent: in our batch, or the same to the last byte."""
    return raw.batch == batch and raw.payload == writing.payload
