"""Last values by subject in a JetStream stream: read one from its leader, write one if nobody else did meanwhile."""

from typing import Final, NamedTuple

import msgspec
import nats.errors
from nats.aio.client import Client

from runtime.fault import Fault

WITHIN_S: Final = 2.0
NOT_FOUND: Final = frozenset({10037, 10109})  # error codes: no message found
MOVED: Final = frozenset({10071, 10164})  # error codes: another value was written meanwhile


class Stored(NamedTuple):
    """A value and its place; sequence 0 and no payload where there is none."""

    sequence: int
    payload: bytes


class _Error(msgspec.Struct, frozen=True):
    err_code: int = 0
    description: str = ""


class _Message(msgspec.Struct, frozen=True):
    seq: int
    data: bytes = b""  # base64 in the answer


class _Answer(msgspec.Struct, frozen=True):
    """What the JetStream API says to a read or a write."""

    error: _Error | None = None
    message: _Message = _Message(0)
    seq: int = 0


class LastValues:
    """The values of one stream."""

    def __init__(self, connection: Client, stream: str) -> None:
        self._connection = connection
        self._stream = stream

    async def get(self, subject: str) -> Stored:
        """The value as the stream's leader knows it. Raises `Fault` when it does not answer."""
        query = msgspec.json.encode({"last_by_subj": subject})
        answer = await self._ask(f"$JS.API.STREAM.MSG.GET.{self._stream}", query, {})
        if answer.error is None:
            return Stored(answer.message.seq, answer.message.data)
        if answer.error.err_code in NOT_FOUND:
            return Stored(0, b"")
        raise _refused(f"{self._stream} was not read", answer.error)

    async def put(self, subject: str, payload: bytes, *, after: int) -> int | None:
        """The sequence of the value, now stored, if the one before it had `after`; None where another was.

        Raises `Fault` when no answer came: it may be stored or not.
        """
        answer = await self._ask(subject, payload, {"Nats-Expected-Last-Subject-Sequence": str(after)})
        if answer.error is None:
            return answer.seq
        if answer.error.err_code in MOVED:
            return None
        raise _refused(f"{subject} was not written", answer.error)

    async def _ask(self, subject: str, payload: bytes, headers: dict[str, str]) -> _Answer:
        try:
            reply = await self._connection.request(subject, payload, timeout=WITHIN_S, headers=headers or None)
        except (OSError, TimeoutError, nats.errors.Error) as error:
            raise Fault("no_answer", f"NATS did not answer on {subject}: {error!r}", hint="is it running?") from error
        return msgspec.json.decode(reply.data, type=_Answer)


def _refused(what: str, error: _Error) -> Fault:
    return Fault("stream_refused", f"{what}: {error.description} ({error.err_code})", hint="the NATS log says more")
