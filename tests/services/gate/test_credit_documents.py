"""Accounts and prices through the gate: over the one that was seen, beside the other documents, and never back from closed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from events.accounts import AccountsSet
from events.ask import Accepted, RefusalCode, SetPrices, SetQueues
from events.base import START, Position
from events.prices import PricesSet
from services.gate.gate import Gate, open_gate
from tests.services.gate.teller import BLUE, CLOCK, DOCUMENT, RED, Ledger, accepted, accounts, closed, commit, refused

PRICES: dict[str, Any] = {"lists": [{"gpu_hour": {"h100": 2.5, "*": 1}}]}
BY = "api:ada"


@pytest.fixture
def log() -> Ledger:
    """An empty log."""
    return Ledger()


@pytest.fixture
async def gate(log: Ledger) -> AsyncIterator[Gate]:
    """A gate of that log."""
    async with open_gate(log, CLOCK) as gate:
        yield gate


def prices(document: Any = PRICES, over: Position | None = START) -> SetPrices:
    """An ask to price runs so."""
    return SetPrices(document=document, replaces=over)


def one(**fields: Any) -> dict[str, Any]:
    """A document of one account."""
    return {"accounts": [{"name": RED, "queues": ["red"]} | fields]}


async def set_accounts(gate: Gate, document: Any, over: Position | None = None) -> Accepted:
    """The answer to these accounts, which is good."""
    return accepted(await gate.set_document(accounts(document, over), BY))


async def test_accounts_and_prices_are_set_over_what_was_seen(gate: Gate, log: Ledger) -> None:
    """Each a document of its own, with what changes, and the position that it replaces."""
    first = await set_accounts(gate, DOCUMENT, START)
    assert first.changes == (
        "+ blue-2026: queues blue, overdraft 0, closed false", "+ red-2026: queues red, overdraft 0, closed false"
    )  # fmt: skip
    priced = accepted(await gate.set_document(prices(), BY))
    assert priced.changes == ("+ list from the beginning: * 1, h100 2.5, step: 1s",)
    second = await set_accounts(gate, one(overdraft="unlimited"), first.position)
    assert second.changes == ("- blue-2026", "~ red-2026: overdraft 0 -> unlimited")
    assert [event.replaces for event in log.facts(AccountsSet)] == [START, first.position]
    (event,) = log.facts(PricesSet)
    assert (event.by, event.at, event.replaces) == (BY, CLOCK.now(), START)


async def test_what_holds_can_be_read_changed_and_set_again(gate: Gate) -> None:
    """As it is typed; where nobody has set one, it is empty."""
    for read in (gate.documents.accounts, gate.documents.prices):
        assert (await read()).position == START
    assert (await gate.documents.accounts()).document == {"accounts": []}
    assert (await gate.documents.prices()).document == {"lists": []}
    first = await set_accounts(gate, DOCUMENT, START)
    accepted(await gate.set_document(prices(), BY))
    held = await gate.documents.accounts()
    assert (held.document, held.position) == (DOCUMENT, first.position)
    assert (await gate.documents.prices()).document == PRICES
    again = await set_accounts(gate, held.document, held.position)
    assert (again.repeated, again.position) == (True, first.position)


async def test_of_two_at_once_one_is_written(gate: Gate, log: Ledger) -> None:
    """Whichever; the other is told the position that holds."""
    answers = await asyncio.gather(
        gate.set_document(accounts(DOCUMENT, START), "ada"), gate.set_document(accounts(one(), START), "bob")
    )
    (lost,) = [answer for answer in answers if not isinstance(answer, Accepted)]
    assert (lost.code, lost.position) == (RefusalCode.MOVED, await log.end())
    assert len(log.facts(AccountsSet)) == 1


async def test_a_dry_run_writes_nothing(gate: Gate, log: Ledger) -> None:
    """It says what would change and what would be refused."""
    tried = accepted(await gate.set_document(accounts(DOCUMENT, START), BY, dry_run=True))
    assert (tried.position, len(tried.changes)) == (START, 2)
    await set_accounts(gate, one(closed=True), START)
    end = await log.decided(closed(RED))
    assert "closed, for ever" in refused(await gate.set_document(accounts(one()), BY, dry_run=True)).message
    assert await log.end() == end


async def test_an_account_that_was_closed_is_not_opened_again(gate: Gate, log: Ledger) -> None:
    """By the log's last word on it; until then an operator may think again."""
    await set_accounts(gate, one(closed=True))
    await log.decided(commit())
    await set_accounts(gate, one(closed=False))
    await set_accounts(gate, one(closed=True))
    end = await log.decided(closed(RED, entry=2))
    for document in (one(closed=False), {"accounts": [{"name": BLUE}, {"name": RED}]}):
        answer = refused(await gate.set_document(accounts(document), BY))
        assert answer.code is RefusalCode.INVALID
        assert f"account {RED} was closed, for ever" in answer.message
        assert answer.hint == "write closed: true, or leave the account out; a new account has a new name"
    assert await log.end() == end
    await set_accounts(gate, one(closed=True, overdraft=1))
    await set_accounts(gate, {"accounts": []})
    assert refused(await gate.set_document(accounts(one()), BY)).code is RefusalCode.INVALID


