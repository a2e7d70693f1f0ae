"""Answers `why` from the fold: any control plane may, leader or standby, and says its position."""

from collections.abc import Awaitable, Callable

import msgspec

from events.ask import Why, WhyAsk
from events.base import JobId, Position
from projections.cluster.why import explain
from runtime.clock import Clock
from services.control.leader import ControlPlane

_decoder = msgspec.json.Decoder(WhyAsk)
_encoder = msgspec.json.Encoder()


def answering_why(control: ControlPlane, clock: Clock) -> Callable[[str, bytes], Awaitable[bytes]]:
    """What answers a `WhyAsk` with a `Why`, as bytes; one that cannot be read is answered as a job not found."""

    async def answer(_subject: str, payload: bytes) -> bytes:
        try:
            ask = _decoder.decode(payload)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return _encoder.encode(Why(job_id=JobId(""), found=False, position=Position(0)))
        why = explain(control.cluster, ask.job_id, at=clock.now())
        halted = control.cluster.unread
        if halted and why.code:
            message = f"nothing is decided since record {halted}, which cannot be read or contradicts those before it"
            why = msgspec.structs.replace(
                why, message=message, next_action="tell the operator: muster verify says more"
            )
        return _encoder.encode(msgspec.structs.replace(why, leader=control.leading, halted=halted))

    return answer
