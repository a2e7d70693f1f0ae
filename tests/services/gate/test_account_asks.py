"""What operators ask of accounts: exact, of accounts that there are, and under a key that is taken once, for ever."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from events.amounts import micro_credits
from events.ask import Adjust, Grant, RefusalCode
from events.base import START, AccountId, Position
from events.teller import AdjustmentAsked, GrantAsked
from services.gate.gate import Gate, open_gate
from services.gate.names import KEY_MAX, ask_id_for
from tests.services.gate.teller import BLUE, CLOCK, RED, Ledger, accepted, accounts, closed, commit, refused

BY = "api:ada"


@pytest.fixture
def log() -> Ledger:
    """An empty log."""
    return Ledger()


@pytest.fixture
async def gate(log: Ledger) -> AsyncIterator[Gate]:
    """A gate of that log, where two accounts were named."""
    async with open_gate(log, CLOCK) as gate:
        accepted(await gate.set_document(accounts(), BY))
        yield gate


def grant(amount: str = "192.5", key: str = "k", account: str = RED, **others: str) -> Grant:
    """An ask for more."""
    return Grant(account=AccountId(account), key=key, credits=amount, **others)


def adjust(amount: str = "-5", key: str = "k", account: str = RED, refunds: int = START, **others: str) -> Adjust:
    """An ask to correct."""
    return Adjust(account=AccountId(account), key=key, credits=amount, refunds=Position(refunds), **others)


async def test_a_grant_is_in_the_log_at_the_position_of_the_answer(gate: Gate, log: Ledger) -> None:
    """Exact, with who asked and why, and an id made of account and key."""
    answer = accepted(await gate.ask_account(grant("0.000001", reason="pilot", trace="t"), BY))
    assert (answer.ask_id, answer.repeated, answer.job_id) == (ask_id_for(RED, "k"), False, "")
    recorded = await log.read(answer.position)
    assert recorded is not None
    assert recorded.subject == f"teller.{RED}.{answer.ask_id}"
    event = recorded.event
    assert isinstance(event, GrantAsked)
    assert (event.account, event.key, event.amount_micro, event.reason) == (RED, "k", 1, "pilot")
    assert (event.at, event.by, event.trace) == (CLOCK.now(), BY, "t")


def test_the_id_of_an_ask_is_for_ever() -> None:
    """The way from account and key to id never changes: programs keep ids, and repeats must find their ask."""
    assert ask_id_for(RED, "k") == "acrf4fxfakasqr"
    assert ask_id_for(BLUE, "k") != ask_id_for(RED, "k")


@pytest.mark.parametrize("amount", ["5", "-5", "-0.000001", "+7.25", " 1000000000000 "])
async def test_an_adjustment_goes_up_or_down(gate: Gate, log: Ledger, amount: str) -> None:
    """By an exact amount; it gives back no run's commit where it names none."""
    accepted(await gate.ask_account(adjust(amount, reason="as agreed"), BY))
    (event,) = log.facts(AdjustmentAsked)
    assert event.amount_micro == micro_credits(amount.strip())
    assert (event.refunds, event.refunds_entry, event.refunds_micro) == (START, 0, 0)


async def test_the_same_ask_under_the_same_key_is_done_once(gate: Gate, log: Ledger) -> None:
    """However it is spelled, by whichever gate, and also when it comes many times at once."""
    first, *others = await asyncio.gather(*(gate.ask_account(grant(), BY) for _ in range(50)))
    async with open_gate(log, CLOCK) as second:
        others += [
            await gate.ask_account(grant("192.500"), BY),
            await second.ask_account(grant(trace="other"), "api:eve"),
        ]
    assert {accepted(answer).position for answer in [first, *others]} == {await log.end()}
    assert {accepted(answer).ask_id for answer in others} == {ask_id_for(RED, "k")}
    assert sum(not accepted(answer).repeated for answer in [first, *others]) == 1
    assert len(log.facts(GrantAsked)) == 1


