"""The auditor on what is set aside, promised and stopped for others: a good log, and each law broken once."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from events.base import JobId, RunId
from events.job import (
    ConsolidationProposed,
    EarmarkCause,
    EarmarkDropped,
    GpusEarmarked,
    JobRequeued,
    Move,
    NodeShare,
    PromiseCause,
    PromiseDropped,
    PromiseMoved,
    RunStopping,
    StartPromised,
    StopCause,
)
from projections.cluster.audit.audit import audit
from projections.cluster.audit.books import gpus_of, slots_of
from tests.projections.cluster.audit.auditing import AT, TEAM, Book, admitted, laws, lost, placed, succeeded


def waiting(book: Book, name: str, gpus: int, **spec: Any) -> JobId:
    """A job is admitted and waits."""
    job_id = book.submit(name, gpus, **spec)
    book.decide(admitted(job_id))
    return job_id


def earmarked(job_id: JobId, *shares: NodeShare, victims: tuple[str, ...] = (), **said: Any) -> GpusEarmarked:
    """These are set aside for it."""
    ended = tuple(RunId(run_id) for run_id in victims)
    return GpusEarmarked(at=AT, team=TEAM, job_id=job_id, shares=shares, victims=ended, **said)


def stopping(run_id: str, cause: StopCause = StopCause.PREEMPTED) -> RunStopping:
    """It was told to end."""
    return RunStopping(at=AT, team=TEAM, job_id=JobId(run_id[:-2]), run_id=RunId(run_id), cause=cause)


def requeued(run_id: str, cause: StopCause = StopCause.PREEMPTED) -> JobRequeued:
    """Its job waits again."""
    ids: dict[str, Any] = {"team": TEAM, "job_id": JobId(run_id[:-2]), "run_id": RunId(run_id)}
    return JobRequeued(at=AT, **ids, cause=cause, not_before=AT)


def dropped(job_id: JobId) -> EarmarkDropped:
    """What was set aside is anyone's."""
    return EarmarkDropped(at=AT, team=TEAM, job_id=job_id, cause=EarmarkCause.CHANGED)


def promised(job_id: JobId, *shares: NodeShare) -> StartPromised:
    """These drain towards it."""
    return StartPromised(at=AT, team=TEAM, job_id=job_id, shares=shares, start=None)


def test_a_good_log_of_evictions_moves_and_promises_breaks_no_law() -> None:
    """A victim ends for a job that then runs; a run moves to its new place; promises come, move and go."""
    book = Book()
    old = book.running("old", book.share("n1", 0b1111), min_gpus=2)
    new = waiting(book, "new", 4)
    book.decide(promised(new, book.share("n2", 0b1111)))
    moved = PromiseMoved(at=AT, team=TEAM, job_id=new, shares=(book.share("n1", 0b1111),), start=None, cause=PromiseCause.EARLIER)  # fmt: skip
    book.decide(moved, PromiseDropped(at=AT, team=TEAM, job_id=new, cause=PromiseCause.PREEMPTION))
    book.decide(earmarked(new, book.share("n1", 0b1111), victims=("old-1",)))
    book.decide(stopping("old-1"))
    book.released("old-1", "n1", 0b1111)
    book.decide(requeued("old-1"), placed(new, book.share("n1", 0b1111)))
    small = book.running("small", book.share("n2", 0b0001))
    book.released("new-1", "n1", 0b1111)
    book.decide(succeeded(new))
    gang = waiting(book, "gang", 4)
    move = Move(RunId("small-1"), (book.share("n1", 0b0001),))
    shares = (book.share("n2", 0b1111),)
    book.decide(ConsolidationProposed(at=AT, team=TEAM, job_id=gang, shares=shares, moves=(move,)))
    book.decide(earmarked(gang, *shares, victims=("small-1",), moved=True), earmarked(small, *move.shares))
    book.decide(stopping("small-1", StopCause.CONSOLIDATED))
    book.released("small-1", "n2", 0b0001)
    book.decide(requeued("small-1", StopCause.CONSOLIDATED), admitted(small))
    book.decide(placed(gang, *shares), placed(small, *move.shares, attempt=2))
    book.decide(admitted(old), earmarked(old, book.share("n1", 0b0110)), dropped(old))

    assert audit(book.records) == []


def test_what_is_set_aside_on_a_node_that_goes_is_anyones_in_its_next_life() -> None:
    """The earmark is dropped later, or never."""
    book = Book()
    first, second = waiting(book, "first", 2), waiting(book, "second", 4)
    book.decide(earmarked(first, book.share("n1", 0b0011)))
    book.decide(lost(book, "n1"))
    book.nodes["n1"] = book.join("n1", "h100")
    book.decide(placed(second, book.share("n1", 0b1111)))

    assert audit(book.records) == []


def _given_to_another(book: Book) -> None:
    first, second = waiting(book, "first", 2), waiting(book, "second", 1)
    book.decide(earmarked(first, book.share("n1", 0b0011)))
    book.decide(placed(second, book.share("n1", 0b0001)))


def _set_aside_for_two(book: Book) -> None:
    first, second = waiting(book, "first", 2), waiting(book, "second", 2)
    book.decide(earmarked(first, book.share("n1", 0b0011)))
    book.decide(earmarked(second, book.share("n1", 0b0110)))


def _two_earmarks(book: Book) -> None:
    job = waiting(book, "job", 1)
    book.decide(earmarked(job, book.share("n1", 0b0001)), earmarked(job, book.share("n1", 0b0010)))


def _earmark_of_a_job_that_runs(book: Book) -> None:
    book.decide(earmarked(book.running("job", book.share("n1", 1)), book.share("n2", 1)))


