"""Failures that credits are known to break on, one by one, in rounds over a log in memory."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from events.base import Event, JobId, NodeId, RunId
from events.credit import (
    AdjustCause,
    CreditAdjusted,
    CreditCommitted,
    CreditRefunded,
    CreditRenewed,
    CreditReserved,
    EndedAs,
    UsageRecorded,
)
from events.fleet import NodeLost
from events.job import JobSpec, JobSubmitted, Priority
from events.log.memory import MemoryLog
from events.period import PeriodClosed
from projections.cluster.audit.audit import audit
from tests.simulation.bank import CREDIT, OWN, Bank, at_once

HOUR = 3_600


class Hours:
    """A bank and its clock."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 31, 20, tzinfo=UTC)
        self.bank = Bank(MemoryLog("c", lambda: self.at), lambda: self.at)
        at_once(self.bank.begin())

    def wait(self, seconds: float, rounds: int = 1) -> None:
        """Time passes, and rounds come."""
        self.at += timedelta(seconds=seconds)
        for _ in range(rounds):
            at_once(self.bank.round())

    def run(self, gpus: int = 4, **said: Any) -> JobId:
        """A job of so many GPUs runs."""
        bank = self.bank
        job_id = JobId(f"j{len(bank.jobs)}")
        spec = JobSpec(name=job_id, command=("true",), gpus=gpus, **said)
        job = JobSubmitted(at=self.at, team="t", job_id=job_id, spec=spec, key=job_id, request_hash="h")  # type: ignore[arg-type]  # a name
        bank.jobs.append(job)
        at_once(bank.log.record([job]))
        self.wait(0, 2)
        at_once(bank.start_all(-1))
        self.wait(0)
        return job_id

    def end(self, code: int = 0) -> None:
        """The last run has ended, and its GPUs are free."""
        at_once(self.bank.end_all(-1, code))

    def of(self, kind: type[Event]) -> list[Any]:
        """All records of a kind."""
        return [record.event for record in self.bank.records if isinstance(record.event, kind)]

    @property
    def balance(self) -> float:
        """Of the account that pays."""
        at_once(self.bank.compare())
        return self.bank.planes["x"].cluster.credits.books[OWN].balance / CREDIT

    def sound(self) -> None:
        """Folds agree, and the independent reading of the log finds nothing."""
        at_once(self.bank.compare())
        assert audit(self.bank.records) == []


@pytest.fixture
def hours() -> Hours:
    """Forty credits, a GPU-hour at 1."""
    return Hours()


