"""What the auditor says of GPUs that verdicts took out: given to nobody, and returned by what helps alone."""

from typing import Any

import pytest
from msgspec.structs import replace

from events.alarm import AlarmCleared, AlarmCode, AlarmRaised
from events.base import GpuUuid, NodeEpoch, NodeId, Position
from events.gpu import GpuAction, GpuJudged, GpuRecovered, GpuReturned, GpuSignal, GpuSignalled, Recovery
from events.node import NodeJoined
from events.operator import GpuReturnAsked
from projections.cluster.audit.audit import audit
from tests.projections.cluster.audit.auditing import AT, Book, admitted, laws, placed

GPU = GpuUuid("n1-0")
OUT, BACK = "no GPU that is out", "returned by what helps"


def of(book: Book) -> dict[str, Any]:
    """What is said of node n1's life."""
    return {"at": AT, "node_id": NodeId("n1"), "node_epoch": book.nodes["n1"]}


def judged(book: Book, action: GpuAction = GpuAction.RESET, **said: Any) -> None:
    """GPU 0 of n1 showed a sign, and was judged so."""
    sign = book.add(GpuSignalled(**of(book), gpu_uuid=GPU, signal=GpuSignal.XID, code=95))
    said = {"returns_by": (Recovery.RESET, Recovery.REBOOT, Recovery.OPERATOR), "table": "t", "signalled": sign, **said}
    book.decide(GpuJudged(**{**of(book), **said}, gpu_uuid=GPU, signal=GpuSignal.XID, action=action))


def recovered(book: Book, means: Recovery = Recovery.RESET) -> None:
    """Its agent did something about it."""
    book.add(GpuRecovered(**of(book), gpu_uuid=GPU, means=means))


def returned(book: Book, means: Recovery = Recovery.RESET) -> None:
    """It may be used again."""
    book.decide(GpuReturned(**of(book), gpu_uuid=GPU, means=means))


def place(book: Book, slots: int = 0b0011) -> set[str]:
    """The laws that the log breaks once a job got these slots of n1."""
    job = book.submit("job", slots.bit_count())
    book.decide(admitted(job))
    book.decide(placed(job, book.share("n1", slots)))
    return laws(book.records)


def test_a_gpu_that_is_out_is_given_to_nobody() -> None:
    """The finding names the run and the slot; the other GPUs of the node may be given."""
    book = Book()
    judged(book)
    assert place(book) == {OUT}
    assert "job-1 got slots [0] of n1" in audit(book.records)[0].message

    book = Book()
    judged(book)
    assert place(book, 0b1110) == set()


@pytest.mark.parametrize("said", [{"action": GpuAction.LOG}, {"action": GpuAction.RESTART}, {"held_back": True}])
def test_a_verdict_that_leaves_the_gpu_in_use_forbids_nothing(said: dict[str, Any]) -> None:
    """A record, a restart, and what the breaker held back."""
    book = Book()
    judged(book, **said)
    assert place(book) == set()


def test_a_verdict_on_another_life_says_nothing() -> None:
    """The node had joined anew before it was written down."""
    book = Book()
    judged(book, node_epoch=NodeEpoch(1))
    assert place(book) == set()


def test_it_is_out_in_all_lives_of_the_node() -> None:
    """A new life that finds it clean does not make it sound."""
    book = Book()
    judged(book)
    book.nodes["n1"] = book.join("n1", "h100")
    assert place(book) == {OUT}


@pytest.mark.parametrize("means", [Recovery.RESET, Recovery.REBOOT, Recovery.OPERATOR])
def test_what_helps_returns_it(means: Recovery) -> None:
    """Done after the sign; also before the verdict was written down."""
    book = Book()
    judged(book)
    match means:
        case Recovery.REBOOT:
            joined = next(r.event for r in book.records if isinstance(r.event, NodeJoined))
            book.nodes["n1"] = NodeEpoch(book.add(replace(joined, boot_id="another")))
        case Recovery.OPERATOR:
            book.add(GpuReturnAsked(at=AT, node_id=NodeId("n1"), gpu_uuid=GPU))
        case _:
            recovered(book)
    returned(book, means)
    assert laws(book.records) == set()


def test_nothing_else_does() -> None:
    """Neither silence, nor what was done before the sign, nor what helps against something else, nor another life."""
    book = Book()
    recovered(book)
    judged(book)
    returned(book)
    assert laws(book.records) == {BACK}

    book = Book()
    judged(book)
    recovered(book, Recovery.DRIVER)
    returned(book, Recovery.DRIVER)
    assert laws(book.records) == {BACK}

    book = Book()
    judged(book)
    judged(book, GpuAction.EVICT, returns_by=(Recovery.REBOOT,))
    recovered(book)
    returned(book)
    assert laws(book.records) == {BACK}

    book = Book()
    judged(book)
    book.nodes["n1"] = book.join("n1", "h100")
    returned(book, Recovery.REBOOT)
    assert laws(book.records) == {BACK}


def test_what_was_not_out_is_not_returned() -> None:
    """Once is enough."""
    book = Book()
    judged(book, signalled=Position(1))
    recovered(book)
    returned(book)
    assert laws(book.records) == set()
    returned(book)
    assert laws(book.records) == {BACK}


def test_alarms_stand_in_a_decision() -> None:
    """They are the control plane's word, as verdicts are."""
    book = Book()
    raised = AlarmRaised(at=AT, code=AlarmCode.BREAKER, message="too many")
    book.decide(raised, AlarmCleared(at=AT, code=AlarmCode.BREAKER))
    assert laws(book.records) == set()
    book.add(raised)
    assert laws(book.records) == {"one leader"}
