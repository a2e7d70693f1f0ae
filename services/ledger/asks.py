"""Answers to what operators ask of accounts, where that lowers nothing: grants, corrections upward, refunds of commits."""

from heapq import nsmallest
from typing import Final

from events.amounts import spelled_credits
from events.base import AskId
from events.credit import AdjustCause, AskRefused, CreditAdjusted, CreditGranted
from events.teller import AdjustmentAsked, GrantAsked
from projections.cluster.credit.state import Entry
from services.ledger.entries import Entries

ANSWERED_MAX: Final = 1_000  # in one round; the rest is the next round's
BALANCE_MAX: Final = 1 << 60  # micro-credits that an account may have been given: sums stay within 64 bits everywhere


def answer(entries: Entries) -> None:
    """What was asked of accounts is done or refused, in order of its ids. What would lower a balance is admission's."""
    given_back: dict[Entry, int] = {}  # in this round
    given: dict[str, int] = {}  # likewise
    asked = entries.cluster.credits.asked
    open_to_us = (ask_id for ask_id, ask in asked.items() if ask.amount_micro >= 0)
    for ask_id in nsmallest(ANSWERED_MAX, open_to_us):
        ask = asked[ask_id]
        book = entries.book(ask.account)
        before = given.get(ask.account, book.granted + max(0, book.adjusted))
        if before + ask.amount_micro > BALANCE_MAX:
            _refuse(entries, ask_id, "too_large", "An account cannot be given so many credits.")
            continue
        if isinstance(ask, AdjustmentAsked) and ask.refunds:
            of = Entry(ask.account, ask.refunds_entry)
            back = given_back.get(of, entries.cluster.credits.given_back.get(of, 0))
            if back + ask.amount_micro > ask.refunds_micro:
                _refuse(entries, ask_id, "beyond_commit", _beyond(ask, back))
                continue
            given_back[of] = back + ask.amount_micro
        given[ask.account] = before + ask.amount_micro
        _do(entries, ask)


def _do(entries: Entries, ask: GrantAsked | AdjustmentAsked) -> None:
    of_account = entries.next(ask.account)
    if isinstance(ask, GrantAsked):
        entries.write(
            CreditGranted(
                at=entries.tick.at,
                **of_account,
                ask_id=ask.ask_id,
                amount_micro=ask.amount_micro,
                reason=ask.reason,
            )
        )
        return
    entries.write(
        CreditAdjusted(
            at=entries.tick.at,
            **of_account,
            ask_id=ask.ask_id,
            amount_micro=ask.amount_micro,
            cause=AdjustCause.REFUND if ask.refunds else AdjustCause.OPERATOR,
            of_entry=ask.refunds_entry if ask.refunds else 0,
            reason=ask.reason,
        )
    )


def _refuse(entries: Entries, ask_id: AskId, code: str, message: str) -> None:
    account = entries.cluster.credits.asked[ask_id].account
    entries.write(AskRefused(at=entries.tick.at, **entries.next(account), ask_id=ask_id, code=code, message=message))


def _beyond(ask: AdjustmentAsked, back: int) -> str:
    """Why the refund is more than there is to give back."""
    committed, left = spelled_credits(ask.refunds_micro), spelled_credits(ask.refunds_micro - back)
    return f"Entry {ask.refunds_entry} committed {committed}, of which {left} can still be given back."
