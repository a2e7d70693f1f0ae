"""The auditor's reading of what runs are charged, held to small logs: good ones, and each law broken once."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace

from events.base import RunId
from events.credit import (
    CreditCommitted,
    CreditRefunded,
    EndedAs,
    RefundCause,
    UsageRecorded,
    UsageUncovered,
)
from events.job import AdmissionWithdrawn, JobRequeued, RunStopping, StopCause
from events.node import ShareEnded
from events.policy import Bearer, Waived
from projections.cluster.audit.audit import audit
from tests.projections.cluster.audit.auditing import TEAM, admitted, lost, requeued, succeeded
from tests.projections.cluster.audit.crediting import GPUS, PER_GPU_S, SECOND, Paid, Running, plus


def test_a_run_that_saved_nothing_and_lost_its_node_costs_nothing() -> None:
    """And one that saved its progress pays up to there; one that was stopped for others as its own line says."""
    book = Running(waived_failed=Waived.LOST)
    proof = book.interrupted()
    book.decide(book.paid(60, charged_s=0, outcome=EndedAs.INTERRUPTED), book.waived(60, proof), book.back(40))
    assert audit(book.records) == []

    book = Running(waived_failed=Waived.LOST)
    proof = book.interrupted(saved_s=45)
    paid = (book.used(45), book.paid(60, charged_s=45, outcome=EndedAs.INTERRUPTED))
    book.decide(*paid, book.waived(15, proof), book.back(40))
    assert audit(book.records) == []

    book = Running(waived_preempted=Waived.ALL)
    stopped: dict[str, Any] = {"team": TEAM, "job_id": book.job_id, "run_id": RunId("job-1")}
    book.decide(RunStopping(at=book.now, **stopped, cause=StopCause.QUEUE_HELD))
    proof = book.records[-1].id
    book.ended(60, JobRequeued(at=book.now, **stopped, cause=StopCause.QUEUE_HELD, not_before=book.now))
    paid_nothing = book.paid(60, charged_s=0, outcome=EndedAs.QUEUE_HELD)
    book.decide(paid_nothing, book.waived(60, proof, RefundCause.PREEMPTED), book.back(40))
    assert audit(book.records) == []


def test_a_run_over_hours_is_recorded_by_the_hour_and_corrected_when_it_is_waived() -> None:
    """Each record goes on where the one before it ended."""
    book = Paid(instalment_s=9_000, waived_failed=Waived.ALL)
    book.now = datetime.fromisoformat("2026-01-01T00:30:00+00:00")
    job_id = book.submit("long", GPUS)
    reserved = book.reserved(job_id, covers_s=9_000, declared=False)
    book.decide(replace(admitted(job_id), at=book.now), reserved)
    book.place(job_id)
    began, first = book.now, datetime.fromisoformat("2026-01-01T01:00:00+00:00")
    book.now = first + timedelta(seconds=10)
    book.decide(book.usage(job_id, began, first))
    book.now = first + timedelta(seconds=3_610)
    book.decide(book.usage(job_id, first, first + timedelta(hours=1), number=2))
    book.decide(replace(lost(book, "n1"), silent_s=10.0))
    proof = book.records[-1].id
    book.decide(requeued(job_id))
    used_s = 1_800 + 3_600
    all_of_it: dict[str, Any] = {"gpu_us": -GPUS * used_s * SECOND, "amount_micro": -GPUS * used_s * PER_GPU_S}
    ended = first + timedelta(hours=1)
    corrects: dict[str, Any] = {"at": book.now, "number": 3, "corrects": True, "cause": "interrupted"}
    nothing: dict[str, Any] = {"gpu_us": 0, "amount_micro": 0, "outcome": EndedAs.INTERRUPTED}
    waived: dict[str, Any] = {"gpu_us": GPUS * used_s * SECOND, "evidence": (proof,)}
    book.decide(
        book.usage(job_id, began, ended, **corrects, **all_of_it),
        book.committed(job_id, began, ended, **nothing),
        book.refunded(job_id, GPUS * used_s * PER_GPU_S, RefundCause.INTERRUPTED, **waived),
        book.refunded(job_id, GPUS * (9_000 - used_s) * PER_GPU_S),
    )

    assert audit(book.records) == []


def test_a_job_that_was_never_placed_has_all_of_it_back() -> None:
    """Withdrawn by admission, or cancelled; and reserved anew."""
    book = Paid()
    job_id = book.admit()
    book.decide(AdmissionWithdrawn(at=book.now, team=TEAM, job_id=job_id))
    book.decide(book.refunded(job_id, GPUS * 100 * PER_GPU_S, RefundCause.NEVER_PLACED))
    book.decide(admitted(job_id), book.reserved(job_id))

    assert audit(book.records) == []


def test_what_is_too_much_for_what_it_got_is_trimmed() -> None:
    """An elastic gang of one GPU was priced for two."""
    book = Paid()
    job_id = book.admit(min_gpus=1)
    book.place(job_id, 0b0001)
    book.decide(book.refunded(job_id, 100 * PER_GPU_S, RefundCause.TRIMMED))
    began = book.now
    book.wait(100)
    book.end(job_id, slots=0b0001)
    book.decide(succeeded(job_id))
    book.decide(book.usage(job_id, began, book.now, gpus=1), book.committed(job_id, began, book.now, gpus=1))

    assert audit(book.records) == []


def good(used_s: int = 60) -> Running:
    """A run that was settled."""
    book = Running()
    book.ended(used_s)
    book.decide(book.used(used_s), book.paid(used_s), book.back(100 - used_s))
    return book


def uncovered() -> Running:
    """A run of 120 seconds, which the provider bears in part, that was settled."""
    book = Running(uncovered=Bearer.PROVIDER)
    book.ended(120)
    beyond: dict[str, Any] = {"amount_micro": GPUS * 20 * PER_GPU_S, "bearer": Bearer.PROVIDER}
    usage = book.used(120, amount_micro=GPUS * 100 * PER_GPU_S)
    said = book.entry(UsageUncovered, **book.of(book.job_id), **beyond)
    book.decide(usage, said, book.paid(120, amount_micro=GPUS * 100 * PER_GPU_S))
    return book


def waived() -> Running:
    """A run whose node was lost, that was settled."""
    book = Running(waived_failed=Waived.ALL)
    proof = book.interrupted()
    book.decide(book.paid(60, charged_s=0, outcome=EndedAs.INTERRUPTED), book.waived(60, proof), book.back(40))
    return book


def test_the_logs_that_are_broken_here_are_good() -> None:
    """Else what is found in them says nothing."""
    assert [audit(book.records) for book in (good(), uncovered(), waived())] == [[], [], []]


def _commit_of_more_than_is_reserved() -> Paid:
    book = Running()
    book.ended(100)
    book.decide(book.used(100), book.paid(100), book.back(0))
    book.change(CreditCommitted, plus("amount_micro", 1))
    return book


def _refund_of_more_than_is_reserved() -> Paid:
    book = good()
    book.change(CreditRefunded, plus("amount_micro", 1))
    return book


def _committed_twice() -> Paid:
    book = Running()
    book.ended(60)
    book.decide(book.used(60), book.paid(60), book.paid(60, amount_micro=0), book.back(40))
    return book


def _committed_while_it_runs() -> Paid:
    book = Running()
    book.decide(book.paid(0, amount_micro=0))
    return book


def _refunded_after_all_is_resolved() -> Paid:
    book = good()
    book.decide(book.back(0))
    return book


def _one_gpu_second_more() -> Paid:
    book = good()
    book.change(CreditCommitted, plus("gpu_us", SECOND))
    return book


def _less_than_it_used() -> Paid:
    book = Running()
    book.ended(60)
    book.decide(book.used(60), book.paid(60, charged_s=59), book.back(41))
    return book


def _as_another_outcome() -> Paid:
    book = good()
    book.change(CreditCommitted, outcome=EndedAs.FAILED)
    return book


def _at_another_rate() -> Paid:
    book = good()
    book.change(CreditCommitted, plus("nano_per_gpu_hour", 1))
    return book


def _from_another_time() -> Paid:
    book = good()
    book.change(CreditCommitted, began=book.began - timedelta(seconds=1))
    return book


def _recorded_less() -> Paid:
    book = good()
    book.change(UsageRecorded, plus("gpu_us", -1))
    return book


def _recorded_at_another_amount() -> Paid:
    book = good()
    book.change(UsageRecorded, plus("amount_micro", 1))
    return book


def _recorded_from_later_on() -> Paid:
    book = good()
    book.change(UsageRecorded, began=book.began + timedelta(seconds=1))
    return book


def _recorded_under_another_number() -> Paid:
    book = good()
    book.change(UsageRecorded, usage_id="job-1-2")
    return book


def _recorded_for_another_team() -> Paid:
    book = good()
    book.change(UsageRecorded, team="others")
    return book


def _recorded_more_while_it_runs() -> Paid:
    book = Running()
    book.now = book.began + timedelta(seconds=90)
    book.decide(book.used(60, gpu_us=GPUS * 60 * SECOND + 1))
    return book


def _corrected_while_it_runs() -> Paid:
    book = Running()
    book.decide(book.used(0, corrects=True, cause="interrupted"))
    return book


def _corrected_upward() -> Paid:
    book = Running()
    book.ended(60)
    more = book.used(0, number=2, gpu_us=1, corrects=True, cause="interrupted")
    book.decide(replace(book.used(60), entry=more.entry), replace(more, entry=more.entry + 1))
    return book


def _not_recorded_at_all() -> Paid:
    book = Running()
    book.ended(60)
    book.decide(book.paid(60), book.back(40))
    return book


def _uncovered_less() -> Paid:
    book = uncovered()
    book.change(UsageUncovered, plus("amount_micro", -1))
    return book


def _borne_by_another() -> Paid:
    book = uncovered()
    book.change(UsageUncovered, bearer=Bearer.ACCOUNT)
    book.change(UsageRecorded, amount_micro=GPUS * 120 * PER_GPU_S)
    return book


def _trimmed_too_much() -> Paid:
    book = Running()
    book.decide(book.back(1, RefundCause.TRIMMED))
    return book


def _given_back_as_never_placed() -> Paid:
    book = Running()
    book.decide(book.back(1, RefundCause.NEVER_PLACED))
    return book


def _given_back_as_unused_before_the_end() -> Paid:
    book = Running()
    book.decide(book.back(1))
    return book


def _waived_for_one_that_ended_well() -> Paid:
    book = Running()
    book.ended(60)
    proof = next(r.id for r in book.records if isinstance(r.event, ShareEnded))
    book.decide(
        book.used(60),
        book.paid(60),
        replace(book.back(0), cause=RefundCause.INTERRUPTED, evidence=(proof,)),
        book.back(40),
    )
    return book


def _waived_as_for_others() -> Paid:
    book = waived()
    book.change(CreditRefunded, last=False, cause=RefundCause.PREEMPTED)
    return book


def _waived_time_that_was_not_used() -> Paid:
    book = waived()
    book.change(CreditRefunded, plus("gpu_us", 1), last=False)
    return book


def _waived_without_evidence() -> Paid:
    book = waived()
    book.change(CreditRefunded, last=False, evidence=())
    return book


def _waived_by_what_is_not_in_the_log() -> Paid:
    book = waived()
    book.change(CreditRefunded, last=False, evidence=("nothing-1",))
    return book


def _waived_by_what_says_nothing_of_it() -> Paid:
    book = waived()
    book.change(CreditRefunded, last=False, evidence=(book.records[2].id,))
    return book


def _waived_less_than_the_policy_says() -> Paid:
    book = waived()
    book.change(CreditRefunded, plus("amount_micro", -1), last=False)
    book.change(CreditRefunded, plus("amount_micro", 1))
    return book


PLANTED: Final[list[tuple[Callable[[], Paid], set[str]]]] = [
    (_commit_of_more_than_is_reserved, {"no more than was reserved", "charged as used"}),
    (_refund_of_more_than_is_reserved, {"no more than was reserved"}),
    (_committed_twice, {"resolved once"}),
    (_committed_while_it_runs, {"resolved once"}),
    (_refunded_after_all_is_resolved, {"of an open reservation"}),
    (_one_gpu_second_more, {"charged as used"}),
    (_less_than_it_used, {"charged as used", "records add up to what is charged"}),
    (_as_another_outcome, {"charged as used"}),
    (_at_another_rate, {"charged as used"}),
    (_from_another_time, {"charged as used"}),
    (_recorded_less, {"recorded as used", "records add up to what is charged"}),
    (_recorded_at_another_amount, {"recorded as used", "records add up to what is charged"}),
    (_recorded_from_later_on, {"recorded as used"}),
    (_recorded_under_another_number, {"recorded as used"}),
    (_recorded_for_another_team, {"recorded as used"}),
    (_recorded_more_while_it_runs, {"recorded as used"}),
    (_corrected_while_it_runs, {"recorded as used"}),
    (_corrected_upward, {"recorded as used"}),
    (_not_recorded_at_all, {"records add up to what is charged"}),
    (_uncovered_less, {"charged as used"}),
    (_borne_by_another, {"uncovered once", "recorded as used"}),
    (_trimmed_too_much, {"refunded with cause"}),
    (_given_back_as_never_placed, {"refunded with cause"}),
    (_given_back_as_unused_before_the_end, {"refunded with cause"}),
    (_waived_for_one_that_ended_well, {"waived with cause"}),
    (_waived_as_for_others, {"waived with cause"}),
    (_waived_time_that_was_not_used, {"waived with cause"}),
    (_waived_without_evidence, {"waived with evidence"}),
    (_waived_by_what_is_not_in_the_log, {"waived with evidence"}),
    (_waived_by_what_says_nothing_of_it, {"waived with evidence"}),
    (_waived_less_than_the_policy_says, {"waived as the policy says"}),
]


@pytest.mark.parametrize(("plant", "laws"), PLANTED, ids=[plant.__name__.strip("_") for plant, _ in PLANTED])
def test_a_planted_violation_is_found_and_nothing_else(plant: Callable[[], Paid], laws: set[str]) -> None:
    """Exactly the laws that are broken are named, with the run and the account."""
    findings = audit(plant().records)

    assert {finding.law for finding in findings} == laws, findings
    assert all("alpha" in finding.message and "job-1" in finding.message for finding in findings)
