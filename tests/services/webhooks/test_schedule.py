"""What becomes of a delivery: the schedule, its jitter, and what an endpoint may say."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.webhooks.schedule import (
    ATTEMPTS_MAX,
    DELAYS_S,
    JITTER,
    RETRY_AFTER_MAX_S,
    Answer,
    State,
    judge,
    retry_after_s,
)

NOW = datetime(2026, 11, 30, tzinfo=UTC)
HOUR_S = 3_600
AFTER = st.none() | st.floats(0, 1e9)


@given(status=st.integers(200, 299), attempts=st.integers(1, 20), after=AFTER, chance=st.floats(0, 1))
def test_only_2xx_is_success(status: int, attempts: int, after: float | None, chance: float) -> None:
    """At whatever attempt it comes."""
    assert judge(Answer(status, after), attempts=attempts, now=NOW, chance=chance) == (
        State.DELIVERED, None, None, False,
    )  # fmt: skip


def test_a_delivery_is_tried_ten_times_over_three_days() -> None:
    """At 0, then 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h after the one before; then it has failed."""
    waits = []
    for attempts in range(1, ATTEMPTS_MAX):
        verdict = judge(Answer(500), attempts=attempts, now=NOW, chance=0)
        assert verdict.state is State.WAITING
        assert verdict.next_try is not None
        waits.append((verdict.next_try - NOW).total_seconds())
    assert waits == [5, 300, 1_800, 2 * HOUR_S, 5 * HOUR_S, 10 * HOUR_S, 14 * HOUR_S, 20 * HOUR_S, 24 * HOUR_S]
    assert judge(Answer(500), attempts=ATTEMPTS_MAX, now=NOW, chance=0) == (State.FAILED, None, None, False)


@given(
    status=st.integers(0, 599).filter(lambda status: not 200 <= status < 300 and status != 410),
    attempts=st.integers(1, ATTEMPTS_MAX - 1),
    after=AFTER,
    chance=st.floats(0, 1),
)
def test_what_failed_waits_as_long_as_the_schedule_and_the_endpoint_say(
    status: int, attempts: int, after: float | None, chance: float
) -> None:
    """Never less than either, never more than the greater with its jitter; an endpoint asks for a day at the most."""
    verdict = judge(Answer(status, after), attempts=attempts, now=NOW, chance=chance)
    assert verdict.state is State.WAITING
    assert verdict.next_try is not None
    asked_s, delay_s = min(after or 0, RETRY_AFTER_MAX_S), DELAYS_S[attempts]
    tick = timedelta(microseconds=1)
    least, most = max(delay_s, asked_s), max(delay_s * (1 + JITTER), asked_s)
    assert timedelta(seconds=least) - tick <= verdict.next_try - NOW <= timedelta(seconds=most) + tick
    assert (verdict.quiet_until is not None) == (status in {429, 502, 504})


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 404, 500, 503, 0])
def test_a_redirect_fails_like_any_other_answer(status: int) -> None:
    """The other address may be one that nobody has checked."""
    assert judge(Answer(status), attempts=1, now=NOW, chance=0).state is State.WAITING


def test_gone_ends_it_at_once() -> None:
    """410 is how a receiver says that it wants no more, at any attempt."""
    for attempts in (1, ATTEMPTS_MAX):
        assert judge(Answer(410), attempts=attempts, now=NOW, chance=0) == (State.DISABLED, None, None, True)


def test_an_endpoint_with_too_much_is_left_in_peace() -> None:
    """As long as it asks, else as long as the delivery waits, but five minutes at the most without a word of its own."""
    asked = judge(Answer(429, 120), attempts=1, now=NOW, chance=0)
    assert asked.quiet_until == asked.next_try == NOW + timedelta(seconds=120)
    unsaid = judge(Answer(502), attempts=8, now=NOW, chance=0)
    assert unsaid.quiet_until == NOW + timedelta(seconds=300)
    last = judge(Answer(504), attempts=ATTEMPTS_MAX, now=NOW, chance=0)
    assert (last.state, last.quiet_until) == (State.FAILED, NOW + timedelta(seconds=5))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120),
        ("0", 0),
        ("Mon, 30 Nov 2026 00:02:00 GMT", 120),
        ("Sun, 29 Nov 2026 00:02:00 GMT", 0),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("9" * 40, 999_999_999),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(text: str, seconds: float | None) -> None:
    """What is neither says nothing."""
    assert retry_after_s(text, NOW) == seconds