def test_an_answer_that_is_lost_pays_once(hours: Hours) -> None:
    """The settlement was written, the plane does not know, and decides again."""
    hours.run(max_runtime_s=HOUR)
    hours.at += timedelta(seconds=HOUR // 2)
    hours.end()
    append = at_once(hours.bank.decide("x"))
    assert at_once(hours.bank.send(append))
    assert not at_once(hours.bank.send(append))  # sent again, by somebody who heard nothing
    hours.wait(0, 3)

    assert len(hours.of(CreditCommitted)) == 1
    assert hours.balance == 38
    hours.sound()


def test_an_ask_that_is_lost_pays_all_the_same(hours: Hours) -> None:
    """Nothing was written; the next round says the same."""
    hours.run(max_runtime_s=HOUR)
    hours.at += timedelta(seconds=HOUR // 2)
    hours.end()
    lost, _ = at_once(hours.bank.decide("x"))
    again, _ = at_once(hours.bank.decide("x"))
    hours.wait(0)

    assert lost == again
    assert hours.balance == 38


def test_two_leaders_that_settle_one_run_pay_once(hours: Hours) -> None:
    """The head lets one of them in."""
    hours.run(max_runtime_s=HOUR)
    hours.at += timedelta(seconds=HOUR // 2)
    hours.end()
    first = at_once(hours.bank.decide("x"))
    at_once(hours.bank.round("y"))  # leads from now on
    second = at_once(hours.bank.decide("y"))
    assert [type(event) for event in first[0]] == [type(event) for event in second[0]]
    assert at_once(hours.bank.send(second))
    assert not at_once(hours.bank.send(first))

    assert len(hours.of(CreditCommitted)) == 1
    assert hours.balance == 38
    hours.sound()


def test_a_leader_that_crashes_between_deciding_and_writing_pays_once(hours: Hours) -> None:
    """It starts from a snapshot of before, or from nothing."""
    hours.run(max_runtime_s=HOUR)
    hours.bank.save("x")
    hours.at += timedelta(seconds=HOUR // 2)
    hours.end()
    at_once(hours.bank.lose("x"))
    at_once(hours.bank.crash("x"))
    hours.wait(0)
    at_once(hours.bank.arrive("x"))
    hours.bank.planes["x"].saved = b""
    at_once(hours.bank.crash("x"))
    hours.wait(0)

    assert len(hours.of(CreditCommitted)) == 1
    assert hours.balance == 38
    hours.sound()


def test_reports_after_the_settlement_change_nothing(hours: Hours) -> None:
    """An end and a release that come again, an hour later."""
    hours.run(max_runtime_s=HOUR)
    hours.at += timedelta(seconds=HOUR // 2)
    hours.end()
    hours.wait(0)
    before = hours.balance
    hours.at += timedelta(seconds=HOUR)
    hours.end(code=1)
    at_once(hours.bank.checkpoint(-1))
    hours.wait(0, 2)

    assert hours.balance == before
    assert len(hours.of(CreditCommitted)) == 1
    hours.sound()


def test_a_node_that_is_lost_counts_until_it_was_heard_last(hours: Hours) -> None:
    """Half an hour after its checkpoint: charged is what was saved; the rest of the reservation comes back."""
    hours.run(max_runtime_s=HOUR)
    hours.at += timedelta(seconds=HOUR // 4)
    at_once(hours.bank.checkpoint(-1))
    hours.at += timedelta(seconds=HOUR // 2)
    hours.bank.silent.update(NodeId(name) for name in ("n1", "n2", "n3"))
    hours.wait(0, 2)
    (commit,) = hours.of(CreditCommitted)

    assert (commit.outcome, commit.amount_micro) == (EndedAs.INTERRUPTED, CREDIT)
    assert commit.ended == hours.at - timedelta(seconds=100)
    lost = next(refund for refund in hours.of(CreditRefunded) if refund.gpu_us)
    assert lost.gpu_us == 4 * (HOUR // 2 - 100) * 1_000_000
    assert lost.evidence == tuple(r.id for r in hours.bank.records if isinstance(r.event, NodeLost))[:1]
    hours.sound()


def test_a_run_that_ends_as_it_is_to_make_room_has_succeeded(hours: Hours) -> None:
    """The word that it is evicted and its own end meet: it is charged in full, as what it was."""
    hours.run(gpus=12, min_gpus=12)
    hours.at += timedelta(seconds=100)
    urgent = JobSpec(name="urgent", command=("true",), gpus=12, priority=Priority.URGENT, max_runtime_s=60)
    job = JobSubmitted(at=hours.at, team="t", job_id="urgent", spec=urgent, key="u", request_hash="h")  # type: ignore[arg-type]  # names
    hours.bank.jobs.append(job)
    at_once(hours.bank.log.record([job]))
    at_once(hours.bank.round("", lambda: hours.bank.end_all(-1, 0)))
    hours.wait(0, 2)
    (commit,) = hours.of(CreditCommitted)

    assert commit.outcome is EndedAs.SUCCEEDED
    assert commit.gpu_us == 12 * 100 * 1_000_000
    hours.sound()


def test_a_run_that_ends_as_it_is_renewed_gets_it_back(hours: Hours) -> None:
    """The renewal was decided before the end was known, and stands in the log after it."""
    hours.run()
    hours.at += timedelta(seconds=500)  # of 600; the next instalment is due
    at_once(hours.bank.round("", lambda: hours.bank.end_all(-1, 0)))
    assert len(hours.of(CreditRenewed)) == 1
    hours.wait(0)

    assert hours.balance == pytest.approx(40 - 4 * 500 / HOUR, abs=1e-6)
    assert sum(entry.amount_micro for entry in [*hours.of(CreditReserved), *hours.of(CreditRenewed)]) == sum(
        entry.amount_micro for entry in [*hours.of(CreditCommitted), *hours.of(CreditRefunded)]
    )
    hours.sound()


def test_a_price_that_changes_while_a_job_runs_is_not_its_own(hours: Hours) -> None:
    """Its reservation says what it costs; the next job costs what is in force then."""
    hours.run(max_runtime_s=HOUR)
    at_once(hours.bank.set_prices(1))  # twice as much
    hours.wait(HOUR // 2)
    hours.end()
    hours.wait(0)
    hours.run(max_runtime_s=HOUR)
    hours.wait(HOUR // 2)
    hours.end()
    hours.wait(0)

    assert [commit.amount_micro // CREDIT for commit in hours.of(CreditCommitted)] == [2, 4]
    hours.sound()


def test_a_refund_after_its_month_is_closed_is_of_this_one(hours: Hours) -> None:
    """A new entry, now; what was recorded of the closed month stays as it is."""
    hours.run(max_runtime_s=HOUR)
    hours.wait(HOUR // 2)
    hours.end()
    hours.wait(0)
    at_once(hours.bank.set_accounts(1))
    hours.at = datetime(2026, 2, 20, 12, tzinfo=UTC)
    at_once(hours.bank.set_accounts(1))
    hours.wait(0, 2)
    assert [closed.month for closed in hours.of(PeriodClosed)] == ["2026-01"]
    recorded = hours.of(UsageRecorded)
    at_once(hours.bank.refund(0, 2))
    hours.wait(0, 2)
    refund = hours.of(CreditAdjusted)[-1]

    assert (refund.cause, refund.amount_micro, refund.at) == (AdjustCause.REFUND, 2 * CREDIT, hours.at)
    assert hours.of(UsageRecorded) == recorded
    assert hours.balance == 40
    hours.sound()


def test_what_agents_believe_of_the_time_counts_for_nothing(hours: Hours) -> None:
    """A node whose clock is a year ahead: its reports count when they were stored."""
    hours.run(max_runtime_s=HOUR)
    wrong, right = hours.at + timedelta(days=365), hours.at + timedelta(seconds=HOUR // 2)
    hours.bank.now = lambda: wrong
    hours.at = right
    hours.end()
    hours.bank.now = lambda: right
    hours.wait(0)

    assert hours.of(CreditCommitted)[-1].amount_micro == 2 * CREDIT


def test_a_cancelled_wait_and_its_placing_meet(hours: Hours) -> None:
    """Placed as it was cancelled: it never started, and costs nothing where use counts from the start."""
    hours.run(gpus=12)
    waiting = hours.run(gpus=4, max_runtime_s=HOUR)
    at_once(hours.bank.end_all(-1, 0))
    append = at_once(hours.bank.decide("x"))
    at_once(hours.bank.cancel(1))
    assert at_once(hours.bank.send(append))
    hours.wait(0, 3)
    at_once(hours.bank.settle(lambda: hours.wait(1)))

    assert [refund.amount_micro for refund in hours.of(CreditRefunded) if refund.run_id == RunId(f"{waiting}-1")] == [
        4 * CREDIT
    ]
    hours.sound()
