"""Grants, corrections and refunds that operators ask for are done, or refused with a reason, once."""

import pytest

from events.accounts import Account
from events.base import AccountId, AskId
from events.credit import AdjustCause, AskRefused, CreditAdjusted, CreditCommitted, CreditEvent, CreditGranted
from services.ledger import asks
from services.ledger.asks import BALANCE_MAX
from services.ledger.decide import decide
from tests.purses import CREDIT, A, Purse


def answers(world: Purse) -> list[CreditEvent]:
    """What a round of the ledger says of asks."""
    decided = decide(world.cluster, world.tick())
    world.round()
    return [event for event in decided if isinstance(event, CreditGranted | CreditAdjusted | AskRefused)]


def spent(world: Purse) -> int:
    """The entry of a commit of 2 credits."""
    job = world.paid("job", on={"n1": 2}, max_runtime_s=3_600)
    world.wait(3_600)
    world.end(job)
    world.release(job)
    world.round()
    return next(entry.entry for entry in world.entries() if isinstance(entry, CreditCommitted))


def test_a_grant_is_done_once() -> None:
    """And says who asked it to be, by its ask."""
    world = Purse(granted=0)
    ask_id = world.grant(5 * CREDIT)
    (granted,) = answers(world)

    assert isinstance(granted, CreditGranted)
    assert (granted.ask_id, granted.amount_micro, granted.reason) == (ask_id, 5 * CREDIT, "for tests")
    assert world.book().balance == 5 * CREDIT
    assert answers(world) == []
    assert world.book().balance == 5 * CREDIT


def test_a_grant_that_is_written_twice_is_done_once() -> None:
    """An administrator may do so; the gate writes it as the first of its subject."""
    world = Purse(granted=0)
    world.grant(CREDIT, key="k")
    world.grant(2 * CREDIT, key="k")

    assert len(answers(world)) == 1
    assert world.book().balance == CREDIT


def test_a_correction_upward_is_done() -> None:
    """One downward is not ours: admission looks first whether there is enough."""
    world = Purse()
    up, down = world.adjust(3 * CREDIT), world.adjust(-3 * CREDIT)
    (adjusted,) = answers(world)

    assert isinstance(adjusted, CreditAdjusted)
    assert (adjusted.ask_id, adjusted.cause, adjusted.of_entry) == (up, AdjustCause.OPERATOR, 0)
    assert up != down
    assert world.book().balance in (1_003 * CREDIT, 1_000 * CREDIT)  # as admission has answered the other or not


def test_a_refund_gives_back_what_was_committed_and_never_more() -> None:
    """In parts, up to all of it; also of two that are asked at once only one goes beyond."""
    world = Purse({"n1": 2})
    entry = spent(world)
    of = {"refunds": 1, "refunds_entry": entry, "refunds_micro": 2 * CREDIT}
    world.adjust(CREDIT, **of)
    world.adjust(CREDIT, **of)
    world.adjust(1, **of)
    first, second, third = answers(world)

    assert isinstance(first, CreditAdjusted)
    assert (first.cause, first.of_entry) == (AdjustCause.REFUND, entry)
    assert isinstance(second, CreditAdjusted)
    assert isinstance(third, AskRefused)
    assert third.code == "beyond_commit"
    assert third.message == f"Entry {entry} committed 2, of which 0 can still be given back."
    assert world.book().balance == 1_000 * CREDIT
    world.adjust(1, **of)
    (fourth,) = answers(world)
    assert isinstance(fourth, AskRefused)
    world.assert_sound()


def test_more_than_can_be_counted_is_refused() -> None:
    """Sums stay within 64 bits, in tables too."""
    world = Purse(granted=0)
    world.grant(BALANCE_MAX)
    world.grant(1)
    granted, refused = answers(world)

    assert isinstance(granted, CreditGranted)
    assert isinstance(refused, AskRefused)
    assert refused.code == "too_large"
    assert world.book().balance == BALANCE_MAX


def test_what_is_asked_of_nobodys_account_waits_for_nothing() -> None:
    """The gate refuses it; one that is written all the same changes nothing."""
    world = Purse()
    world.grant(CREDIT, account=AccountId("unknown"))

    assert answers(world) == []
    assert not world.cluster.credits.asked


def test_an_account_that_is_closed_answers_no_more() -> None:
    """Nothing ever happens on it again."""
    world = Purse()
    world.accounts(Account(name=A, closed=True))
    world.round()
    assert world.book().closed
    world.grant(CREDIT)

    assert answers(world) == []
    assert world.book().entry == 2


def test_a_round_answers_so_many_and_the_next_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """In order of their ids."""
    monkeypatch.setattr(asks, "ANSWERED_MAX", 2)
    world = Purse(granted=0)
    for key in "cab":
        world.grant(CREDIT, key=key)
    said = [getattr(event, "ask_id", "") for event in answers(world)]

    assert said == [AskId("aa"), AskId("ab")]
    assert len(answers(world)) == 1