async def test_months_are_closed_once_and_stay_closed(gate: Gate, log: Ledger) -> None:
    """Those that are over by the gate's clock, never fewer than before. Who names none leaves them as they are."""
    month, before = f"{CLOCK.now():%Y-%m}", "2025-12"
    assert month > before
    told = refused(await gate.set_document(accounts(one() | {"closed_through": month}), BY)).message
    assert told == f"closed_through: {month} is not over; it is {month} now"
    done = await set_accounts(gate, one() | {"closed_through": before})
    assert done.changes[-1] == f"~ closed_through: none -> {before}"
    answer = refused(await gate.set_document(accounts(one() | {"closed_through": "2025-11"}), BY))
    assert answer.message.endswith("months up to 2025-12 are closed, for ever")
    assert answer.hint == "leave it out, or write 2025-12, or a later month"
    for same in ({}, {"closed_through": ""}):
        assert (await set_accounts(gate, one() | same)).repeated
    assert await log.end() == done.position
    other = await set_accounts(gate, one(overdraft=7))
    assert not any("closed_through" in change for change in other.changes)
    assert (await gate.documents.accounts()).document["closed_through"] == before


async def test_all_that_would_be_taken_back_is_told_at_once(gate: Gate, log: Ledger) -> None:
    """Of every account, and the month."""
    await set_accounts(gate, DOCUMENT | {"closed_through": "2025-12"})
    await log.decided(closed(RED), closed(BLUE))
    message = refused(await gate.set_document(accounts(DOCUMENT | {"closed_through": "2025-11"}), BY)).message
    for place in ("closed_through", "accounts.0.closed", "accounts.1.closed"):
        assert f"{place}: " in message


async def test_documents_are_looked_at_beside_each_other(gate: Gate) -> None:
    """Accounts without prices or for queues that there are none of, prices that leave accounts without one."""
    first = await set_accounts(gate, DOCUMENT)
    assert first.warnings == (
        "account red-2026 lists red, and no queue is named so",
        "account blue-2026 lists blue, and no queue is named so",
        "no price is in force: jobs that these accounts pay for wait until there is one",
    )
    tree = SetQueues(document={"queues": [{"name": "red"}, {"name": "blue"}]}, replaces=START)
    accepted(await gate.set_document(tree, BY))
    none = accepted(await gate.set_document(prices({"lists": []}), BY))
    assert none.warnings == ("no price is in force now: jobs that account red-2026 pays for wait until there is one",)
    assert accepted(await gate.set_document(prices(over=none.position), BY)).warnings == ()
    again = await set_accounts(gate, DOCUMENT)
    assert (again.repeated, again.warnings) == (True, ())


async def test_a_document_of_another_version_can_be_replaced(gate: Gate, log: Ledger) -> None:
    """Who sees its position may set another over it."""
    for subject, ask in (("accounts", accounts), ("prices", prices)):
        document = f'{{"specversion":"1.0","type":"musterbook.{subject}.set.v9","id":"x","data":{{}}}}'
        position = log.write_raw(subject, document.encode())
        done = accepted(await gate.set_document(ask(over=position), BY))
        assert done.position == await log.end()


async def test_documents_are_counted_by_what_was_asked(gate: Gate) -> None:
    """As asks on the wire are called."""
    await set_accounts(gate, DOCUMENT)
    await gate.set_document(prices({}), BY)
    assert gate.answers["set_accounts", "accepted"] == gate.answers["set_prices", "invalid"] == 1