def _earmark_of_a_job_that_is_not_admitted(book: Book) -> None:
    book.decide(earmarked(book.submit("job", 1), book.share("n1", 1)))


def _part_of_a_gang_set_aside(book: Book) -> None:
    book.decide(earmarked(waiting(book, "job", 2), book.share("n1", 0b1)))


def _on_a_run_that_goes_on(book: Book) -> None:
    book.running("old", book.share("n1", 0b0011))
    book.decide(earmarked(waiting(book, "new", 2), book.share("n1", 0b0110)))


def _victim_that_does_not_run(book: Book) -> None:
    book.decide(earmarked(waiting(book, "new", 1), book.share("n1", 1), victims=("other-1",)))


def _victim_of_an_earlier_run(book: Book) -> None:
    old = book.running("old", book.share("n1", 1))
    book.decide(stopping("old-1", StopCause.QUEUE_HELD))
    book.released("old-1", "n1", 1)
    book.decide(requeued("old-1", StopCause.QUEUE_HELD), admitted(old))
    book.decide(placed(old, book.share("n1", 1), attempt=2))
    book.decide(earmarked(waiting(book, "new", 1), book.share("n2", 1), victims=("old-1",)))


def _victim_of_two(book: Book) -> None:
    book.running("old", book.share("n1", 0b0011))
    first, second = waiting(book, "first", 1), waiting(book, "second", 1)
    book.decide(earmarked(first, book.share("n1", 0b0001), victims=("old-1",)))
    book.decide(earmarked(second, book.share("n1", 0b0010), victims=("old-1",)))


def _victim_that_cannot_be_preempted(book: Book) -> None:
    book.running("old", book.share("n1", 1), preemptible=False)
    book.decide(earmarked(waiting(book, "new", 1), book.share("n1", 1), victims=("old-1",)))


def _in_turn(book: Book) -> None:
    old, new = book.running("old", book.share("n1", 1)), waiting(book, "new", 1)
    book.decide(earmarked(new, book.share("n1", 1), victims=("old-1",)), stopping("old-1"))
    book.released("old-1", "n1", 1)
    book.decide(requeued("old-1"), placed(new, book.share("n1", 1)), admitted(old))
    book.decide(earmarked(old, book.share("n1", 1), victims=("new-1",)))


def _stopped_for_nobody(book: Book) -> None:
    book.running("old", book.share("n1", 1))
    book.decide(stopping("old-1"))


def _moved_nowhere(book: Book) -> None:
    book.running("old", book.share("n1", 1))
    book.decide(earmarked(waiting(book, "new", 1), book.share("n1", 1), victims=("old-1",)))
    book.decide(stopping("old-1", StopCause.CONSOLIDATED))


def _dropped_twice(book: Book) -> None:
    job = waiting(book, "job", 1)
    book.decide(earmarked(job, book.share("n1", 1)), dropped(job), dropped(job))


def _promised_twice(book: Book) -> None:
    job = waiting(book, "job", 1)
    book.decide(promised(job, book.share("n1", 1)), promised(job, book.share("n1", 1)))


def _promised_before_it_is_admitted(book: Book) -> None:
    book.decide(promised(book.submit("job", 1), book.share("n1", 1)))


def _promise_dropped_that_was_none(book: Book) -> None:
    book.decide(PromiseDropped(at=AT, team=TEAM, job_id=waiting(book, "job", 1), cause=PromiseCause.NODE))


def _part_of_a_gang_proposed(book: Book) -> None:
    shares = (book.share("n1", 1),)
    job = waiting(book, "job", 2)
    book.decide(ConsolidationProposed(at=AT, team=TEAM, job_id=job, shares=shares, moves=()))


PLANTED: Final[list[tuple[Callable[[Book], None], str]]] = [
    (_given_to_another, "set aside"),
    (_set_aside_for_two, "set aside once"),
    (_two_earmarks, "set aside once"),
    (_earmark_of_a_job_that_runs, "set aside for who waits"),
    (_earmark_of_a_job_that_is_not_admitted, "set aside for who waits"),
    (_part_of_a_gang_set_aside, "whole gang"),
    (_on_a_run_that_goes_on, "counts on what ends"),
    (_victim_that_does_not_run, "victims run"),
    (_victim_of_an_earlier_run, "victims run"),
    (_victim_of_two, "claimed once"),
    (_victim_that_cannot_be_preempted, "preemptible only"),
    (_in_turn, "never in turn"),
    (_stopped_for_nobody, "stopped for a job"),
    (_moved_nowhere, "stopped for a job"),
    (_dropped_twice, "dropped once"),
    (_promised_twice, "promised while it waits"),
    (_promised_before_it_is_admitted, "promised while it waits"),
    (_promise_dropped_that_was_none, "promised while it waits"),
    (_part_of_a_gang_proposed, "whole gang"),
]


@pytest.mark.parametrize(("plant", "law"), PLANTED, ids=[plant.__name__.strip("_") for plant, _ in PLANTED])
def test_a_planted_violation_is_found_and_nothing_else(plant: Callable[[Book], None], law: str) -> None:
    """Exactly the law that is broken is named, and where."""
    book = Book()
    plant(book)

    findings = audit(book.records)
    assert {finding.law for finding in findings} == {law}
    assert all(finding.message for finding in findings)


def test_masks_are_read_slot_by_slot() -> None:
    """The lowest first."""
    share = Book().share("n1", 0b1010)

    assert list(slots_of(0b1010)) == [1, 3]
    assert [gpu.slot for gpu in gpus_of((share,))] == [1, 3]
    assert laws(Book().records) == set()