@pytest.mark.parametrize("other", [grant("192.500001"), grant(reason="more"), adjust("192.5"), adjust("-192.5")])
async def test_another_ask_under_the_same_key_is_a_conflict(gate: Gate, log: Ledger, other: Grant | Adjust) -> None:
    """Also at a gate that never heard of the first, and beside it."""
    first, beside = await asyncio.gather(gate.ask_account(grant(), BY), gate.ask_account(other, BY))
    async with open_gate(log, CLOCK) as second:
        later = await second.ask_account(other, BY)
    for answer in map(refused, (beside, later)):
        assert (answer.code, answer.ask_id) == (RefusalCode.CONFLICT, accepted(first).ask_id)
        assert answer.message.startswith(f"key: 'k' stands for ask {answer.ask_id}, which asked something else")
    assert await log.end() == accepted(first).position


async def test_one_key_is_another_for_another_account(gate: Gate, log: Ledger) -> None:
    """Keys are an account's own."""
    one, two = [accepted(await gate.ask_account(grant(account=name), BY)) for name in (RED, BLUE)]
    assert one.ask_id != two.ask_id
    assert not two.repeated


async def test_a_key_keeps_its_answer_when_the_account_is_closed(gate: Gate, log: Ledger) -> None:
    """Whoever lost the answer learns that it was done; a new key is refused, for ever."""
    first = accepted(await gate.ask_account(grant(), BY))
    position = await log.decided(closed(RED))
    again = accepted(await gate.ask_account(grant(), BY))
    assert (again.position, again.repeated) == (first.position, True)
    for ask in (grant(key="new"), adjust(key="new")):
        answer = refused(await gate.ask_account(ask, BY))
        assert answer.code is RefusalCode.INVALID
        assert answer.message == f"account: 'red-2026' was closed at position 1:{position & 0xFFFFFFFFFF}, for ever"
    assert await log.end() == position


async def test_an_account_is_known_by_the_document_or_by_its_entries(gate: Gate, log: Ledger) -> None:
    """One that was left out of the document keeps its balance, and it can still be corrected; a misspelt one cannot."""
    await log.decided(commit(AccountId("left-out")))
    accepted(await gate.ask_account(grant(account="left-out"), BY))
    answer = refused(await gate.ask_account(grant(account="red-2062"), BY))
    assert (answer.code, answer.hint) == (RefusalCode.NOT_FOUND, "did you mean red-2026?")
    assert answer.message == "account: there is none named 'red-2062'"
    other = refused(await gate.ask_account(grant(account="zzz"), BY))
    assert other.hint.endswith("muster credits accounts apply")
    async with open_gate(Ledger(), CLOCK) as empty:
        assert refused(await empty.ask_account(grant(), BY)).code is RefusalCode.NOT_FOUND


async def test_a_refund_carries_what_the_commit_says(gate: Gate, log: Ledger) -> None:
    """The log's own word: the entry, and how much it was. Less than that may be given back."""
    position = await log.decided(commit(entry=1), commit(entry=2, amount_micro=80_000_000))
    for amount in ("80", "0.000001"):
        accepted(await gate.ask_account(adjust(amount, key=amount, refunds=position), BY))
    for event in log.facts(AdjustmentAsked):
        assert (event.refunds, event.refunds_entry, event.refunds_micro) == (position, 2, 80_000_000)
    answer = refused(await gate.ask_account(adjust("80", key="80", refunds=position - 1), BY))
    assert answer.code is RefusalCode.CONFLICT


