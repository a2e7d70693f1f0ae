"""Answers `why`, `dry_run` and `entitled` from the fold: any control plane may, leader or standby, and says its position."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from events.ask import Basis, DryRun, DryRunAsk, Entitled, Outcome, RollAnswer, RollAsk, Why, WhyAsk
from events.base import JobId, Position, spelled
from projections.cluster.explain.why import explain
from projections.cluster.quota.entitlement import Standing
from projections.cluster.tick import Tick
from runtime.clock import Clock
from services.control.chapters import Chapters
from services.control.dry_run import dry_run
from services.control.leader import ControlPlane

Answering = Callable[[str, bytes], Awaitable[bytes]]

DRY_RUNS_AT_ONCE: Final = 8  # that wait for their turn: each holds up the loop for some rounds
ROLL_WITHIN_S: Final = 15.0
ROLLS_AT_ONCE: Final = 8

_decoder = msgspec.json.Decoder(WhyAsk)
_dry_run_decoder = msgspec.json.Decoder(DryRunAsk)
_roll_decoder = msgspec.json.Decoder(RollAsk)
_encoder = msgspec.json.Encoder()


def answering_why(control: ControlPlane, clock: Clock) -> Answering:
    """What answers a `WhyAsk` with a `Why`, as bytes; one that cannot be read is answered as a job not found."""

    async def answer(_subject: str, payload: bytes) -> bytes:
        try:
            ask = _decoder.decode(payload)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return _encoder.encode(Why(job_id=JobId(""), found=False, position=Position(0)))
        why = explain(control.cluster, ask.job_id, at=clock.now())
        halted = control.cluster.unread
        if halted and why.code:
            message = f"nothing is decided since record {spelled(halted)}, which cannot be read or contradicts those before it"
            why = replace(
                why,
                message=message,
                next_action="tell the operator: muster verify says more",
                estimated_start=None,
                basis=Basis.UNKNOWN.value,
                estimate="nothing starts until that is mended",
            )
        return _encoder.encode(replace(why, leader=control.leading, halted=halted))

    return answer


def answering_dry_run(control: ControlPlane, clock: Clock) -> Answering:
    """What answers a `DryRunAsk` with a `DryRun`, as bytes; one that cannot be read is answered without an outcome."""

    async def answer(_subject: str, payload: bytes) -> bytes:
        cluster = control.cluster
        try:
            ask = _dry_run_decoder.decode(payload)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return _encoder.encode(DryRun(position=cluster.position))
        if cluster.unread:
            message = (
                f"nothing is decided since record {spelled(cluster.unread)}: it would wait until an operator mends that"
            )
            would = DryRun(position=cluster.position, outcome=Outcome.NOT_EVALUATED, message=message)
        else:
            would = dry_run(cluster, ask, _tick(control, clock))
        return _encoder.encode(replace(would, leader=control.leading, halted=cluster.unread))

    return answer


def answering_entitled(control: ControlPlane, clock: Clock) -> Answering:
    """What answers an `EntitledAsk` with an `Entitled`, as bytes. There is nothing in the ask to read."""

    async def answer(_subject: str, _payload: bytes) -> bytes:
        cluster = control.cluster
        queues = Standing(cluster, _tick(control, clock).at).entitlements()
        return _encoder.encode(Entitled(position=cluster.position, leader=control.leading, queues=queues))

    return answer


def answering_roll(chapters: Chapters) -> Answering:
    """What answers a `RollAsk` with a `RollAnswer`, as bytes, once the next chapter of the log is open."""

    async def answer(_subject: str, payload: bytes) -> bytes:
        try:
            ask = _roll_decoder.decode(payload)
            async with asyncio.timeout(ROLL_WITHIN_S):
                rolled = await chapters.asked(ask.by)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return _encoder.encode(RollAnswer(message="the ask cannot be read"))
        except TimeoutError:
            return _encoder.encode(RollAnswer(message=f"no chapter was opened within {ROLL_WITHIN_S:.0f} s"))
        return _encoder.encode(RollAnswer(closed=rolled.closed, opened=rolled.opened, gap_s=rolled.gap_s))

    return answer


def _tick(control: ControlPlane, clock: Clock) -> Tick:
    """Now. Nodes that are suspect stay so: whether they are heard again is not for a dry run to say."""
    cluster, now = control.cluster, clock.now()
    silent = dict.fromkeys(cluster.suspects, cluster.policy.suspect_after_s)
    at = now if cluster.at is None else max(now, cluster.at)
    return Tick(at=at, position=cluster.position, silent=silent)
