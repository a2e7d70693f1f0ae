"""Publishing into a JetStream stream, until the server says that it has it."""

from collections.abc import Mapping

import msgspec
import nats.errors
from nats.aio.client import Client


class _PubAck(msgspec.Struct, frozen=True):
    """What JetStream answers; an error has no `seq`."""

    seq: int = 0


async def stored(
    connection: Client, subject: str, payload: bytes, *, headers: Mapping[str, str], within_s: float
) -> bool:
    """Whether a stream has the message. False: it may have it all the same, for no answer is no refusal."""
    try:
        reply = await connection.request(subject, payload, timeout=within_s, headers=dict(headers))
        return msgspec.json.decode(reply.data, type=_PubAck).seq > 0
    except (OSError, TimeoutError, nats.errors.Error, msgspec.DecodeError):
        return False
