"""The table of verdicts: each signal has a line, and each line says what returns the GPU that it takes out."""

import pytest

from events.gpu import GpuAction, GpuSignal, Recovery
from projections.cluster.fitness import OUT
from services.health import table
from services.health.table import RECOVERY_ACTIONS, SIGNALS, XIDS, Line, line_of
from tests.services.health.documented import BETWEEN, DOCUMENT
from tests.services.health.documented import table as table_as_documented

LINES: list[Line] = [
    *XIDS.values(),
    *RECOVERY_ACTIONS.values(),
    *SIGNALS.values(),
    *(one for one in vars(table).values() if isinstance(one, Line)),
]


@pytest.mark.parametrize(
    ("codes", "action"),
    [
        ((13, 31, 43, 45, 63, 92, 154), GpuAction.LOG),
        ((8, 32, 69, 94, 101, 135, 139), GpuAction.RESTART),
        ((46, 62, 64, 95, 109, 119, 120, 143, 158), GpuAction.RESET),
        ((48, 54, 74, 78, 144, 150), GpuAction.DRAIN),
        ((79, 151), GpuAction.EVICT),
    ],
)
def test_xids_are_judged_as_the_catalogue_has_them(codes: tuple[int, ...], action: GpuAction) -> None:
    """One or more of each bucket, written down here a second time."""
    assert {line_of(GpuSignal.XID, code)[1].action for code in codes} == {action}


def test_every_xid_of_the_catalogue_is_in_one_bucket() -> None:
    """So many there are; a number that slipped into two buckets would be one of the last alone."""
    assert len(XIDS) == 97
    assert {8, 79, 161} <= set(XIDS)


def test_an_xid_that_is_not_in_the_table_is_on_record_and_says_so() -> None:
    """A driver of next year evicts nobody by a number that nobody has looked up."""
    rule, line = line_of(GpuSignal.XID, 999)
    assert (rule, line.action) == ("xid 999, unknown", GpuAction.LOG)


def test_what_the_driver_asks_for_is_done() -> None:
    """Codes 1 to 7; one that is not in the table takes the GPU out too: what cannot be read is no pass."""
    actions = [line_of(GpuSignal.RECOVERY_ACTION, code)[1].action.value for code in range(9)]
    assert actions == ["log", "reset", "evict", "drain", "drain", "drain", "evict", "evict", "drain"]
    assert line_of(GpuSignal.RECOVERY_ACTION, 8)[0] == "recovery_action 8, unknown"
    withdrawn = {line.returns_by for line in RECOVERY_ACTIONS.values() if line.action in OUT}
    assert all(Recovery.DRIVER in returns_by for returns_by in withdrawn)


def test_every_signal_has_a_line() -> None:
    """One that is added to the words and not here would stop the control plane."""
    assert {signal for signal in GpuSignal if line_of(signal, 7)[1].words} == set(GpuSignal)


def test_what_takes_a_gpu_out_says_what_returns_it_and_an_operator_always_does() -> None:
    """And what does not take it out names nothing: a GPU that nothing returns would be lost for ever."""
    assert len(LINES) > 100
    for line in LINES:
        assert (Recovery.OPERATOR in line.returns_by) == (line.action in OUT), line
        assert not line.whole_node or line.action is GpuAction.EVICT, line


def test_the_document_shows_the_table() -> None:
    """`python -m tests.services.health.documented` writes it there."""
    found = BETWEEN.search(DOCUMENT.read_text("utf-8"))
    assert found is not None
    assert found.group() == table_as_documented()
    for line in LINES:
        assert line.words in found.group()
