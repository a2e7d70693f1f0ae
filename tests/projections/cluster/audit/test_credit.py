"""The auditor's reading of accounts, held to small logs: a good one, and each law broken once, with nothing else amiss."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from events.accounts import Account
from events.base import AccountId, AskId
from events.credit import (
    AccountClosed,
    AdjustCause,
    AskRefused,
    CreditAdjusted,
    CreditCommitted,
    CreditGranted,
    UsageUncovered,
)
from events.period import PeriodClosed
from events.policy import Bearer
from events.teller import AdjustmentAsked
from projections.cluster.audit.audit import audit
from tests.projections.cluster.audit.auditing import TEAM, succeeded
from tests.projections.cluster.audit.crediting import ALPHA, CREDIT, PER_GPU_S, Paid, plus

CLOSED: Final = Account(name=ALPHA, queues=(TEAM,), closed=True)


def adjust(
    book: Paid, amount: int, *, name: str = "b1", cause: AdjustCause = AdjustCause.OPERATOR, **said: Any
) -> None:
    """An operator asked for a correction, and it was made."""
    book.ask(AdjustmentAsked, name=name, amount_micro=amount)
    book.decide(book.entry(CreditAdjusted, ask_id=AskId(name), amount_micro=amount, cause=cause, **said))


def refund(
    book: Paid, amount: int, *, name: str = "b1", of_entry: int | None = None, as_asked: int | None = None
) -> None:
    """An operator asked for a part of the last commit, and it was given back."""
    commit = next(r for r in reversed(book.records) if isinstance(r.event, CreditCommitted))
    assert isinstance(commit.event, CreditCommitted)
    entry = commit.event.entry
    asked: dict[str, Any] = {
        "refunds": commit.position,
        "refunds_entry": entry,
        "refunds_micro": commit.event.amount_micro,
    }
    book.ask(AdjustmentAsked, name=name, amount_micro=as_asked or amount, **asked)
    said: dict[str, Any] = {"ask_id": AskId(name), "cause": AdjustCause.REFUND, "amount_micro": amount}
    book.decide(book.entry(CreditAdjusted, **said, of_entry=of_entry or entry))


def in_debt(book: Paid) -> int:
    """A run used 20 seconds more than the 100 that were reserved, and the account bears it: the entry that says so."""
    job_id = book.admit()
    book.place(job_id)
    began = book.now
    book.wait(120)
    book.end(job_id)
    book.decide(succeeded(job_id))
    said: dict[str, Any] = {"amount_micro": 2 * 20 * PER_GPU_S, "bearer": Bearer.ACCOUNT}
    uncovered = book.entry(UsageUncovered, **book.of(job_id), **said)
    usage = book.usage(job_id, began, book.now)
    committed = book.committed(job_id, began, book.now, amount_micro=2 * 100 * PER_GPU_S)
    book.entries[ALPHA] -= 3
    book.decide(*(book.entry(type(event), **fields(event)) for event in (usage, uncovered, committed)))
    return book.entries[ALPHA] - 1


def fields(event: Any) -> dict[str, Any]:
    """What an entry says but for its number."""
    return {name: getattr(event, name) for name in event.__struct_fields__ if name not in ("entry", "account")}


def pay_debt(book: Paid, entry: int, amount: int) -> None:
    """The account pays for what was uncovered."""
    book.decide(book.entry(CreditAdjusted, amount_micro=amount, cause=AdjustCause.UNCOVERED, of_entry=entry))


def test_a_good_log_of_an_account_breaks_no_law() -> None:
    """Grants, corrections, refunds, refusals, debts that are paid in parts, and its closing; and a month."""
    book = Paid(uncovered=Bearer.ACCOUNT)
    book.settled("one")
    adjust(book, -CREDIT)
    refund(book, 100_000, name="b2")
    refund(book, 20_000, name="b3")
    book.ask(name="a2", amount_micro=1)
    book.decide(book.entry(AskRefused, ask_id=AskId("a2"), code="too_large", message=""))
    entry = in_debt(book)
    pay_debt(book, entry, -10_000)
    pay_debt(book, entry, -30_000)
    book.now = datetime.fromisoformat("2026-03-01T00:00:10+00:00")
    book.accounts(CLOSED, closed_through="2026-02")
    book.decide(PeriodClosed(at=book.now, month="2026-02"), book.entry(AccountClosed))

    assert audit(book.records) == []


def _entry_left_out(book: Paid) -> None:
    book.entries[ALPHA] += 1
    book.grant(1, "g2")


def _entry_twice(book: Paid) -> None:
    book.entries[ALPHA] -= 1
    book.grant(1, "g2")


def _after_its_end(book: Paid) -> None:
    book.ask(name="a2", amount_micro=1)
    book.accounts(CLOSED)
    book.decide(book.entry(AccountClosed))
    book.decide(book.entry(CreditGranted, ask_id=AskId("a2"), amount_micro=1))


def _asked_twice(book: Paid) -> None:
    book.ask(name="grant", amount_micro=1)


def _no_month(book: Paid) -> None:
    book.decide(PeriodClosed(at=book.now, month="soon"))


def _granted_unasked(book: Paid) -> None:
    book.decide(book.entry(CreditGranted, ask_id=AskId("a2"), amount_micro=1))


def _granted_twice(book: Paid) -> None:
    book.decide(book.entry(CreditGranted, ask_id=AskId("grant"), amount_micro=100 * CREDIT))


def _granted_after_it_was_refused(book: Paid) -> None:
    book.ask(name="a2", amount_micro=1)
    book.decide(book.entry(AskRefused, ask_id=AskId("a2"), code="", message=""))
    book.decide(book.entry(CreditGranted, ask_id=AskId("a2"), amount_micro=1))


def _granted_more_than_asked(book: Paid) -> None:
    book.grant(5, "g2")
    book.change(CreditGranted, plus("amount_micro", 1))


def _adjusted_more_than_asked(book: Paid) -> None:
    adjust(book, 5)
    book.change(CreditAdjusted, plus("amount_micro", 1))


def _refund_of_another_entry(book: Paid) -> None:
    book.settled("one")
    first = book.entries[ALPHA] - 1
    book.settled("two")
    refund(book, 1, of_entry=first)


def _more_back_than_was_paid(book: Paid) -> None:
    book.settled("one")
    refund(book, 100_000)
    refund(book, 20_001, name="b2")


def _lowered_beyond_what_there_is(book: Paid) -> None:
    adjust(book, -100 * CREDIT - 1)


def _debt_paid_twice(book: Paid) -> None:
    book.policy(uncovered=Bearer.ACCOUNT)
    entry = in_debt(book)
    pay_debt(book, entry, -40_000)
    pay_debt(book, entry, -1)


def _debt_that_never_was(book: Paid) -> None:
    pay_debt(book, 1, -1)


def _closed_and_nobody_said_so(book: Paid) -> None:
    book.decide(book.entry(AccountClosed))


def _closed_with_a_reservation(book: Paid) -> None:
    book.admit()
    book.accounts(CLOSED)
    book.decide(book.entry(AccountClosed))


def _closed_in_debt(book: Paid) -> None:
    book.policy(uncovered=Bearer.ACCOUNT)
    in_debt(book)
    book.accounts(CLOSED)
    book.decide(book.entry(AccountClosed))


def _month(book: Paid, month: str, *, through: str = "2026-04", after: str = "2026-06-01T00:00:10+00:00") -> None:
    book.now = max(book.now, datetime.fromisoformat(after))
    book.accounts(Account(name=ALPHA, queues=(TEAM,)), closed_through=through)
    book.decide(PeriodClosed(at=book.now, month=month))


def _month_left_out(book: Paid) -> None:
    _month(book, "2026-01", through="2026-01")
    _month(book, "2026-03")


def _month_twice(book: Paid) -> None:
    _month(book, "2026-02", through="2026-02")
    _month(book, "2026-02", through="2026-02")


def _month_that_is_not_to_be_closed(book: Paid) -> None:
    _month(book, "2026-04", through="2026-04")
    _month(book, "2026-05", through="2026-04")


def _month_that_goes_on(book: Paid) -> None:
    _month(book, "2026-02", through="2026-02", after="2026-02-28T23:59:59+00:00")


def _month_of_a_run_that_is_not_recorded(book: Paid) -> None:
    book.place(book.admit())
    _month(book, "2026-01", through="2026-01")


PLANTED: Final[list[tuple[Callable[[Paid], None], str]]] = [
    (_entry_left_out, "entries in order"),
    (_entry_twice, "entries in order"),
    (_after_its_end, "nothing after closing"),
    (_asked_twice, "asked once"),
    (_no_month, "months in order"),
    (_granted_unasked, "asked for, and answered once"),
    (_granted_twice, "asked for, and answered once"),
    (_granted_after_it_was_refused, "asked for, and answered once"),
    (_granted_more_than_asked, "as asked"),
    (_adjusted_more_than_asked, "as asked"),
    (_refund_of_another_entry, "as asked"),
    (_more_back_than_was_paid, "no more back than was paid"),
    (_lowered_beyond_what_there_is, "within what there is"),
    (_debt_paid_twice, "debts paid once"),
    (_debt_that_never_was, "debts paid once"),
    (_closed_and_nobody_said_so, "closed when all is settled"),
    (_closed_with_a_reservation, "closed when all is settled"),
    (_closed_in_debt, "closed when all is settled"),
    (_month_left_out, "months in order"),
    (_month_twice, "months in order"),
    (_month_that_is_not_to_be_closed, "months in order"),
    (_month_that_goes_on, "months that are over"),
    (_month_of_a_run_that_is_not_recorded, "months with all their use"),
]


@pytest.mark.parametrize(("plant", "law"), PLANTED, ids=[plant.__name__.strip("_") for plant, _ in PLANTED])
def test_a_planted_violation_is_found_and_nothing_else(plant: Callable[[Paid], None], law: str) -> None:
    """Exactly the law that is broken is named, with the account or the run, and where."""
    book = Paid()
    plant(book)

    findings = audit(book.records)
    assert {finding.law for finding in findings} == {law}, findings
    assert all("alpha" in finding.message or law.startswith("month") for finding in findings)


def test_use_of_a_month_that_is_closed_is_found() -> None:
    """What comes late is of the month in which it comes."""
    book = Paid()
    job_id = book.admit()
    book.place(job_id)
    began = book.now
    book.wait(60)
    book.end(job_id)
    book.decide(succeeded(job_id))
    book.now = datetime.fromisoformat("2026-02-01T00:00:10+00:00")
    book.accounts(Account(name=ALPHA, queues=(TEAM,)), closed_through="2026-01")
    book.decide(PeriodClosed(at=book.now, month="2026-01"))
    book.decide(book.usage(job_id, began, began + timedelta(seconds=60)))

    assert {finding.law for finding in audit(book.records)} == {"months with all their use", "closed months stay"}


def test_entries_of_an_account_that_no_document_names_are_found() -> None:
    """Somebody made them up."""
    book = Paid()
    ghost = AccountId("ghost")
    book.decide(book.entry(CreditGranted, ghost, ask_id=AskId("x"), amount_micro=1))

    assert {finding.law for finding in audit(book.records)} == {"entries in order", "asked for, and answered once"}
