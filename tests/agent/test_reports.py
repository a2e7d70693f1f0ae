"""What goes into one message to the gate."""

from agent.core.action import FoundClean, Join, Release, Report, ReportGpu, ReportStarted
from agent.core.signs import Sign, Telling
from agent.reports import batch_of
from events.base import GpuUuid, NodeEpoch, RunId, SlotMask
from events.gpu import GpuSignal
from runtime.clock import MANUAL_START

EPOCH, RUN, GPU = NodeEpoch(5), RunId("jaa-1"), GpuUuid("GPU-0")
WORDS = [
    ReportGpu(EPOCH, Telling(number, MANUAL_START, Sign(gpu_uuid=GPU, signal=GpuSignal.XID, code=number)))
    for number in (1, 2)
]
OTHERS: list[Report] = [
    FoundClean(EPOCH, (GPU,)),
    ReportStarted(EPOCH, RUN),
    Release(EPOCH, RUN, SlotMask(1)),
]


def test_a_word_about_a_gpu_goes_alone_so_that_its_repeat_is_the_same_to_the_byte() -> None:
    """Whatever else is to be told by then; the words in their order, and before what comes again by itself."""
    assert batch_of([OTHERS[0], *WORDS, *OTHERS], 500) == batch_of(list(WORDS), 500) == WORDS[:1]


def test_a_joining_goes_alone_and_all_else_together() -> None:
    """Up to what one message may hold."""
    assert batch_of([*OTHERS, Join()], 500) == [Join()]
    assert batch_of(OTHERS, 500) == OTHERS
    assert batch_of(OTHERS, 2) == OTHERS[:2]
    assert batch_of([], 500) == []
