"""The link of an agent over NATS: core messages, requests to the gate, direct reads of what is desired."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from agent.link import Dial, Hear
from agent.ship_logs import OFFSET_HEADER
from events.ask import Answer, Report
from events.base import NodeId
from events.desired import DesiredShare, Heartbeat
from events.subjects import DESIRED_STREAM, Subjects
from runtime.beats import beat, hearing
from runtime.logging import get_logger
from runtime.nats import Connection, Login, alive, connect
from runtime.serve_requests import ask
from runtime.stored import stored

logger = get_logger(__name__)

ANSWER_S: Final = 5.0

DECODE_ANSWER: Final = msgspec.json.Decoder(Answer)


class NatsLink:
    """One connection of one node's agent."""

    def __init__(self, connection: Connection, lost: asyncio.Event, subjects: Subjects, node_id: NodeId) -> None:
        self._connection = connection
        self._lost = lost
        self._subjects = subjects
        self._node_id = node_id
        self._direct = f"$JS.API.DIRECT.GET.{DESIRED_STREAM}.{subjects.desired(node_id)}"

    @property
    def reconnects(self) -> int:
        """How often the client came back to a server."""
        return int(self._connection.stats["reconnects"])

    async def lost(self) -> None:
        """Returns once the client has given up."""
        await self._lost.wait()

    async def alive(self) -> bool:
        """Whether the server answers a ping."""
        return await alive(self._connection)

    async def beat(self, pulse: Heartbeat) -> None:
        """One core message, if there is a connection."""
        await beat(self._connection, self._subjects.heartbeat(self._node_id), msgspec.json.encode(pulse))

    async def desired(self) -> bytes | None:
        """The last value, as some server has it; nothing where there is none; None: no answer."""
        return await ask(self._connection, self._direct, b"", within_s=ANSWER_S)

    async def tell(self, report: Report) -> Answer | None:
        """The gate's answer. None: it may have taken the report or not, as where its answer is beyond this version."""
        subject = self._subjects.report(self._node_id)
        payload = await ask(self._connection, subject, msgspec.json.encode(report), within_s=ANSWER_S)
        try:
            return None if payload is None else DECODE_ANSWER.decode(payload)
        except msgspec.DecodeError as error:
            logger.error("answer_unreadable", error=str(error))
            return None

    async def ship(self, share: DesiredShare, rank: int, offset: int, data: bytes) -> bool:
        """Whether LOGS has the piece."""
        subject = self._subjects.log(self._node_id, share.job_id, share.run_id, rank)
        headers = {OFFSET_HEADER: str(offset)}
        return await stored(self._connection, subject, data, headers=headers, within_s=ANSWER_S)


def dial_nats(login: Login, subjects: Subjects, node_id: NodeId) -> Dial:
    """Links of a node's agent, over connections as `login`."""

    @asynccontextmanager
    async def dial(hear: Hear) -> AsyncIterator[NatsLink]:
        lost = asyncio.Event()
        connection = await connect(login, name=f"agent-{node_id}", lost=lambda _reason: lost.set())
        try:
            async with hearing(connection, subjects.desired(node_id), lambda _subject, payload: hear(payload)):
                yield NatsLink(connection, lost, subjects, node_id)
        finally:
            await connection.close()

    return dial
