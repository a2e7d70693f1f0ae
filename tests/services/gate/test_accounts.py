"""Accounts as people type them: every field, every kind of mistake with its place, and back again."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from events.accounts import Account, AccountsSet
from events.ask import RefusalCode, Refused
from events.base import AccountId, TeamId
from events.queues import Queue, QueuesSet
from services.gate.accounts import (
    ACCOUNTS_MAX,
    AccountsTyped,
    AccountTyped,
    accounts_changes,
    accounts_document,
    accounts_oddities,
    accounts_schema,
    checked_accounts,
    kept_closed,
    takes_back,
)

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
FULL = """
closed_through: 2026-10
accounts:
  - {name: vision-2026, queues: [vision, language], overdraft: 500.25}
  - {name: research, queues: [vision], overdraft: unlimited}
  - {name: old, closed: true}
"""


def read(text: str) -> AccountsSet | Refused:
    """What a text means."""
    return checked_accounts(yaml.safe_load(text), AT)


def known(text: str) -> AccountsSet:
    """What a text means, which is right."""
    found = read(text)
    assert isinstance(found, AccountsSet), found
    return found


def account(name: str, *queues: str, **others: Any) -> Account:
    """One account."""
    return Account(name=AccountId(name), queues=tuple(map(TeamId, queues)), **others)


def test_every_field_is_taken() -> None:
    """Accounts in the order of the document, which says who pays first; their queues by name."""
    assert read(FULL) == AccountsSet(
        at=AT,
        accounts=(
            account("vision-2026", "language", "vision", overdraft_micro=500_250_000),
            account("research", "vision", overdraft_micro=None),
            account("old", closed=True),
        ),
        closed_through="2026-10",
    )


def test_the_order_of_queues_says_nothing_and_that_of_accounts_does() -> None:
    """A file that was only put in order changes nothing, but for who pays first."""
    one = known("accounts: [{name: a, queues: [x, y]}, {name: b, overdraft: 0, closed: no}]")
    assert one == known('accounts: [{name: a, queues: [y, x], overdraft: "0.00"}, {name: b, queues: []}]')
    assert one != known("accounts: [{name: b}, {name: a, queues: [x, y]}]")


NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,6}[a-z0-9])?", fullmatch=True)
ACCOUNTS = st.builds(
    Account,
    name=NAMES.map(AccountId),
    queues=st.lists(NAMES.map(TeamId), max_size=4, unique=True).map(lambda names: tuple(sorted(names))),
    overdraft_micro=st.none() | st.integers(0, 10**18),
    closed=st.booleans(),
)
DOCUMENTS = st.builds(
    AccountsSet,
    at=st.just(AT),
    accounts=st.lists(ACCOUNTS, max_size=5, unique_by=lambda account: account.name).map(tuple),
    closed_through=st.sampled_from(["", "2025-12", "2026-10"]),
)


@settings(max_examples=100)
@given(DOCUMENTS)
def test_what_is_shown_means_what_was_set(accounts: AccountsSet) -> None:
    """To the last micro-credit; through YAML and through JSON."""
    document = accounts_document(accounts)
    assert read(yaml.safe_dump(document)) == accounts
    assert checked_accounts(json.loads(json.dumps(document)), AT) == accounts


@settings(max_examples=50)
@given(DOCUMENTS, DOCUMENTS)
def test_changes_are_told_where_there_are_any(one: AccountsSet, other: AccountsSet) -> None:
    """And nowhere else."""
    assert bool(accounts_changes(one, other)) == (one != other)


WRONG = (
    # what it is made of
    ("[]", "accounts: the document must be a mapping with the field accounts, not []", "for example  accounts: ["),
    ("{}", "accounts: is missing", "accounts: Of several that list a queue"),
    ("accounts: 3", "accounts: must be a list of accounts, not 3", "each begins with a dash:  - name: vision-2026"),
    ("accounts: [3]", "accounts.0: must be a mapping of fields to values, not 3", ""),
    ("acounts: []", "acounts: there is no such field; accounts: is missing", "did you mean accounts?"),
    ("accounts: [{name: a, quees: [b]}]", "accounts.0.quees: there is no such field", "did you mean queues?"),
    ("accounts: [{name: a, teams: [b]}]", "accounts.0.teams: there is no such field", "did you mean queues?"),
    ("accounts: [{name: a, credit_limit: 5}]", "accounts.0.credit_limit: there is no such field", "did you mean over"),
    ("accounts: [{name: a, xyzzy: 5}]", "accounts.0.xyzzy: there is no such field", "the fields are name, queues,"),
    # names
    ("accounts: [{}]", "accounts.0.name: is missing", "name: Of the account"),
    ("accounts: [{name: 2026}]", "accounts.0.name: must be text, not 2026", 'put quotes around it: "2026"'),
    ("accounts: [{name: Vision 2026}]", "accounts.0.name: 'Vision 2026' has a space", "for example vision-2026"),
    ("accounts: [{name: a.b}]", "accounts.0.name: 'a.b' has a dot, which divides subjects", "for example a-b"),
    ("accounts: [{name: '*'}]", "accounts.0.name: '*' has a wildcard (* or >)", ""),
    (
        "accounts: [{name: a}, {name: b}, {name: a}]",
        "accounts.2.name: 'a' is there twice; the other is accounts.0",
        "one account may list many queues",
    ),
    # queues
    ("accounts: [{name: a, queues: vision}]", "accounts.0.queues: must be a list of names", "for example  queues: [v"),
    ("accounts: [{name: a, queues: }]", "accounts.0.queues: must be a list of names of queues, not null", "for example"),
    ("accounts: [{name: a, queues: [x, y, x]}]", "accounts.0.queues: has x twice", ""),
    (
        "accounts: [{name: a, queues: [no, X, x]}]",
        "accounts.0.queues.0: must be text, not false; accounts.0.queues.1: 'X' has capital letters",
        "put quotes around it: YAML takes",
    ),
    # overdraft
    ("accounts: [{name: a, overdraft: -1}]", "accounts.0.overdraft: must be 0 or more, not -1", ""),
    ("accounts: [{name: a, overdraft: 1e12}]", "accounts.0.overdraft: must be a decimal with up to 6 places", ""),
    ("accounts: [{name: a, overdraft: 1000000000001}]", "accounts.0.overdraft: must be 1000000000000 or less", ""),
    ("accounts: [{name: a, overdraft: 0.1234567}]", "accounts.0.overdraft: must be a decimal with up to 6 places", ""),
    ("accounts: [{name: a, overdraft: unlimted}]", "accounts.0.overdraft: must be credits or unlimited", "did you mean"),
    ("accounts: [{name: a, overdraft: }]", "accounts.0.overdraft: must be credits or unlimited, not null", "write unl"),
    ("accounts: [{name: a, overdraft: .inf}]", "accounts.0.overdraft: must be credits or unlimited, not inf", "write"),
    ("accounts: [{name: a, overdraft: [1]}]", "accounts.0.overdraft: must be a decimal", ""),
    ("accounts: [{name: a, overdraft: true}]", "accounts.0.overdraft: must be a decimal", ""),
    # closed
    ("accounts: [{name: a, closed: 1}]", "accounts.0.closed: must be true or false, not 1", ""),
    # months
    ("{closed_through: 2026-11, accounts: []}", "closed_through: 2026-11 is not over; it is 2026-11 now", "a month can"),
    ("{closed_through: 2027-01, accounts: []}", "closed_through: 2027-01 is not over; it is 2026-11 now", "a month can"),
    ("{closed_through: 2026-13, accounts: []}", "closed_through: must be a month such as 2026-10, not '2026-13'", ""),
    ("{closed_through: 2026, accounts: []}", "closed_through: must be a month such as 2026-10, not 2026", ""),
    ("{closed_through: 2026-10-31, accounts: []}", "closed_through: must be a month such as 2026-10, not datetime", ""),
    ("{closed_through: '2026-10-31', accounts: []}", "closed_through: must be a month such as 2026-10, not '2026-10-", ""),
    ("{closed_through: , accounts: []}", "closed_through: must be a month such as 2026-10, not null", ""),
)  # fmt: skip


def test_all_that_is_wrong_is_told_at_once() -> None:
    """Not one thing a try."""
    refused = read("{closed_through: soon, accounts: [{name: A}, {name: b, overdraft: x, queue: [c]}]}")
    assert isinstance(refused, Refused)
    for place in ("accounts.1.queue", "closed_through", "accounts.0.name", "accounts.1.overdraft"):
        assert f"{place}: " in refused.message


@pytest.mark.parametrize(("text", "told", "hint"), WRONG)
def test_what_is_wrong_is_told_with_its_place_and_what_was_meant(text: str, told: str, hint: str) -> None:
    """Refused whole: no account of it is taken."""
    refused = read(text)
    assert isinstance(refused, Refused), refused
    assert refused.message.startswith(told)
    assert refused.hint.startswith(hint)
    assert bool(refused.hint) == bool(hint)


def test_a_document_that_is_too_large_is_refused() -> None:
    """By number and by bytes."""
    many: dict[str, Any] = {"accounts": [{"name": f"a{n}"} for n in range(ACCOUNTS_MAX + 1)]}
    refused = checked_accounts(many, AT)
    assert isinstance(refused, Refused)
    assert refused.message == "accounts: are 2001, 2000 is the most"
    large = checked_accounts({"accounts": [], "junk": "x" * 300_000}, AT)
    assert isinstance(large, Refused)
    assert large.code is RefusalCode.TOO_LARGE
    assert isinstance(checked_accounts({"accounts": many["accounts"][1:]}, AT), AccountsSet)


def test_changes_are_a_line_an_account() -> None:
    """Then the month, and an order that matters."""
    before = known("accounts: [{name: a, queues: [x]}, {name: b, overdraft: 5}, {name: c}]")
    after = known(
        "{closed_through: 2026-10, accounts: [{name: c, closed: true}, {name: a, queues: [y, x], overdraft: unlimited}, {name: d}]}"
    )
    assert accounts_changes(before, after) == [
        "~ a: queues x -> x y, overdraft 0 -> unlimited",
        "- b",
        "~ c: closed false -> true",
        "+ d: queues none, overdraft 0, closed false",
        "~ closed_through: none -> 2026-10",
        "~ order: a, c -> c, a",
    ]
    assert accounts_changes(after, after) == []
    assert accounts_changes(None, before)[0] == "+ a: queues x, overdraft 0, closed false"


QUEUES = QueuesSet(at=AT, queues=(Queue(name=TeamId("vision")), Queue(name=TeamId("language"))))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("accounts: [{name: a, queues: [vision]}]", []),
        ("accounts: [{name: a, queues: [visoin]}]", ["account a lists visoin, and no queue is named so; did you mean vision?"]),
        ("accounts: [{name: a, queues: [p, q, r, s, t, u, v]}]", ["account a lists p, q, r, s, t and 2 more, and no queue is named so"]),
        ("accounts: [{name: a}]", ["account a lists no queue: it pays for no job"]),
        ("accounts: [{name: a, closed: true}]", ["account a is closed for ever once nothing is reserved or owed on it"]),
    ],
)  # fmt: skip
def test_what_is_probably_not_meant_is_told(text: str, told: list[str]) -> None:
    """And the document is taken."""
    assert accounts_oddities(known(text), None, QUEUES, priced=True) == told


def test_an_account_that_goes_is_told() -> None:
    """It keeps what it has; whoever left it out may not know."""
    before, after = known("accounts: [{name: a, queues: [vision]}]"), known("accounts: []")
    assert accounts_oddities(after, before, QUEUES, priced=False) == [
        "account a goes: it pays for nothing new and keeps its balance"
    ]


def test_accounts_without_a_price_are_told() -> None:
    """Their jobs would wait, and nothing of the file says why. One that pays for nothing needs none."""
    no_price = "no price is in force: jobs that these accounts pay for wait until there is one"
    assert accounts_oddities(known("accounts: [{name: a, queues: [vision]}]"), None, QUEUES, priced=False) == [no_price]
    idle = known("accounts: [{name: a, queues: [vision], closed: true}]")
    assert accounts_oddities(idle, idle, QUEUES, priced=False) == []


def test_what_is_closed_stays_closed() -> None:
    """An account that the log calls closed is only closed or left out; a month is never opened again."""
    before = known("{closed_through: 2026-09, accounts: []}")
    after = known("accounts: [{name: a}, {name: b}, {name: c, closed: true}]")
    found = takes_back(before, kept_closed(before, after), {AccountId("b"), AccountId("c")})
    assert [told for told, _ in found] == [
        "accounts.1.closed: account b was closed, for ever",
    ]
    (earlier, hint) = takes_back(before, replace(after, closed_through="2026-08"), set())[0]
    assert earlier == "closed_through: is 2026-08, earlier than 2026-09; months up to 2026-09 are closed, for ever"
    assert hint == "leave it out, or write 2026-09, or a later month"
    for month in ("2026-09", "2026-10"):
        assert takes_back(before, replace(after, closed_through=month), {AccountId("c")}) == []
    assert takes_back(None, after, ()) == []


def test_a_file_that_names_no_month_keeps_those_that_are_closed() -> None:
    """Only that: what else it says is its own, and so is a month that it names."""
    before = known("{closed_through: 2026-09, accounts: [{name: a}]}")
    after, earlier = known("accounts: [{name: b}]"), known("{closed_through: 2026-08, accounts: []}")
    assert kept_closed(before, after) == replace(after, closed_through="2026-09")
    assert kept_closed(before, earlier) == earlier
    assert kept_closed(None, after) == after


def test_every_field_has_its_words_in_the_schema() -> None:
    """Editors show them."""
    schema = json.dumps(accounts_schema())
    for model in (AccountsTyped, AccountTyped):
        for field in model.model_fields.values():
            assert field.description is not None
            assert json.dumps(field.description) in schema
    assert '"const": "unlimited"' in schema
