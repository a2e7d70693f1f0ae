"""The auditor's own count of use, held to small logs, and to the fold: two programs that agree to the microsecond."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from events.base import NodeEpoch, NodeId, RunId, SlotMask
from events.credit import EndedAs
from events.fleet import NodeLost, NodeRecovered, NodeSuspected
from events.job import JobCancelled, JobFailed, JobRequeued, JobSucceeded, JobTimedOut, RunStopping, StopCause
from events.node import CheckpointSaved, GpusReleased, ShareStarted
from events.policy import ChargeFrom
from projections.cluster.audit.audit import read
from projections.cluster.audit.books import Books
from projections.cluster.audit.purses import Charge
from tests.histories import History, fold, histories, history
from tests.projections.cluster.audit.auditing import TEAM, admitted, placed
from tests.projections.cluster.audit.crediting import SECOND, Paid

RUN: Final = RunId("job-1")
OF_JOB: Final[dict[str, Any]] = {"team": TEAM, "job_id": "job"}


class Two(Paid):
    """A job of two GPUs of each of two nodes, and of what its agents say."""

    def __init__(self, charge_from: ChargeFrom = ChargeFrom.PLACED) -> None:
        super().__init__(charge_from=charge_from)
        job_id = self.submit("job", 4, max_runtime_s=1_000)
        self.decide(admitted(job_id), self.reserved(job_id, gpus=4, covers_s=1_000, charge_from=charge_from))
        self.decide(placed(job_id, self.share("n1", 0b0011), self.share("n2", 0b0011)))

    def ids(self, name: str) -> dict[str, Any]:
        """What a report of a node, or a judgement on it, says."""
        return {"at": self.now, "node_id": NodeId(name), "node_epoch": NodeEpoch(self.nodes[name])}

    def give_back(self, name: str, slots: int = 0b0011) -> None:
        """A node gives some back."""
        self.add(GpusReleased(**self.ids(name), run_id=RUN, slots=SlotMask(slots)))

    def charge(self) -> Charge:
        """What the auditor has of it."""
        books = Books()
        for recorded in self.records:
            read(books, recorded)
        return books.credit.charges[RUN]

    def used_s(self) -> float:
        """GPU-seconds up to now."""
        return self.charge().used_us(self.now) / SECOND


def test_each_gpu_counts_until_it_was_given_back() -> None:
    """Part of a node's first, then the other, then the rest; again, and of others, changes nothing."""
    book = Two()
    book.wait(10)
    book.give_back("n1", 0b0001)
    book.wait(10)
    book.give_back("n2")
    book.give_back("n2")
    book.give_back("n1", 0b1100)
    book.wait(10)
    assert book.used_s() == 10 + 2 * 20 + 30

    book.give_back("n1")
    book.wait(99)
    assert book.used_s() == 10 + 2 * 20 + 30


def test_a_run_that_is_charged_from_its_start_counts_from_the_last_report_of_it() -> None:
    """What was given back before that counts nothing."""
    book = Two(ChargeFrom.STARTED)
    book.wait(10)
    book.add(ShareStarted(**book.ids("n1"), run_id=RUN))
    book.wait(10)
    assert book.used_s() == 0
    book.give_back("n1", 0b0001)
    book.add(ShareStarted(**book.ids("n2"), run_id=RUN))
    book.wait(10)
    assert book.used_s() == 3 * 10


def test_a_lost_node_counts_until_it_was_heard_last() -> None:
    """Declared lost after 25 seconds of silence; of another life nothing changes."""
    book = Two()
    book.wait(100)
    book.decide(NodeLost(**book.ids("n1") | {"node_epoch": NodeEpoch(1)}, silent_s=50.0))
    book.decide(NodeLost(**book.ids("n1"), silent_s=25.0))
    book.wait(100)
    assert book.used_s() == 2 * 75 + 2 * 200


def test_silence_from_before_it_was_placed_counts_nothing_and_never_less() -> None:
    """A node cannot take back what was never counted."""
    book = Two()
    book.wait(10)
    book.decide(NodeLost(**book.ids("n1"), silent_s=1_000.0))
    assert book.used_s() == 2 * 10


@pytest.mark.parametrize(("recovers", "counted_s"), [(False, 60), (True, 100)])
def test_a_node_that_joins_anew_counts_until_it_was_heard_in_its_old_life(recovers: bool, counted_s: int) -> None:
    """Suspect since 40 seconds; or heard again meanwhile: until it joined."""
    book = Two()
    book.wait(90)
    book.decide(NodeSuspected(**book.ids("n1"), silent_s=30.0))
    if recovers:
        book.decide(NodeRecovered(**book.ids("n1")))
    book.wait(10)
    book.nodes["n1"] = book.join("n1", "h100")
    book.wait(50)
    assert book.used_s() == 2 * counted_s + 2 * 150


def test_a_checkpoint_is_worth_what_was_used_when_it_was_saved() -> None:
    """One of another number; the same again is none."""
    book = Two()
    book.wait(10)
    book.add(CheckpointSaved(**book.ids("n1"), run_id=RUN, number=1))
    book.wait(10)
    book.add(CheckpointSaved(**book.ids("n2"), run_id=RUN, number=1))
    assert book.charge().saved_us == 4 * 10 * SECOND
    book.add(CheckpointSaved(**book.ids("n2"), run_id=RUN, number=2))
    assert book.charge().saved_us == 4 * 20 * SECOND


