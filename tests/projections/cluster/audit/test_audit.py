"""The auditor, held to small logs written by hand: a good one, and each law broken once, with nothing else amiss."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

import pytest
from msgspec.structs import replace

from events.alarm import AlarmCode, AlarmRaised
from events.base import (
    START,
    GpuUuid,
    JobId,
    NodeId,
    Position,
    Recorded,
    Unreadable,
)
from events.head import LeadershipTaken
from events.job import (
    HoldCode,
    JobCancelled,
    JobHeld,
    JobRejected,
    JobResumeAsked,
    OnLost,
)
from events.node import GpusFoundClean
from projections.cluster.audit.audit import audit
from tests.projections.cluster.audit.auditing import AT, TEAM, Book, admitted, laws, lost, placed, requeued, succeeded


def test_a_good_log_breaks_no_law() -> None:
    """Jobs that end, are requeued, placed on a node already lost, cancelled unplaced; lives that end; leaders that change."""
    book = Book()
    one = book.running("one", book.share("n1", 0b0011), book.share("n2", 0b0011))
    two = book.running("two", book.share("n1", 0b0100), on_lost=OnLost.WAIT)
    book.released(f"{one}-1", "n1", 0b1111)  # beyond its own: frees nothing of another's
    book.released(f"{one}-1", "n1", 0b0011)  # again
    book.released(f"{one}-1", "n2", 0b0011)
    book.decide(succeeded(one))
    book.decide(lost(book, "n1"))
    late = book.submit("late", 1)
    book.decide(admitted(late))
    book.decide(placed(late, book.share("n1", 0b0001)))  # lost a race
    book.decide(requeued(late))
    book.epoch = book.add(LeadershipTaken(at=AT, instance="b", version=""))
    book.nodes["n1"] = book.join("n1", "h100")
    book.decide(requeued(two))
    book.decide(admitted(two), admitted(late))
    book.decide(placed(two, book.share("n1", 0b0100), attempt=2), placed(late, book.share("n1", 0b0001), attempt=2))
    book.released(f"{two}-2", "n1", 0b0100)
    book.decide(replace(requeued(two, 2), held=True))
    book.add(JobResumeAsked(at=AT, team=TEAM, job_id=two))
    book.decide(admitted(two))
    unwanted = book.submit("unwanted", 1)
    book.decide(
        JobCancelled(at=AT, team=TEAM, job_id=unwanted), AlarmRaised(at=AT, code=AlarmCode.BREAKER, message="m")
    )

    assert audit(book.records) == []


def _gap(book: Book) -> None:
    book.add(LeadershipTaken(at=AT, instance="b", version=""))
    del book.records[-2]  # the last word of a node


def _time_goes_back(book: Book) -> None:
    position = book.add(LeadershipTaken(at=AT, instance="b", version=""))
    book.records[-1] = Recorded(book.records[-1].event, position, AT - timedelta(seconds=1))


def _unreadable(book: Book) -> None:
    book.add(Unreadable(at=AT, subject="node.n1", named="?", reason="no type '?' is known to this version"))


def _older_leader(book: Book) -> None:
    job = book.submit("job", 1)
    book.add(LeadershipTaken(at=AT, instance="b", version=""))
    book.decide(admitted(job))  # by the first


def _decided_in_the_future(book: Book) -> None:
    book.decide(admitted(book.submit("job", 1)), decided_at=Position(book.records[-1].position + 100))


def _outside_a_decision(book: Book) -> None:
    book.add(admitted(book.submit("job", 1)))


def _half_a_decision(book: Book) -> None:
    book.decide(admitted(book.submit("job", 1)), events=2)
    book.submit("other", 1)


def _half_a_decision_before_another(book: Book) -> None:
    book.decide(admitted(book.submit("job", 1)), events=2)
    book.decide()


def _submitted_twice(book: Book) -> None:
    book.submit("job", 1)
    book.submit("job", 1)


def _nobody_asked(book: Book) -> None:
    book.decide(admitted(JobId("job")))


def _said_after_the_end(book: Book) -> None:
    job = book.submit("job", 1)
    book.decide(JobRejected(at=AT, team=TEAM, job_id=job, code="c", message="m"))
    book.decide(JobHeld(at=AT, team=TEAM, job_id=job, code=HoldCode.NO_ROOM))


def _admitted_twice(book: Book) -> None:
    job = book.submit("job", 1)
    book.decide(admitted(job))
    book.decide(admitted(job))


def _admitted_while_it_runs(book: Book) -> None:
    book.decide(admitted(book.running("job", book.share("n1", 1))))


def _admitted_while_it_is_held(book: Book) -> None:
    job = book.running("held", book.share("n1", 0b0001))
    book.released(f"{job}-1", "n1", 0b0001)
    book.decide(replace(requeued(job), held=True))
    book.decide(admitted(job))


def _placed_unadmitted(book: Book) -> None:
    book.decide(placed(book.submit("job", 1), book.share("n1", 1)))


def _attempt_left_out(book: Book) -> None:
    job = book.submit("job", 1)
    book.decide(admitted(job))
    book.decide(placed(job, book.share("n1", 1), attempt=2))


def _run_misnamed(book: Book) -> None:
    job = book.submit("job", 1)
    book.decide(admitted(job))
    book.decide(placed(job, book.share("n1", 1), run_id="job-7"))


def _part_of_a_gang(book: Book) -> None:
    book.running("job", book.share("n1", 0b1), gpus=2)


def _nodes_out_of_order(book: Book) -> None:
    book.running("job", book.share("n2", 0b1), book.share("n1", 0b1))


def _one_node_twice(book: Book) -> None:
    book.running("job", book.share("n1", 0b01), book.share("n1", 0b10))


def _another_shape(book: Book) -> None:
    book.running("job", book.share("n1", 0b111), book.share("n2", 0b1), nodes=2, gpus_per_node=2)


def _types_mixed(book: Book) -> None:
    book.nodes["n3"] = book.join("n3", "a100")
    book.running("job", book.share("n2", 0b1), book.share("n3", 0b1))


def _type_not_accepted(book: Book) -> None:
    book.running("job", book.share("n2", 0b1), gpu_types=("a100",))


def _not_found_clean(book: Book) -> None:
    book.nodes["n3"] = book.join("n3", "h100", clean=False)
    book.running("job", book.share("n3", 0b1))


def _twice_given(book: Book) -> None:
    book.running("one", book.share("n1", 0b0011))
    book.running("two", book.share("n1", 0b0110))


def _given_after_the_release_of_another(book: Book) -> None:
    book.running("one", book.share("n1", 0b0001))
    two = book.running("two", book.share("n1", 0b0010))
    book.released(f"{two}-1", "n1", 0b0011)  # names a slot of the first
    book.running("three", book.share("n1", 0b0001))


def _ends_another_run(book: Book) -> None:
    job = book.running("job", book.share("n1", 1))
    book.released("job-1", "n1", 1)
    book.decide(succeeded(job, attempt=2))


def _over_with_a_gpu(book: Book) -> None:
    job = book.running("job", book.share("n1", 0b11))
    book.released("job-1", "n1", 0b01)
    book.decide(succeeded(job))
    book.released("job-1", "n1", 0b10)  # too late, and the reading goes on
    book.running("next", book.share("n1", 0b10))


def _over_with_a_gpu_of_a_node_that_went_later(book: Book) -> None:
    job = book.running("job", book.share("n1", 0b11))
    book.decide(succeeded(job))
    book.decide(lost(book, "n1"))


def _elsewhere_before_the_node_is_clean(book: Book) -> None:
    job = book.running("job", book.share("n1", 0b11), on_lost=OnLost.WAIT)
    book.decide(lost(book, "n1"))
    book.decide(requeued(job))


def _elsewhere_when_only_some_are_clean(book: Book) -> None:
    job = book.running("job", book.share("n1", 0b11), on_lost=OnLost.WAIT)
    epoch = book.join("n1", "h100", clean=False)
    book.add(GpusFoundClean(at=AT, node_id=NodeId("n1"), node_epoch=epoch, gpu_uuids=(GpuUuid("n1-0"),)))
    book.decide(requeued(job))


PLANTED: Final[list[tuple[Callable[[Book], None], str]]] = [
    (_gap, "contiguous"),
    (_time_goes_back, "time"),
    (_unreadable, "readable"),
    (_older_leader, "one leader"),
    (_decided_in_the_future, "one leader"),
    (_outside_a_decision, "one leader"),
    (_half_a_decision, "one append"),
    (_half_a_decision_before_another, "one append"),
    (_submitted_twice, "submitted once"),
    (_nobody_asked, "submitted first"),
    (_said_after_the_end, "nothing after the end"),
    (_admitted_twice, "admitted once"),
    (_admitted_while_it_runs, "admitted once"),
    (_admitted_while_it_is_held, "held until resumed"),
    (_placed_unadmitted, "placed when admitted"),
    (_attempt_left_out, "attempts in order"),
    (_run_misnamed, "attempts in order"),
    (_part_of_a_gang, "whole gang"),
    (_nodes_out_of_order, "whole gang"),
    (_one_node_twice, "whole gang"),
    (_another_shape, "whole gang"),
    (_types_mixed, "whole gang"),
    (_type_not_accepted, "whole gang"),
    (_not_found_clean, "from the pool"),
    (_twice_given, "no GPU twice"),
    (_given_after_the_release_of_another, "no GPU twice"),
    (_ends_another_run, "ends what runs"),
    (_over_with_a_gpu, "every GPU released"),
    (_over_with_a_gpu_of_a_node_that_went_later, "every GPU released"),
    (_elsewhere_before_the_node_is_clean, "waits for lost nodes"),
    (_elsewhere_when_only_some_are_clean, "waits for lost nodes"),
]


@pytest.mark.parametrize(("plant", "law"), PLANTED, ids=[plant.__name__.strip("_") for plant, _ in PLANTED])
def test_a_planted_violation_is_found_and_nothing_else(plant: Callable[[Book], None], law: str) -> None:
    """Exactly the law that is broken is named, and where."""
    book = Book()
    before = book.records[-1].position
    plant(book)

    findings = audit(book.records)
    assert {finding.law for finding in findings} == {law}
    assert all(finding.position > before - 1 and finding.message for finding in findings)


def test_a_log_that_does_not_begin_with_its_founding_is_found() -> None:
    """Its beginning was lost, or another program wrote it."""
    assert laws(Book().records[1:]) == {"contiguous"}
    assert laws([Recorded(LeadershipTaken(at=AT, instance="a", version=""), Position(START + 1), AT)]) == {"contiguous"}


def test_a_decision_cut_off_at_the_end_is_not_yet_a_violation() -> None:
    """A batch is read in stretches: an audit may end in its middle."""
    book = Book()
    book.decide(admitted(book.submit("job", 1)), events=2)

    assert audit(book.records) == []
