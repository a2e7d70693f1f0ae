"""The gate over NATS: teams ask on `ask.<team>`, operators on `operate`, agents report on `report.<node>`; who speaks is said by the subject."""

from contextlib import AbstractAsyncContextManager
from typing import Final, get_args

import msgspec

from events.ask import (
    Adjust,
    Answer,
    Ask,
    Cancel,
    CancelMaintenance,
    Cordon,
    Drain,
    Grant,
    Maintain,
    OperatorAsk,
    RefusalCode,
    Refused,
    Resume,
    ReturnGpus,
    SetAccounts,
    SetPolicy,
    SetPrices,
    SetQueues,
    Submit,
    Uncordon,
    Undrain,
)
from events.base import NodeId, TeamId
from events.subjects import Subjects, last_token
from runtime.nats import Connection
from runtime.serve_requests import Served, serving
from services.gate.gate import Gate
from services.gate.lane import BUSY
from services.gate.reports import decoded, invalid
from services.gate.shape import DOCUMENT_BYTES_MAX
from services.gate.spec import SPEC_BYTES_MAX, too_large

QUEUE: Final = "gate"
ASK_BYTES_MAX: Final = SPEC_BYTES_MAX + 8 * 1024  # the spec, and what is around it

OPERATOR: Final = "operator"  # who speaks there: nobody else may
OPERATE_BYTES_MAX: Final = DOCUMENT_BYTES_MAX + 8 * 1024

OPERATE_DECODER: Final[msgspec.json.Decoder[OperatorAsk]] = msgspec.json.Decoder(OperatorAsk)
ASK_DECODER: Final[msgspec.json.Decoder[Ask]] = msgspec.json.Decoder(Ask)


def serve(gate: Gate, connection: Connection, subjects: Subjects) -> AbstractAsyncContextManager[None]:
    """Asks and reports are answered while the block runs, together with every other gate of the cell."""

    async def ask(subject: str, payload: bytes) -> bytes:
        return msgspec.json.encode(await answer_ask(gate, TeamId(last_token(subject)), payload))

    async def report(subject: str, payload: bytes) -> bytes:
        return msgspec.json.encode(await answer_report(gate, NodeId(last_token(subject)), payload))

    async def operate(_: str, payload: bytes) -> bytes:
        return msgspec.json.encode(await answer_operator(gate, payload))

    busy = msgspec.json.encode(BUSY)
    return serving(
        connection,
        Served(subjects.asks, QUEUE, ask, busy),
        Served(subjects.operate, QUEUE, operate, busy),
        Served(subjects.reports, QUEUE, report, busy),
    )


async def answer_ask(gate: Gate, team: TeamId, payload: bytes) -> Answer:
    """What the gate says to the bytes that a team sent."""
    if len(payload) > ASK_BYTES_MAX:
        return too_large(len(payload))
    try:
        ask = ASK_DECODER.decode(payload)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        hint = 'send {"ask": "submit", "key": …, "spec": {…}} or {"ask": "cancel" (or "resume"), "job_id": …}'
        return Refused(code=RefusalCode.INVALID, message=f"the ask cannot be read: {error}", hint=hint)
    by = f"team:{team}"
    match ask:
        case Submit():
            return await gate.submit(team, ask, by)
        case Cancel():
            return await gate.cancel(team, ask, by)
        case Resume():
            return await gate.resume(team, ask, by)


async def answer_operator(gate: Gate, payload: bytes) -> Answer:
    """What the gate says to the bytes that an operator sent."""
    if len(payload) > OPERATE_BYTES_MAX:
        message = f"the ask has {len(payload)} bytes, {OPERATE_BYTES_MAX} is the most"
        return Refused(code=RefusalCode.TOO_LARGE, message=message)
    try:
        ask = OPERATE_DECODER.decode(payload)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        told = ", ".join(str(kind.__struct_config__.tag) for kind in get_args(OperatorAsk))
        hint = f'send {{"ask": "set_queues", "document": {{…}}, "replaces": …}}; the asks are {told}'
        return Refused(code=RefusalCode.INVALID, message=f"the ask cannot be read: {error}", hint=hint)
    match ask:
        case SetQueues() | SetPolicy() | SetAccounts() | SetPrices():
            return await gate.set_document(ask, OPERATOR)
        case Grant() | Adjust():
            return await gate.ask_account(ask, OPERATOR)
        case Cordon() | Uncordon() | Drain() | Undrain() | Maintain() | CancelMaintenance() | ReturnGpus():
            return await gate.ask_nodes(ask, OPERATOR)


async def answer_report(gate: Gate, node_id: NodeId, payload: bytes) -> Answer:
    """What the gate says to the bytes that a node's agent sent."""
    try:
        report = decoded(payload)
    except RecursionError:
        return invalid("the report is nested too deeply")
    return report if isinstance(report, Refused) else await gate.report(node_id, report)