async def test_a_refund_of_what_is_no_commit_of_the_account_is_refused(gate: Gate, log: Ledger) -> None:
    """Nothing is written, and the sentence says what was found."""
    asked = accepted(await gate.ask_account(grant(key="first"), BY)).position
    position = await log.decided(commit())
    other = await log.decided(commit(BLUE))
    end = await log.end()
    for ask, code, told in (
        (adjust("1", refunds=end + 1), RefusalCode.NOT_FOUND, "refunds: there is no record at position 1:"),
        (adjust("1", refunds=1 << 62), RefusalCode.NOT_FOUND, "refunds: there is no record at position"),
        (
            adjust("1", refunds=asked),
            RefusalCode.NOT_FOUND,
            "refunds: the record at position 1:2 is no commit of a run",
        ),
        (adjust("1", refunds=other), RefusalCode.INVALID, "is a commit of account 'blue-2026', not of 'red-2026'"),
        (
            adjust("-1", refunds=position),
            RefusalCode.INVALID,
            "credits: must be more than 0 to give something back, not -1",
        ),
        (
            adjust("80.000001", refunds=position),
            RefusalCode.INVALID,
            "credits: 80.000001 is more than the 80 that were committed for run jaaaaaaaaaaaaa-1",
        ),
    ):
        answer = refused(await gate.ask_account(ask, BY))
        assert answer.code is code
        assert told in answer.message
    assert await log.end() == end


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (grant("0"), "credits: a grant must be more than 0, not '0'"),
        (grant("-1"), "credits: a grant must be more than 0, not '-1'"),
        (grant("0.0000001"), "credits: must be a decimal with up to 6 places, such as 192 or 0.5, not '0.0000001'"),
        (grant("1e3"), "credits: must be a decimal with up to 6 places"),
        (grant("1,5"), "credits: must be a decimal with up to 6 places"),
        (grant(""), "credits: must be a decimal with up to 6 places"),
        (grant("1000000000000.000001"), "credits: 1000000000000 is the most in one ask, not '1000000000000.000001'"),
        (adjust("-1000000000001"), "credits: 1000000000000 is the most in one ask, not '-1000000000001'"),
        (adjust("0.000"), "credits: must not be 0: nothing would change"),
        (grant(account="Red"), "account: 'Red' has capital letters"),
        (grant(account="red.a1"), "account: 'red.a1' has a dot, which divides subjects"),
        (grant(account="*"), "account: '*' has a wildcard"),
        (grant(account=">"), "account: '>' has a wildcard"),
        (grant(account=""), "account: is empty"),
        (grant(key=""), f"key: must have 1 to {KEY_MAX} characters, not 0"),
        (grant(key="x" * 201), f"key: must have 1 to {KEY_MAX} characters, not 201"),
        (grant(key="a\nb"), "key: 'a\\nb' has a character that cannot be printed"),
        (grant(reason="x" * 501), "reason: has 501 characters, 500 is the most"),
        (grant(trace="x" * 201), "trace: has 201 characters, 200 is the most"),
        (adjust(trace="a\0b"), "musterbook.credit.adjustment_asked.v1: "),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
async def test_a_wrong_ask_leaves_no_trace(gate: Gate, log: Ledger, ask: Grant | Adjust, told: str) -> None:
    """Refused with a sentence that names the field, and the log ends where it did."""
    before = await log.end()
    answer = refused(await gate.ask_account(ask, BY))
    assert answer.code is RefusalCode.INVALID
    assert answer.message.startswith(told)
    assert await log.end() == before


async def test_while_the_log_is_away_nothing_is_written(gate: Gate, log: Ledger) -> None:
    """Busy, not unknown: it was not even sent."""
    log.away = True
    answer = refused(await gate.ask_account(grant(), BY))
    assert (answer.code, answer.hint) == (RefusalCode.BUSY, "try again in a moment, with the same key")


async def test_what_is_no_record_of_ours_keeps_its_key(gate: Gate, log: Ledger) -> None:
    """Bytes that an administrator put there by hand: nothing is granted under that key."""
    log.write_raw(f"teller.{RED}.{ask_id_for(RED, 'k')}", b"not an event")
    answer = refused(await gate.ask_account(grant(), BY))
    assert answer.code is RefusalCode.CONFLICT
    assert answer.message == f"key: the record of ask {ask_id_for(RED, 'k')} cannot be read by this version"


async def test_asks_are_counted(gate: Gate) -> None:
    """By what was asked and the outcome."""
    for ask in (grant(), grant(), grant("1"), adjust(key="a")):
        await gate.ask_account(ask, BY)
    assert gate.answers["grant", "accepted"] == gate.answers["grant", "repeated"] == 1
    assert gate.answers["grant", "conflict"] == gate.answers["adjust", "accepted"] == 1
