"""Accounts and months are closed once nothing can come that belongs to them."""

import pytest

from events.accounts import Account
from events.base import AccountId, TeamId
from events.credit import AccountClosed, UsageRecorded
from events.job import StopCause
from events.node import EndReason
from events.period import PeriodClosed
from events.policy import Bearer, Waived
from projections.cluster.snapshot import dump, load
from services.ledger import close, settle
from services.ledger.close import next_month
from tests.clusters import names
from tests.purses import CREDIT, A, Purse

CLOSING = Account(name=A, queues=(TeamId("t"),), closed=True)


def months(world: Purse) -> list[str]:
    """Months that were closed."""
    return [recorded.event.month for recorded in world.records if isinstance(recorded.event, PeriodClosed)]


def closes(world: Purse, through: str) -> None:
    """The document says that months up to this one are closed."""
    world.accounts(Account(name=A, queues=(TeamId("t"),)), closed_through=through)


def test_an_account_is_closed_once_all_is_settled() -> None:
    """A run that is paid for runs on; its last entry comes after its settlement."""
    world = Purse({"n1": 1})
    job = world.paid("job", on={"n1": 1}, max_runtime_s=3_600)
    world.accounts(CLOSING)
    assert "AccountClosed" not in names(world.round())
    world.wait(60)
    world.end(job)
    world.release(job)
    assert "AccountClosed" not in names(world.round())
    assert names(world.round()) == ["AccountClosed"]
    assert world.round() == []
    assert isinstance(world.entries()[-1], AccountClosed)
    assert world.book().closed
    world.assert_sound()


def test_an_account_that_has_been_asked_something_is_closed_after_the_answer() -> None:
    """In the next round."""
    world = Purse()
    world.accounts(CLOSING)
    world.grant(CREDIT)

    assert names(world.round()) == ["CreditGranted"]
    assert names(world.round()) == ["AccountClosed"]


def test_an_account_that_owes_is_not_closed() -> None:
    """Not before it has paid: here it can never."""
    world = Purse({"n1": 2}, granted=2, uncovered=Bearer.ACCOUNT)
    job = world.paid("job", on={"n1": 2}, max_runtime_s=3_600)
    world.wait(7_200)
    world.end(job)
    world.release(job)
    world.accounts(CLOSING)
    for _ in range(3):
        world.round()

    assert world.book().owed == 2 * CREDIT
    assert not world.book().closed


def test_an_account_that_is_closed_stays_so_whatever_a_document_says() -> None:
    """Nothing is reserved on it again."""
    world = Purse()
    world.accounts(CLOSING)
    world.round()
    world.accounts(Account(name=A, queues=(TeamId("t"),)))

    assert world.cluster.credits.payers.by_name[A].closed
    saved = load(dump(world.cluster), log_id="test")
    assert saved is not None
    assert saved.credits.payers.by_name[A].closed
    assert world.round() == []
    assert not world.cluster.unread


def test_a_round_closes_so_many_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next the rest."""
    monkeypatch.setattr(close, "CLOSED_MAX", 2)
    world = Purse()
    world.accounts(*(Account(name=AccountId(name), closed=True) for name in "abc"))

    assert [len(world.round()) for _ in range(3)] == [2, 1, 0]


def test_a_month_is_closed_once_it_is_over() -> None:
    """Ten seconds later; the first is the one that is named, the others follow in order."""
    world = Purse()
    world.until("2026-03-15T00:00")
    closes(world, "2026-03")
    world.round()
    world.until("2026-04-01T00:00:09")
    world.round()
    assert months(world) == []
    world.until("2026-04-01T00:00:10")
    world.round()
    assert months(world) == ["2026-03"]
    assert world.round() == []
    closes(world, "2026-06")
    world.until("2027-01-02T00:00")
    for _ in range(5):
        world.round()
    assert months(world) == ["2026-03", "2026-04", "2026-05", "2026-06"]
    world.assert_sound()


def test_a_year_ends_with_its_twelfth_month() -> None:
    """January follows."""
    world = Purse()
    world.until("2027-02-15T00:00")
    closes(world, "2026-12")
    world.round()
    closes(world, "2027-01")
    world.round()

    assert months(world) == ["2026-12", "2027-01"]
    assert next_month(world.cluster) is None


def test_a_month_waits_for_what_is_not_recorded() -> None:
    """A run that goes on across its end, and one that ended in it and is not settled."""
    world = Purse({"n1": 2})
    world.until("2026-01-31T22:30")
    world.paid("long", on={"n1": 1}, max_runtime_s=36_000)
    short = world.paid("short", on={"n1": 1}, max_runtime_s=36_000)
    closes(world, "2026-01")
    world.until("2026-01-31T23:50")
    world.end(short)
    world.release(short)
    world.until("2026-02-01T00:00:10")
    world.round()  # of the long one, 22:30 to 23:00; the short one whole
    assert months(world) == []
    world.round()  # 23:00 to 24:00
    assert months(world) == []
    world.round()
    assert months(world) == ["2026-01"]
    late = [e.began for e in world.entries()[2:] if isinstance(e, UsageRecorded)]
    assert len(late) == 4
    world.assert_sound()


def test_a_month_waits_for_a_run_that_no_round_has_settled_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many ended at once."""
    monkeypatch.setattr(settle, "SETTLED_MAX", 0)
    world = Purse({"n1": 1})
    world.until("2026-01-31T22:30")
    job = world.paid("job", on={"n1": 1}, max_runtime_s=36_000)
    closes(world, "2026-01")
    world.until("2026-01-31T23:50")
    world.end(job)
    world.release(job)
    world.until("2026-02-01T00:01")
    for _ in range(3):
        world.round()
    assert months(world) == []
    monkeypatch.setattr(settle, "SETTLED_MAX", 1)
    for _ in range(2):
        world.round()
    assert months(world) == ["2026-01"]


def test_what_is_waived_later_is_a_record_of_a_month_that_is_open() -> None:
    """The closed one stays as it is, byte for byte."""
    world = Purse({"n1": 1}, waived_preempted=Waived.ALL)
    world.until("2026-01-31T23:00")
    job = world.paid("job", on={"n1": 1}, max_runtime_s=36_000)
    closes(world, "2026-01")
    world.until("2026-02-01T00:30")
    world.round()
    world.round()
    assert months(world) == ["2026-01"]
    world.stopped(job, StopCause.PREEMPTED)
    world.end(job, reason=EndReason.STOPPED)
    world.release(job)
    world.round()

    usage = [entry for entry in world.entries() if isinstance(entry, UsageRecorded)]
    assert [(f"{e.at:%m-%d %H:%M}", e.amount_micro // CREDIT) for e in usage] == [
        ("01-31 23:00", 1),
        ("02-01 00:30", -1),
    ]


def test_a_busy_cluster_closes_its_months() -> None:
    """Though in every round some run is to be settled: what was used in the month is recorded."""
    world = Purse({"n1": 1})
    world.until("2026-02-01T00:00:30")
    closes(world, "2026-01")
    job = world.paid("job", on={"n1": 1}, max_runtime_s=60)
    world.end(job)
    world.release(job)

    assert "PeriodClosed" in names(world.round())
