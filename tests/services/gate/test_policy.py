"""The policy as people type it: every field, every kind of mistake, and back again."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from events.ask import Refused
from events.base import Event, StandingDocument
from events.policy import Bearer, ChargeFrom, Consolidation, JobOrder, Overrun, PlacePolicy, PolicySet, Waived
from services.gate.policy import (
    PROMISES_MAX,
    checked_policy,
    policy_changes,
    policy_document,
    policy_oddities,
    policy_schema,
)
from services.scheduler import promise

AT = datetime(2026, 3, 14, tzinfo=UTC)
DEFAULT = PolicySet(at=AT)


def read(text: str) -> PolicySet | Refused:
    """What a text means."""
    return checked_policy(yaml.safe_load(text), AT)


FIELDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("suspect_after: 20s", {"suspect_after_s": 20.0}),
    ("suspect_after_s: 20", {"suspect_after_s": 20.0}),
    ("suspect_after: 2.5", {"suspect_after_s": 2.5}),
    ("lost_after: 1h30m", {"lost_after_s": 5_400.0}),
    ("placement: first-fit", {"placement": PlacePolicy.FIRST_FIT}),
    ("order: sjf", {"order": JobOrder.SJF}),
    ("blocking: yes", {"blocking": True}),
    ("promises: 0", {"promises": 0}),
    ("overrun: extend", {"overrun": Overrun.EXTEND}),
    ("preemption: off", {"preemption": False}),
    ("min_runtime: 10m", {"min_runtime_s": 600}),
    ("evictions_max: 9", {"evictions_max": 9}),
    ("cool_down: 1h", {"cool_down_s": 3_600}),
    ("consolidation: off", {"consolidation": Consolidation.OFF}),
    ("consolidation: do", {"consolidation": Consolidation.DO}),
    ("half_life: 2d", {"half_life_s": 172_800}),
    ("admitted_ahead: 7", {"admitted_ahead": 7}),
    ("charge_from: placed", {"charge_from": ChargeFrom.PLACED}),
    ("instalment: 10m", {"instalment_s": 600}),
    ("instalment_s: 1", {"instalment_s": 1}),
    ("waived_failed: all", {"waived_failed": Waived.ALL}),
    ("waived_preempted: none", {"waived_preempted": Waived.NONE}),
    ("uncovered: account", {"uncovered": Bearer.ACCOUNT}),
    ("lost_most: 1h", {"lost_most_s": 3_600.0}),
    ("restart: 5m", {"restart_s": 300}),
    ("silent_percent: 0", {"silent_percent": 0}),
    ("breaker_percent: 100", {"breaker_percent": 100}),
    ("keep_place: 0", {"keep_place_s": 0}),
    ("avoid: 1d", {"avoid_s": 86_400}),
    ("start_within: 90", {"start_within_s": 90}),
)


@pytest.mark.parametrize(("text", "fields"), FIELDS)
def test_a_field_is_taken_and_all_others_have_their_default(text: str, fields: dict[str, Any]) -> None:
    """The document is the whole policy."""
    assert read(text) == replace(DEFAULT, **fields)


def test_every_field_of_the_event_can_be_typed() -> None:
    """With the default of the event, and in the schema."""
    own = set(PolicySet.__struct_fields__) - set(StandingDocument.__struct_fields__) - set(Event.__struct_fields__)
    assert {name for _, fields in FIELDS for name in fields} == own
    assert {name.removesuffix("_s") for name in own} == policy_document(None).keys()
    assert read("{}") == DEFAULT
    assert all(f'"{name}"' in json.dumps(policy_schema()) for name in policy_document(None))


@settings(max_examples=50)
@given(
    st.builds(
        PolicySet,
        at=st.just(AT),
        suspect_after_s=st.floats(0.1, 100),
        lost_after_s=st.floats(101, 31_536_000),
        placement=st.sampled_from(PlacePolicy),
        order=st.sampled_from(JobOrder),
        blocking=st.booleans(),
        promises=st.integers(0, 9),
        overrun=st.sampled_from(Overrun),
        preemption=st.booleans(),
        min_runtime_s=st.integers(0, 31_536_000),
        evictions_max=st.integers(0, 9),
        cool_down_s=st.integers(0, 31_536_000),
        consolidation=st.sampled_from(Consolidation),
        half_life_s=st.integers(0, 31_536_000),
        admitted_ahead=st.integers(0, 9),
        charge_from=st.sampled_from(ChargeFrom),
        instalment_s=st.integers(1, 31_536_000),
        waived_failed=st.sampled_from(Waived),
        waived_preempted=st.sampled_from(Waived),
        uncovered=st.sampled_from(Bearer),
        lost_most_s=st.floats(0.1, 31_536_000),
        restart_s=st.integers(0, 31_536_000),
        silent_percent=st.integers(0, 100),
        breaker_percent=st.integers(0, 100),
        keep_place_s=st.integers(0, 31_536_000),
        avoid_s=st.integers(0, 31_536_000),
        start_within_s=st.integers(0, 31_536_000),
    )
)
def test_what_is_shown_means_what_was_set(policy: PolicySet) -> None:
    """Also through YAML, in which a bare `off` is false."""
    assert read(yaml.safe_dump(policy_document(policy))) == policy


WRONG = (
    ("[]", "policy: the document must be a mapping of fields to values, not []", "for example"),
    ("lost_afer: 3", "lost_afer: there is no such field", "did you mean lost_after?"),
    ("backfill: 3", "backfill: there is no such field", "did you mean promises?"),
    ("xyzzy: 3", "xyzzy: there is no such field", "the fields are suspect_after, lost_after, lost_most"),
    ("lost_after: 100\nlost_after_s: 200", "lost_after_s: there is no such field", "did you mean lost_after?"),
    ("lost_after: 10s", "lost_after: must be more than suspect_after, which is 30s, not 10s", ""),
    ("suspect_after: 2m", "suspect_after: must be less than lost_after, which is 90s, not 2m", ""),
    ("suspect_after: 90", "suspect_after: must be less than lost_after, which is 90s, not 90s", ""),
    ("lost_after: never", "lost_after: must be a time such as 90, 90s, 10m, 1h30m or 2d, not 'never'", ""),
    ("lost_after: true", "lost_after: must be a time such as", ""),
    ("lost_after: [1]", "lost_after: must be a time such as", ""),
    ("lost_after: 2 weeks", "lost_after: must be a time such as", ""),
    ("suspect_after: 0", "suspect_after: must be more than 0, not 0", ""),
    ("lost_after: .nan", "lost_after: must be more than 0, not nan", ""),
    ("lost_after: .inf", "lost_after: must be 31536000 or less, not inf", ""),
    ("lost_after: 400d", "lost_after: must be 31536000 or less, not '400d'", ""),
    ("half_life: 1.5", "half_life: must be whole seconds, not 1.5", ""),
    ("min_runtime: -5", "min_runtime: must be 0 or more, not -5", ""),
    ("promises: -1", "promises: must be 0 or more, not -1", ""),
    ("promises: 1.5", "promises: must be a whole number, not 1.5", ""),
    ("promises: '2'", "promises: must be a whole number, not '2'", "write 2 without quotes"),
    ("promises: 4294967296", "promises: must be 2147483647 or less", ""),
    ("blocking: 1", "blocking: must be true or false, not 1", ""),
    ("order: fare", "order: must be one of fair, priority, fifo, sjf, not 'fare'", "did you mean fair?"),
    ("placement: bestfit", "placement: must be one of best-fit, first-fit, spread, not 'bestfit'", "did you mean"),
    ("overrun: stop", "overrun: must be one of kill, extend, not 'stop'", ""),
    ("consolidation: yes", "consolidation: must be one of off, propose, do, not true", ""),
    ("instalment: 0", "instalment: must be 1 or more, not 0", ""),
    ("instalment: 0.5", "instalment: must be whole seconds, not 0.5", ""),
    ("installment: 1h", "installment: there is no such field", "did you mean instalment?"),
    ("waived_failed: some", "waived_failed: must be one of all, lost, none, not 'some'", ""),
    ("waived_failed: no", "waived_failed: must be one of all, lost, none, not false", ""),
    ("charge_from: start", "charge_from: must be one of placed, started, not 'start'", "did you mean started?"),
    ("uncovered: us", "uncovered: must be one of provider, account, not 'us'", ""),
    ("order: ", "order: must be one of fair, priority, fifo, sjf, not null", ""),
)


@pytest.mark.parametrize(("text", "told", "hint"), WRONG)
def test_what_is_wrong_is_told_with_its_field_and_what_was_meant(text: str, told: str, hint: str) -> None:
    """Refused whole: no field of it is taken."""
    refused = read(text)
    assert isinstance(refused, Refused), refused
    assert refused.message.startswith(told)
    assert refused.hint.startswith(hint)
    assert bool(refused.hint) == bool(hint)


def test_changes_are_a_line_a_field() -> None:
    """As they are typed; what holds where nobody set a policy is its defaults."""
    policy = replace(DEFAULT, lost_after_s=120.0, blocking=True)
    assert policy_changes(None, policy) == ["~ lost_after: 90s -> 2m", "~ blocking: false -> true"]
    assert policy_changes(policy, policy) == []


def test_an_instalment_that_renews_all_the_time_is_told() -> None:
    """Each is a record in the log, of every such run."""
    assert policy_oddities(replace(DEFAULT, instalment_s=60)) == []
    (told,) = policy_oddities(replace(DEFAULT, instalment_s=59))
    assert told.startswith("instalment is 59s: so often each run without a declared runtime is renewed")


def test_more_promises_than_are_kept_at_once_are_told() -> None:
    """The policy is taken all the same: what holds is the scheduler's number."""
    assert policy_oddities(replace(DEFAULT, promises=PROMISES_MAX)) == []
    (told,) = policy_oddities(replace(DEFAULT, promises=PROMISES_MAX + 1))
    assert told == "promises is 257: no more than 256 gangs hold one at once"
    assert promise.PROMISES_MAX == PROMISES_MAX
