"""What becomes of a delivery after an attempt: delivered, tried again later, given up, or its endpoint is gone.

Source: Standard Webhooks 1.0.0, "Deliverability and reliability"; RFC 9110, section 10.2.3, for Retry-After.
"""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Final, NamedTuple

# Before each attempt, counted from the one before it; the last attempt is some three days after the first.
DELAYS_S: Final = (0, 5, 5 * 60, 30 * 60, 2 * 3_600, 5 * 3_600, 10 * 3_600, 14 * 3_600, 20 * 3_600, 24 * 3_600)
ATTEMPTS_MAX: Final = len(DELAYS_S)
JITTER: Final = 0.1  # of a delay, at most, comes on top: what failed together does not come back together
RETRY_AFTER_MAX_S: Final = 24 * 3_600
THROTTLING: Final = frozenset(
    {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT}
)  # the endpoint has more than it can take: nothing at all is sent to it for a while


class State(StrEnum):
    """Where a delivery is."""

    WAITING = "waiting"  # for its next attempt, or in the middle of one
    DELIVERED = "delivered"
    FAILED = "failed"  # after the last attempt
    DISABLED = "disabled"  # its endpoint said that it is gone


class Answer(NamedTuple):
    """What an attempt met."""

    status: int  # 0: no answer
    retry_after_s: float | None = None
    problem: str = ""  # why there was no answer


class Verdict(NamedTuple):
    """What becomes of a delivery."""

    state: State
    next_try: datetime | None = None  # of one that waits
    quiet_until: datetime | None = None  # until when nothing is sent to its endpoint
    gone: bool = False  # the endpoint is disabled


def judge(answer: Answer, *, attempts: int, now: datetime, chance: float, once: bool = False) -> Verdict:
    """What follows from the answer to attempt number `attempts`, from 1. `chance` is from 0 up to 1.

    Only 2xx is success. A redirect is not followed: it fails like all else. `once`: no other attempt is made.
    """
    assert attempts >= 1
    assert 0 <= chance <= 1
    if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
        return Verdict(State.DELIVERED)
    if answer.status == HTTPStatus.GONE:
        return Verdict(State.DISABLED, gone=True)
    asked_s = min(answer.retry_after_s or 0.0, RETRY_AFTER_MAX_S)
    throttled = answer.status in THROTTLING
    if once or attempts >= ATTEMPTS_MAX:
        return Verdict(
            State.FAILED, quiet_until=now + timedelta(seconds=max(asked_s, DELAYS_S[1])) if throttled else None
        )
    delay_s = max(DELAYS_S[attempts] * (1 + JITTER * chance), asked_s)
    quiet_s = max(asked_s, min(delay_s, DELAYS_S[2]))
    return Verdict(
        State.WAITING,
        next_try=now + timedelta(seconds=delay_s),
        quiet_until=now + timedelta(seconds=quiet_s) if throttled else None,
    )


def retry_after_s(text: str, now: datetime) -> float | None:
    """The seconds that a Retry-After header asks to wait, as a number or as a date; None for what is neither."""
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - now).total_seconds())
