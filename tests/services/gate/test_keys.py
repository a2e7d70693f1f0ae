"""What a key stands for, whether a job or an ask of an account has it."""

from datetime import UTC, datetime

import pytest

from events.ask import Accepted, RefusalCode, Refused
from events.base import AccountId, AskId, Event, JobId, Position, Recorded, TeamId, Unreadable
from events.job import JobSpec, JobSubmitted
from events.keyed import Keyed
from events.teller import AdjustmentAsked, GrantAsked
from services.gate.keys import Keys, answer_over

AT = datetime(2026, 11, 30, tzinfo=UTC)


def job(key: str = "k", digest: str = "h") -> JobSubmitted:
    """A job under a key."""
    spec = JobSpec(name="x", command=("true",), gpus=1)
    return JobSubmitted(
        at=AT, team=TeamId("t"), job_id=JobId(f"j{key}"), spec=spec, key=key, request_hash=digest
    )  # fmt: skip


def grant(key: str = "k", digest: str = "h") -> GrantAsked:
    """A grant under a key."""
    return GrantAsked(
        at=AT, account=AccountId("c"), ask_id=AskId(f"a{key}"), key=key, request_hash=digest, amount_micro=1
    )


def adjustment(key: str = "k", digest: str = "h") -> AdjustmentAsked:
    """A correction under a key."""
    return AdjustmentAsked(
        at=AT, account=AccountId("c"), ask_id=AskId(f"a{key}"), key=key, request_hash=digest, amount_micro=1
    )


def recorded(event: Event) -> Recorded:
    """An event at position 7."""
    return Recorded(event, Position(7), AT)


@pytest.mark.parametrize("make", [job, grant, adjustment])
def test_a_repeat_gets_the_answer_of_the_first(make: type[Keyed]) -> None:
    """From memory and from the log alike, with the id that it has."""
    keys = Keys()
    first: Keyed = make("k", "h")
    assert keys.answer(first) is None
    keys.learn(first, Position(7))
    answer = answer_over(first, recorded(first))
    assert answer == keys.answer(first)
    ids = {"job_id": JobId("jk")} if isinstance(first, JobSubmitted) else {"ask_id": AskId("ak")}
    assert answer == Accepted(position=Position(7), repeated=True, **ids)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (job(), "key: 'k' stands for job jk, whose spec is another one"),
        (grant(), "key: 'k' stands for ask ak, which asked something else of account 'c'"),
    ],
    ids=["job", "grant"],
)
def test_another_body_is_a_conflict(first: Keyed, told: str) -> None:
    """It says what has the key."""
    keys = Keys()
    keys.learn(first, Position(7))
    other: Keyed = job(digest="other") if isinstance(first, JobSubmitted) else adjustment(digest="other")
    answer = keys.answer(other)
    assert isinstance(answer, Refused)
    assert (answer.code, answer.message) == (RefusalCode.CONFLICT, told)
    assert (answer.job_id or answer.ask_id) == (other.job_id if isinstance(other, JobSubmitted) else other.ask_id)


def test_two_keys_that_meet_in_one_id_are_told_apart() -> None:
    """The id is a hash; the key itself decides."""
    answer = answer_over(grant("k"), recorded(GrantAsked(
        at=AT, account=AccountId("c"), ask_id=AskId("ak"), key="other", request_hash="h", amount_micro=1
    )))  # fmt: skip
    assert isinstance(answer, Refused)
    assert answer.code is RefusalCode.CONFLICT


@pytest.mark.parametrize("keyed", [job(), grant()], ids=["job", "grant"])
def test_what_cannot_be_read_keeps_its_key(keyed: Keyed) -> None:
    """A record of a version to come, or of nobody's."""
    answer = answer_over(keyed, recorded(Unreadable(at=AT, subject="x", named="", reason="")))
    assert isinstance(answer, Refused)
    assert answer.code is RefusalCode.CONFLICT
    assert answer.message.endswith("cannot be read by this version")


def test_only_the_keys_that_were_met_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log knows the others."""
    monkeypatch.setattr("services.gate.keys.KNOWN_MAX", 2)
    keys = Keys()
    for key in ("a", "b", "a", "c"):
        keys.learn(grant(key), Position(7))
    assert [keys.answer(grant(key)) is not None for key in ("a", "b", "c")] == [True, False, True]