ENDS: Final[list[tuple[Callable[[Any], Any], StopCause | None, EndedAs]]] = [
    (lambda at: JobSucceeded(at=at, **OF_JOB, run_id=RUN), None, EndedAs.SUCCEEDED),
    (lambda at: JobTimedOut(at=at, **OF_JOB, run_id=RUN), StopCause.TIME_LIMIT, EndedAs.TIME_LIMIT),
    (lambda at: JobFailed(at=at, **OF_JOB, run_id=RUN, cause=StopCause.RANK_FAILED), None, EndedAs.FAILED),
    (lambda at: JobFailed(at=at, **OF_JOB, run_id=RUN, cause=StopCause.START_FAILED), None, EndedAs.INTERRUPTED),
    (lambda at: JobCancelled(at=at, **OF_JOB, run_id=RUN), None, EndedAs.CANCELLED),
    (lambda at: JobCancelled(at=at, **OF_JOB, run_id=RUN), StopCause.PREEMPTED, EndedAs.PREEMPTED),
    *(
        (
            lambda at, cause=cause: JobRequeued(at=at, **OF_JOB, run_id=RUN, cause=cause, not_before=at),
            cause,
            outcome,
        )
        for cause, outcome in (
            (StopCause.NODE_LOST, EndedAs.INTERRUPTED),
            (StopCause.PREEMPTED, EndedAs.PREEMPTED),
            (StopCause.CONSOLIDATED, EndedAs.CONSOLIDATED),
            (StopCause.QUEUE_HELD, EndedAs.QUEUE_HELD),
            (StopCause.CREDITS, EndedAs.CREDITS),
        )
    ),
]


@pytest.mark.parametrize(("end", "stopped", "outcome"), ENDS, ids=[f"{n}-{case[2]}" for n, case in enumerate(ENDS)])
def test_a_run_ended_as_its_last_records_say(
    end: Callable[[Any], Any], stopped: StopCause | None, outcome: EndedAs
) -> None:
    """One that a user cancelled while it was stopped for another reason, by that."""
    book = Two()
    if stopped is not None:
        book.decide(RunStopping(at=book.now, **OF_JOB, run_id=RUN, cause=stopped))
    book.wait(20)
    book.give_back("n1")
    book.give_back("n2")
    book.decide(end(book.now))

    over = book.charge().over
    assert over is not None
    assert (over.outcome, over.used_us, over.ended - book.now) == (outcome, 4 * 20 * SECOND, timedelta(0))


def test_a_placement_on_a_life_that_was_over_is_its_own_evidence() -> None:
    """Nothing else in the log says why its run did not go on."""
    book = Paid()
    job_id = book.admit()
    share = replace(book.share("n1", 0b0011), node_epoch=NodeEpoch(1))
    book.decide(placed(job_id, share))
    books = Books()
    for recorded in book.records:
        read(books, recorded)

    assert books.credit.charges[RUN].witnesses == {book.records[-1].id}


@given(histories())
@settings(max_examples=60)
def test_the_auditor_and_the_fold_count_the_same(grown: History) -> None:
    """Of every account all sums, of every reservation what was used so far and how it ended: without a line in common."""
    books = Books()
    for recorded in grown.records:
        read(books, recorded)
    folded = fold(grown.records).credits

    assert {name: (purse.entry, purse.balance) for name, purse in books.credit.purses.items()} == {
        name: (book.entry, book.balance) for name, book in folded.books.items()
    }
    assert books.credit.charges.keys() == folded.bills.keys()
    for run_id, charge in books.credit.charges.items():
        bill = folded.bills[run_id]
        assert (charge.rest, charge.recorded_us, charge.since) == (
            bill.reserved_micro,
            bill.recorded_us,
            bill.counts_from,
        )
        assert (charge.over is None) is (bill.end is None)
        if charge.over is not None and bill.end is not None:
            used = (charge.over.outcome, charge.over.used_us, min(charge.saved_us, charge.over.used_us))
            assert used == (bill.end.outcome, bill.end.used_us, min(bill.end.saved_us, bill.end.used_us))
            assert charge.witnesses.issuperset(bill.end.evidence)


def test_histories_hold_what_the_laws_of_credits_are_about() -> None:
    """Reservations, renewals, settlements, refusals, debts, closings: in some forty of them, each more than once."""
    kinds: Counter[str] = Counter()
    for seed in range(40):
        kinds += history(seed, 150).kinds

    entries = {
        "CreditReserved",
        "CreditRenewed",
        "CreditCommitted",
        "CreditRefunded",
        "UsageRecorded",
        "UsageUncovered",
    }
    asked = {"GrantAsked", "AdjustmentAsked", "CreditGranted", "CreditAdjusted", "AskRefused"}
    closed = {"AccountClosed", "PeriodClosed"}
    assert {kind for kind in entries | asked | closed if kinds[kind] < 2} == set()
