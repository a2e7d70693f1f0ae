"""Price lists as people type them: every field, every kind of mistake with its place, and back again."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from events.accounts import Account, AccountsSet
from events.amounts import MICRO
from events.ask import RefusalCode, Refused
from events.base import AccountId, TeamId
from events.job import Priority
from events.prices import ClassFactor, GpuPrice, PriceList, PricesSet
from services.gate.prices import (
    LISTS_MAX,
    RATE_MAX,
    STEP_MAX_S,
    PriceListTyped,
    PricesTyped,
    checked_prices,
    priced,
    prices_changes,
    prices_document,
    prices_oddities,
    prices_schema,
    unpriced,
)
from services.gate.spec import GPUS_MAX, RUNTIME_MAX_S

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
YEAR = datetime(2027, 1, 1, tzinfo=UTC)
FULL = """
lists:
  - gpu_hour: {h100: 2.5, "*": 1}
  - from: 2027-01-01T00:00:00Z
    gpu_hour: {h100: 2, a100: "0.000001", "*": 1}
    classes: {urgent: 1.5, low: 0.5, normal: 1}
    step: 60s
"""


def read(text: str) -> PricesSet | Refused:
    """What a text means."""
    return checked_prices(yaml.safe_load(text), AT)


def known(text: str) -> PricesSet:
    """What a text means, which is right."""
    found = read(text)
    assert isinstance(found, PricesSet), found
    return found


def test_every_field_is_taken() -> None:
    """Exactly; types and classes in one order, a class whose factor is one not kept."""
    assert read(FULL) == PricesSet(
        at=AT,
        lists=(
            PriceList(prices=(GpuPrice("", 1_000_000), GpuPrice("h100", 2_500_000))),
            PriceList(
                effective_from=YEAR,
                prices=(GpuPrice("", 1_000_000), GpuPrice("a100", 1), GpuPrice("h100", 2_000_000)),
                factors=(ClassFactor(Priority.LOW, 500), ClassFactor(Priority.URGENT, 1_500)),
                step_s=60,
            ),
        ),
    )


@pytest.mark.parametrize(
    "typed",
    [
        "2027-01-01T00:00:00Z", "'2027-01-01T00:00:00Z'", "2027-01-01 01:00:00+01:00", "'2027-01-01T01:00:00+01:00'",
        "2026-12-31T19:00:00.000-05:00",
    ],
)  # fmt: skip
def test_a_time_means_the_same_however_it_is_written(typed: str) -> None:
    """As YAML reads it or as text, in any zone that it says."""
    prices = known(f"lists: [{{from: {typed}, gpu_hour: {{h100: 1}}}}]")
    assert prices.lists[0].effective_from == YEAR
    assert prices_document(prices)["lists"][0]["from"] == "2027-01-01T00:00:00Z"


TYPES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,9}", fullmatch=True) | st.just("")
PRICES = st.dictionaries(TYPES, st.integers(0, 500 * MICRO), max_size=4).map(
    lambda prices: tuple(GpuPrice(*pair) for pair in sorted(prices.items()))
)
FACTORS = st.dictionaries(
    st.sampled_from(Priority), st.integers(0, 10_000).filter(lambda milli: milli != 1_000), max_size=4
).map(lambda factors: tuple(ClassFactor(priority, factors[priority]) for priority in Priority if priority in factors))


@st.composite
def documents(draw: st.DrawFn) -> PricesSet:
    """Price lists in the order of their times, the first from the beginning or not."""
    times: list[Any] = sorted(draw(st.sets(st.datetimes(datetime(2000, 1, 1), datetime(9000, 1, 1)), max_size=3)))  # noqa: DTZ001 - made aware below
    times = [time.replace(tzinfo=UTC) for time in times]
    if draw(st.booleans()):
        times.insert(0, None)
    lists = [
        PriceList(
            effective_from=time, prices=draw(PRICES), factors=draw(FACTORS), step_s=draw(st.integers(0, STEP_MAX_S))
        )
        for time in times
    ]
    return PricesSet(at=AT, lists=tuple(lists))


@settings(max_examples=100)
@given(documents())
def test_what_is_shown_means_what_was_set(prices: PricesSet) -> None:
    """To the micro-credit and the microsecond; through YAML and through JSON."""
    document = prices_document(prices)
    assert read(yaml.safe_dump(document)) == prices
    assert checked_prices(json.loads(json.dumps(document)), AT) == prices


@settings(max_examples=50)
@given(documents(), documents())
def test_changes_are_told_where_there_are_any(one: PricesSet, other: PricesSet) -> None:
    """And nowhere else."""
    assert bool(prices_changes(one, other)) == (one != other)


LIST = "lists: [{gpu_hour: {h100: 1}, %s}]"
WRONG = (
    # what it is made of
    ("[]", "prices: the document must be a mapping with the field lists, not []", "for example  lists: ["),
    ("{}", "lists: is missing", "lists: In the order of their times"),
    ("lists: {a: 1}", "lists: must be a list of price lists, not {'a': 1}", "each begins with a dash:  - gpu_hour"),
    ("lists: [3]", "lists.0: must be a mapping of fields to values, not 3", ""),
    ("lists: [{}]", "lists.0.gpu_hour: is missing", "gpu_hour: Credits for an hour of one GPU"),
    (LIST % "form: 2027-01-01T00:00:00Z", "lists.0.form: there is no such field", "did you mean from?"),
    (LIST % "effective_from: 2027-01-01T00:00:00Z", "lists.0.effective_from: there is no such field", "did you mean fr"),
    (LIST % "prices: {h100: 1}", "lists.0.prices: there is no such field", "did you mean gpu_hour?"),
    (LIST % "priority: {low: 1}", "lists.0.priority: there is no such field", "did you mean classes?"),
    (LIST % "xyzzy: 1", "lists.0.xyzzy: there is no such field", "the fields are from, gpu_hour, classes, step"),
    # prices
    ("lists: [{gpu_hour: 3}]", "lists.0.gpu_hour: must be a mapping of GPU types to credits, not 3", "for example"),
    ("lists: [{gpu_hour: {100: 3}}]", "lists.0.gpu_hour: has 100; a GPU type is", 'put quotes around it: "100"'),
    ("lists: [{gpu_hour: {'': 3, ä: 1}}]", "lists.0.gpu_hour: has '', 'ä'; a GPU type is", 'any other type is "*"'),
    (
        "lists: [{gpu_hour: {h100: -1, a100: x, b200: 0.1234567}}]",
        "lists.0.gpu_hour.h100: must be 0 or more, not -1; lists.0.gpu_hour.a100: must be a decimal with up to 6 pl",
        "",
    ),
    ("lists: [{gpu_hour: {h100: 5000.01}}]", "lists.0.gpu_hour.h100: is 5000.01: 5000 is the most for a GPU-hour", "let"),
    (
        "lists: [{gpu_hour: {h100: 4000, a100: 1}, classes: {high: 2, low: 0.5}}]",
        "lists.0.gpu_hour.h100: is 4000, 8000 for high: 5000 is the most for a GPU-hour",
        "let a credit be worth more",
    ),
    (
        "lists: [{gpu_hour: {h100: 6000}, classes: {low: 0.5}}]",
        "lists.0.gpu_hour.h100: is 6000: 5000 is the most for a GPU-hour",
        "let a credit be worth more",
    ),
    # classes
    (LIST % "classes: [1]", "lists.0.classes: must be a mapping of priority classes to factors, not [1]", "for example"),
    (LIST % "classes: {urgnet: 2}", "lists.0.classes: has 'urgnet'; the classes are low, normal, high", "did you mean u"),
    (LIST % "classes: {low: 0.0005}", "lists.0.classes.low: must have up to 3 places, not 0.0005", "factors are whole"),
    (LIST % "classes: {low: -1}", "lists.0.classes.low: must be 0 or more, not -1", ""),
    # step
    (LIST % "step: 1.5", "lists.0.step: must be whole seconds, not 1.5", ""),
    (LIST % "step: soon", "lists.0.step: must be a time such as 90, 90s", ""),
    (LIST % "step: 2d", "lists.0.step: must be 86400 or less, not '2d'", ""),
    (LIST % "step: -1", "lists.0.step: must be 0 or more, not -1", ""),
    # times
    (LIST % "from: tomorrow", "lists.0.from: must be a time, not 'tomorrow'", "for example 2027-01-01T00:00:00Z"),
    (LIST % "from: 2027-01-01", "lists.0.from: must be a time, not '2027-01-01'", "for example 2027-01-01T00:00:00Z"),
    (LIST % "from: '2027-01-01'", "lists.0.from: must say its zone: 2027-01-01T00:00:00", "in UTC it ends with Z: 2027-"),
    (LIST % "from: 2027-01-01 00:00:00", "lists.0.from: must say its zone: 2027-01-01T00:00:00", "in UTC it ends with Z"),
    (LIST % "from: ", "lists.0.from: must be a time, not null", "leave it out in the first list"),
    (LIST % "from: 5", "lists.0.from: must be a time, not 5", "for example 2027-01-01T00:00:00Z"),
    (LIST % "from: '0001-01-01T00:00:00+14:00'", "lists.0.from: must be a time of the years 1 to 9999", "for example"),
    ("lists: [{gpu_hour: {}}, {gpu_hour: {}}]", "lists.1.from: is missing: only the first list holds from the", "say f"),
    (
        "lists: [{from: 2027-01-01T00:00:00Z, gpu_hour: {}}, {from: 2027-01-01T01:00:00+01:00, gpu_hour: {}}]",
        "lists.1.from: must be later than that of the list before, 2027-01-01T00:00:00Z, not 2027-01-01T00:00:00Z",
        "lists stand in the order of their times",
    ),
    (
        "lists: [{gpu_hour: {}}, {from: 2028-01-01T00:00:00Z, gpu_hour: {}}, {from: 2027-01-01T00:00:00Z, gpu_hour: {}}]",
        "lists.2.from: must be later than that of the list before, 2028-01-01T00:00:00Z, not 2027-01-01T00:00:00Z",
        "lists stand in the order of their times",
    ),
)  # fmt: skip


@pytest.mark.parametrize(("text", "told", "hint"), WRONG)
def test_what_is_wrong_is_told_with_its_place_and_what_was_meant(text: str, told: str, hint: str) -> None:
    """Refused whole: no list of it is taken."""
    refused = read(text)
    assert isinstance(refused, Refused), refused
    assert refused.message.startswith(told)
    assert refused.hint.startswith(hint)
    assert bool(refused.hint) == bool(hint)


def test_all_that_is_wrong_is_told_at_once() -> None:
    """Every type, every class, every list."""
    text = "lists: [{gpu_hour: {h100: -1, a100: x}, classes: {low: -1}, step: soon}, {gpu_hour: {b200: 0.1234567}}]"
    refused = read(text)
    assert isinstance(refused, Refused)
    for place in ("0.gpu_hour.h100", "0.gpu_hour.a100", "0.classes.low", "0.step", "1.gpu_hour.b200"):
        assert f"lists.{place}: must be " in refused.message


def test_a_type_may_be_called_as_a_class_is() -> None:
    """What changes is told of both."""
    one, two, three = (
        known("lists: [{{gpu_hour: {{low: {}, step: 1}}, classes: {{low: {}}}}}]".format(*pair))
        for pair in ((1, 2), (2, 2), (2, 1))
    )
    assert prices_changes(one, two) == ["~ list from the beginning: low 1 -> 2"]
    assert prices_changes(two, three) == ["~ list from the beginning: low: 2 -> none"]


def test_a_document_that_is_too_large_is_refused() -> None:
    """By number of lists and of types, and by bytes."""
    for lists, told in (
        ([{"gpu_hour": {}}] * (LISTS_MAX + 1), "lists: are 501, 500 is the most"),
        ([{"gpu_hour": {f"t{n}": 1 for n in range(201)}}], "lists.0.gpu_hour: has 201 types, 200 is the most"),
    ):
        refused = checked_prices({"lists": lists}, AT)
        assert isinstance(refused, Refused)
        assert refused.message == told
    large = checked_prices({"lists": [], "junk": "x" * 300_000}, AT)
    assert isinstance(large, Refused)
    assert large.code is RefusalCode.TOO_LARGE


def test_the_dearest_job_there_may_be_has_an_amount() -> None:
    """It fits into an event: all GPUs, the longest runtime in whole steps, the highest rate."""
    longest_s = RUNTIME_MAX_S + STEP_MAX_S
    assert GPUS_MAX * longest_s * RATE_MAX * MICRO // 3_600 <= 1 << 62


def test_changes_are_a_line_a_list() -> None:
    """In the order of their times, as they are typed."""
    before = known(FULL)
    after = known("lists: [{gpu_hour: {h100: 3, b200: 4}}, {from: 2028-01-01T00:00:00Z, gpu_hour: {h100: 2}, step: 0}]")
    assert prices_changes(before, after) == [
        "~ list from the beginning: * 1 -> none, h100 2.5 -> 3, b200 none -> 4",
        "- list from 2027-01-01T00:00:00Z",
        "+ list from 2028-01-01T00:00:00Z: h100 2, step: 0s",
    ]
    assert prices_changes(after, after) == []
    assert prices_changes(None, after)[0] == "+ list from the beginning: b200 4, h100 3, step: 1s"


ACCOUNTS = AccountsSet(at=AT, accounts=(Account(name=AccountId("a"), queues=(TeamId("x"),)),))
IDLE = AccountsSet(at=AT, accounts=(Account(name=AccountId("a"), queues=(TeamId("x"),), closed=True),))
WAITS = "no price is in force now: jobs that account a pays for wait until there is one"


@pytest.mark.parametrize(
    ("text", "accounts", "told"),
    [
        ("lists: [{gpu_hour: {h100: 1}}]", ACCOUNTS, []),
        ("lists: []", None, []),
        ("lists: []", IDLE, []),
        ("lists: []", ACCOUNTS, [WAITS]),
        ("lists: [{from: 2027-01-01T00:00:00Z, gpu_hour: {h100: 1}}]", ACCOUNTS, [WAITS]),
        ("lists: [{from: 2026-01-01T00:00:00Z, gpu_hour: {h100: 1}}]", ACCOUNTS, []),
        (
            "lists: [{gpu_hour: {h100: 1}}, {from: 2027-01-01T00:00:00Z, gpu_hour: {}}]",
            ACCOUNTS,
            ["list from 2027-01-01T00:00:00Z has no price: from then on no job that an account pays for may start"],
        ),
        (
            "lists: [{gpu_hour: {h100: 0, '*': 0}}]",
            ACCOUNTS,
            ["list from the beginning has only prices of 0: jobs cost nothing"],
        ),
    ],
)
def test_what_is_probably_not_meant_is_told(text: str, accounts: AccountsSet | None, told: list[str]) -> None:
    """And the document is taken."""
    assert prices_oddities(known(text), accounts) == told


def test_types_of_the_cluster_without_a_price_are_told() -> None:
    """For the list in force and those to come; those that are over do not count."""
    prices = known(
        "lists: [{gpu_hour: {}}, {from: 2026-01-01T00:00:00Z, gpu_hour: {h100: 1}}, {from: 2027-01-01T00:00:00Z, gpu_hour: {'*': 1}}]"
    )
    assert unpriced(prices, {"h100"}, AT) == []
    assert unpriced(prices, {"h100", "a100"}, AT) == [
        "list from 2026-01-01T00:00:00Z has no price for a100: jobs that may get one and are paid for wait"
    ]
    assert unpriced(prices, {"h100", "a100"}, YEAR) == []
    assert unpriced(prices, {"a100"}, datetime(2025, 1, 1, tzinfo=UTC)) == [
        "list from the beginning has no price for a100: jobs that may get one and are paid for wait",
        "list from 2026-01-01T00:00:00Z has no price for a100: jobs that may get one and are paid for wait",
    ]


def test_a_list_is_in_force_from_its_time_on() -> None:
    """To the microsecond; one without prices is none."""
    prices = known("lists: [{from: 2027-01-01T00:00:00Z, gpu_hour: {h100: 1}}]")
    assert priced(prices, YEAR)
    assert not priced(prices, YEAR - timedelta(microseconds=1))
    assert not priced(None, YEAR)
    assert not priced(known("lists: [{gpu_hour: {}}]"), YEAR)


def test_every_field_has_its_words_in_the_schema() -> None:
    """Editors show them."""
    schema = json.dumps(prices_schema())
    for model in (PricesTyped, PriceListTyped):
        for field in model.model_fields.values():
            assert field.description is not None
            assert json.dumps(field.description) in schema
    assert '"from"' in schema
